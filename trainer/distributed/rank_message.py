"""Messages of a rank on standard error, and in torchrun's summary of failures."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import Final

PREFIX: Final = "thdpack train"
"""Beginning of each message of the command."""
_ERROR_FILE: Final = "TORCHELASTIC_ERROR_FILE"
"""Environment variable of torchrun: path of the file in which a rank explains why it ends."""
_TERMINATED_WITHIN: Final = 10.0
"""Maximum seconds until torchrun terminates a rank after another rank has failed."""
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


@contextmanager
def first_rank_speaks() -> Iterator[None]:
    """Print an error in the command line once on each node, not once for each rank.

    torchrun gives all ranks of a node the same command line, so they fail alike. The first rank of
    the node prints the error and exits. torchrun then terminates the other ranks, which wait for
    this. If a rank is not terminated, it prints the error, too: its command line was another one.
    """
    if not os.environ.get(_ERROR_FILE) or os.environ.get("LOCAL_RANK", "0") == "0":
        yield
        return
    held = io.StringIO()
    try:
        with redirect_stderr(held):
            yield
    except SystemExit as stopped:
        if stopped.code:
            time.sleep(_TERMINATED_WITHIN)
        raise
    finally:
        sys.stderr.write(held.getvalue())


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
