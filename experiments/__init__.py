"""Scripts that measure and reproduce, run as ``python -m experiments.FOLDER.NAME``."""
