"""Studies from dataset to record: the work of the three commands."""
