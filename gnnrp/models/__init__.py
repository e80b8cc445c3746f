"""Finite graph neural networks, their losses and optimizers, and their training."""
