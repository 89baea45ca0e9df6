"""Write into a lock file who holds the lock, so that others can name the holder."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from schemas.text.redact import without_credentials
from schemas.untrusted_json import decoded

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Holder:
    """A process that holds a lock, or held it when it was killed.

    since: when it took the lock, such as 2026-01-31 12:00:00 UTC
    """

    pid: int
    host: str
    command: str
    since: str

    @property
    def has_ended(self) -> bool:
        """True if the process ran on this machine and no longer exists."""
        if self.host != os.uname().nodename:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):  # for example, the process belongs to another user
            return False
        return False


def read_holder(path: Path) -> Holder | None:
    """Return the process that a lock file names; None if it names none."""
    try:
        with path.open("rb") as file:
            return decoded(file.read(_MOST_BYTES), Holder)
    except (OSError, ValueError):
        return None


def holder_of(path: Path) -> str:
    """Return who holds a lock, such as "held by pid 7 on node1 since … UTC: thdpack watch …".

    Return "" if the file does not say it, or names a process that has ended. The latter happens
    because holders of a shared lock, such as `thdpack run-task`, do not write into the file.
    """
    holder = read_holder(path)
    if holder is None or holder.has_ended:
        return ""
    return f"held by pid {holder.pid} on {holder.host} since {holder.since}: {holder.command}"


def _command() -> str:
    words = [os.path.basename(sys.argv[0]) or "python", *sys.argv[1:]]
    text = without_credentials(" ".join(words).encode(errors="backslashreplace").decode())
    return text if len(text) <= _MOST_COMMAND else f"{text[:_MOST_COMMAND]}…"
