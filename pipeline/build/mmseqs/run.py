"""Run MMseqs2 as a child process, which is killed if this process ends first."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from pipeline.build.mmseqs import supervise
from pipeline.storage.folder import Folder
from schemas.errors import BuildError

_LINES_SHOWN: Final = 3
"""Maximum number of lines of MMseqs2's output that an error shows."""


_SIGNALS: Final = 128
"""A larger exit code means that a signal ended the program."""


@contextmanager
def scratch_folder(work: Folder, name: str) -> Iterator[Path]:
    """Yield an empty folder on the local disk for a task's files. Remove it when the context ends.

    A folder that an earlier, killed run of the task left in a local work folder is removed first.

    Args:
        name: name of the task.
    """
    if not work.local:
        with tempfile.TemporaryDirectory(prefix="thdpack-mmseqs-") as path:
            yield Path(path)
        return
    scratch = Path(work.where(f"thdpack-mmseqs-{name}"))
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def run_mmseqs(
    mmseqs: str,
    arguments: Sequence[str | Path],
    scratch: Path,
    known: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Run a command of MMseqs2, and wait for its end.

    If this process ends first, even if it is killed, MMseqs2 is killed too.

    Args:
        mmseqs: path of the binary.
        arguments: name of the command, such as easy-search, and its arguments.
        scratch: folder for a file with the output of MMseqs2.
        known: messages for known failures. Each key is a text that MMseqs2 prints in such a
            failure.
    Raises:
        BuildError: MMseqs2 failed. The message is one of `known`, or shows the last lines that
            MMseqs2 printed.
    """
    command = [mmseqs, *map(str, arguments)]
    log = scratch / "mmseqs.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-I", "-S", supervise.__file__, *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdin is not None
        try:
            code = process.wait()
        finally:
            process.stdin.close()  # after an exception, this ends MMseqs2
    if not code:
        return
    said = log.read_bytes().decode("utf-8", "replace")
    message = next((message for text, message in known.items() if text in said), None)
    if message is None:
        resume = "run the same command to resume"
        remedy = resume if code > _SIGNALS else f"remove the cause, then {resume}"
        failed = f"mmseqs {arguments[0]} failed with exit code {code}"
        message = f"{failed}: {_last_lines(said)}; {remedy}"
    raise BuildError(message)


def _last_lines(text: str) -> str:
    """Return the last lines of a text as one line."""
    lines = [line.strip() for line in text.splitlines()]
    return " | ".join([line for line in lines if line][-_LINES_SHOWN:])
