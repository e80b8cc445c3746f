"""Studies from data set to record: the work of the three commands."""
