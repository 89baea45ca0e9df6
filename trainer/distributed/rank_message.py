"""Messages of a rank on standard error, and in torchrun's summary of failures."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist

_ERROR_FILE: Final = "TORCHELASTIC_ERROR_FILE"
"""Environment variable of torchrun: path of the file in which a rank explains why it ends."""
_TERMINATED_WITHIN: Final = 10.0
"""Maximum seconds until torchrun terminates a rank after another rank has failed."""
_FIRST_RANK_WITHIN: Final = 3.0
"""Maximum seconds that a rank with an error waits for the same error of rank 0."""
_EVERY_SECONDS: Final = 0.02
_KEY: Final = "error"
_command = "thdpack train"
_last = ""


def name_command(name: str) -> None:
    """Set the name of the command, with which each message begins."""
    global _command  # a process runs one command
    _command = name


def command() -> str:
    """Return the name of the command."""
    return _command


def say(rank: int, text: str) -> None:
    """Write one line to standard error. The line begins with the command's name and the rank, as in
    "thdpack train, rank 3:". Lines of rank 0 begin with the command's name only.

    The line is written in one call. `print` would write the newline separately, because torchrun
    starts Python without buffering. The lines of two ranks that share a pipe could then be mixed.
    """
    global _last  # `leave_error_file` repeats this message
    _last = text
    sys.stderr.write(f"{_command}, rank {rank}: {text}\n" if rank else f"{_command}: {text}\n")
    sys.stderr.flush()


def say_error(rank: int, text: str, errors: Any) -> None:
    """Print the error that ends this rank. If rank 0 ends with the same error, only rank 0 prints
    it. A rank waits at most a few seconds for the error of rank 0.

    Args:
        errors: key-value store of all ranks; None if there is only one rank. A restarted job must
            not see keys of its earlier start.
    """
    global _last
    _last = text
    if rank == 0 or errors is None:
        say(rank, text)
        if errors is not None:
            with suppress(dist.DistError):  # torchrun may have ended already
                errors.set(_KEY, text)
    elif _of_first_rank(errors) != text:
        say(rank, text)


def _of_first_rank(errors: Any) -> str:
    """Wait until rank 0 has printed its error, and return it; "" if rank 0 prints none in time."""
    # When rank 0 has ended, torchrun sends SIGTERM to the other ranks. They end by themselves.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    deadline = time.monotonic() + _FIRST_RANK_WITHIN
    with suppress(dist.DistError):
        while time.monotonic() < deadline:
            if errors.check([_KEY]):
                return str(errors.get(_KEY).decode())
            time.sleep(_EVERY_SECONDS)
    return ""


@contextmanager
def first_rank_speaks() -> Iterator[None]:
    """Print an error about the command line once on each node, not once for each rank.

    torchrun gives all ranks of a node the same command line, so all of them find the same error.
    The first rank of the node prints the error and exits. torchrun then terminates the other ranks,
    which wait until then. If a rank is not terminated, the first rank has not failed, so this rank
    had another command line. It then prints its own error.
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
