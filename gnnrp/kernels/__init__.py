"""Kernels between nodes: of their features, and of the networks that read them."""
