"""Records of commands, to compare the results of two runs."""

CHANGING = (
    *("seconds", "peak_memory_bytes", "command", "commit"),
    *("run_id", "started", "resumed_from"),
)


def results(found):
    """Return a record without the entries that differ from run to run."""
    if isinstance(found, list):
        return [results(each) for each in found]
    if not isinstance(found, dict):
        return found
    return {k: results(v) for k, v in found.items() if not k.endswith(CHANGING)}
