"""Graphs that are shared by several devices or machines."""
