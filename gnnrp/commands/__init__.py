"""The commands: a frozen dataclass of flags each, and its run. Nothing is imported."""
