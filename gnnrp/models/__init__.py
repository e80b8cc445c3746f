"""Finite graph neural networks: what they compute, and how they are trained."""
