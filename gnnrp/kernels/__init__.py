"""Kernels between nodes: of their features, and of networks."""
