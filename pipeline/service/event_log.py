"""The log of the service: one JSON object per line on standard output."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime
from typing import Any

from schemas.text.redact import without_credentials

_LOCK = threading.Lock()


def log(event: str, **values: Any) -> None:
    """Print an event with its time. Credentials are removed from its texts."""
    shown = {
        name: without_credentials(value) if isinstance(value, str) else value
        for name, value in values.items()
    }
    now = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
    with _LOCK:
        print(json.dumps({"time": now, "event": event, **shown}), flush=True)
