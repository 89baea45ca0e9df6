"""On a terminal, the log of `thdpack watch` is text. Everywhere else, it is JSON."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.helpers.data.inboxes import content_of
from tests.helpers.processes.command_line import REPO, command, environment
from tests.helpers.processes.services import drop

ONCE = ("--settle", "1", "--batch-age", "0", "--workers", "1", "--once", "--no-report")


def on_terminal(*words: object) -> list[str]:
    """Run a command whose standard output is a terminal; return the lines that it printed."""
    ours, its = pty.openpty()
    with subprocess.Popen(
        command(*map(str, words)),
        cwd=REPO,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=its,
        stderr=subprocess.DEVNULL,
    ):
        os.close(its)
        printed = b""
        with suppress(OSError):  # on Linux, the end of a terminal's output is an error
            while block := os.read(ours, 4096):
                printed += block
    os.close(ours)
    return printed.decode().splitlines()


def test_a_terminal_shows_short_lines_of_text(inbox: Path, dataset: Path) -> None:
    drop(inbox, "good.fasta", content_of(1))
    drop(inbox, "bad\x1b.fasta", b"no header\n")
    for path in inbox.iterdir():
        os.utime(path, (4e9, 4e9))  # not settled at the first scan, even if it comes late
    lines = on_terminal("watch", inbox, "--dataset", dataset, *ONCE)
    assert lines[:2] == [f"watching {inbox} for {dataset}", "waiting for 2 files to settle"]
    (rejected,) = (line for line in lines if line.startswith("rejected "))
    assert rejected.startswith("rejected bad\\x1b.fasta: ")
    (appended,) = (line for line in lines if line.startswith("appended "))
    assert re.fullmatch(r"appended 1 file as generation 2: \d+ records, \d+ kept", appended)
    assert not any("{" in line for line in lines)


def test_a_service_says_that_its_inbox_is_empty(inbox: Path, dataset: Path) -> None:
    lines = on_terminal("watch", inbox, "--dataset", dataset, *ONCE)
    assert lines == [f"watching {inbox} for {dataset}", f"{inbox} has no files"]


def test_log_json_prints_json_on_a_terminal(inbox: Path, dataset: Path) -> None:
    drop(inbox, "good.fasta", content_of(1))
    lines = on_terminal("watch", inbox, "--dataset", dataset, *ONCE, "--log-json")
    events = [json.loads(line)["event"] for line in lines]
    assert events[0] == "started"
    assert events[-1] == "stopped"
    assert "committed" in events
