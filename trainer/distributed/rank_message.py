"""Messages of a rank on standard error, and in torchrun's summary of failures."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

PREFIX: Final = "thdpack train"
"""Beginning of each message of the command."""
_ERROR_FILE: Final = "TORCHELASTIC_ERROR_FILE"
"""Environment variable of torchrun: path of the file in which a rank explains why it ends."""
_last = ""


def say(rank: int, text: str) -> None:
    """Write one line to standard error. The line begins with "thdpack train, rank N:", or with
    "thdpack train:" for rank 0.

    The line is written in one call. `print` would write the newline separately, because torchrun
    starts Python without buffering. The lines of two ranks that share a pipe could then be mixed.
    """
    global _last  # `leave_error_file` repeats this message
    _last = text
    sys.stderr.write(f"{PREFIX}, rank {rank}: {text}\n" if rank else f"{PREFIX}: {text}\n")
    sys.stderr.flush()


def leave_error_file(text: str = "") -> None:
    """Write a message to torchrun's error file, if this process has one.

    torchrun prints a traceback of its own, then a summary. The summary ends with this message.
    Without the file, the summary would end with a link to a page about tracebacks.

    Args:
        text: the message; "" for the last message of `say`.
    """
    path = os.environ.get(_ERROR_FILE)
    if not path:
        return
    text = text or _last
    extra = {"py_callstack": text, "timestamp": str(int(time.time()))}
    with suppress(OSError):  # the message was printed already
        Path(path).write_text(json.dumps({"message": {"message": text, "extraInfo": extra}}))
