"""Tables and pages from the records of the experiments."""
