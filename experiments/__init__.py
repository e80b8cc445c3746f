"""Benchmarks and reproductions, run as ``python -m experiments.FOLDER.NAME``."""
