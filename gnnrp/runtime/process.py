"""Identity of this process, in its checkpoints and in the records of commands."""

import datetime
import secrets
import socket

RUN_ID = secrets.token_hex(8)
STARTED = datetime.datetime.now(datetime.UTC)


def describe() -> dict[str, str]:
    """Return id, start (ISO 8601, UTC) and host of the run of this process."""
    return {
        "run_id": RUN_ID,
        "started": STARTED.isoformat(timespec="seconds"),
        "host": socket.gethostname(),
    }
