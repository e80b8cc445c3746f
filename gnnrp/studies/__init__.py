"""The studies behind the commands, their presets, baselines, records and tables."""
