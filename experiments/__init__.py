"""Scripts that measure and reproduce; each runs as ``python -m experiments.NAME``."""
