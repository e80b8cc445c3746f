"""Checkpoints, files, memory limits, argument checks and interrupts of long runs."""
