"""Write into a lock file who holds the lock, so that others can name the holder."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from schemas.text.redact import without_credentials

_MOST_BYTES: Final = 4096
_MOST_COMMAND: Final = 300


def write_holder(descriptor: int) -> None:
    """Write this process, its machine, its command and the time into a locked file."""
    holder = {
        "pid": os.getpid(),
        "host": os.uname().nodename,
        "command": _command(),
        "since": datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
    }
    content = f"{json.dumps(holder)}\n".encode()
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, content, 0)


def holder_of(path: Path) -> str:
    """Return who holds a lock, such as "held by pid 7 on node1 since … UTC: thdpack watch …".

    Return "" if the file does not say it.
    """
    try:
        with path.open("rb") as file:
            holder = json.loads(file.read(_MOST_BYTES))
        return (
            f"held by pid {holder['pid']} on {holder['host']} since {holder['since']}: "
            f"{holder['command']}"
        )
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _command() -> str:
    words = [os.path.basename(sys.argv[0]) or "python", *sys.argv[1:]]
    text = without_credentials(" ".join(words).encode(errors="backslashreplace").decode())
    return text if len(text) <= _MOST_COMMAND else f"{text[:_MOST_COMMAND]}…"
