"""Graphs in tables of edges, labels and features."""
