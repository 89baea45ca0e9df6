"""Ctrl-C while a command starts prints one line, and no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.processes.command_line import REPO, environment

INTERRUPTED_IMPORT = """
import importlib.abc, os, signal, sys

interrupted = sys.argv[1]


class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == interrupted:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                raise RuntimeError("a library turns the interrupt into another error") from None

sys.meta_path.insert(0, Interrupting())
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores SIGINT
import thdpack

sys.argv = ["thdpack", *sys.argv[2:]]
thdpack.main()
"""

FORK_SERVER = """
import multiprocessing.forkserver as forkserver
from pathlib import Path
from pipeline.executors.processes import preload

preload()
print(Path(f"/proc/{forkserver._forkserver._forkserver_pid}/status").read_text())
"""


def interrupted(module: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run a command that gets SIGINT when it imports a module."""
    return subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT, module, *map(str, words)],
        cwd=REPO,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("module", "words", "said"),
    [
        ("pipeline.cli.main", ("verify", "d"), "thdpack: interrupted"),
        ("trainer.config", ("train", "esm2-tiny", "--data", "d"), "thdpack: interrupted"),
        ("trainer.train", ("train", "esm2-tiny", "--data", "d"), "thdpack: interrupted"),
        ("pipeline.cli.verify", ("verify", "d"), "thdpack verify: interrupted"),
        (
            "pipeline.build.build_dataset",
            ("preprocess", "d.fasta", "--out", "d"),
            "thdpack preprocess: interrupted; run the same command to resume",
        ),
    ],
)
def test_an_interrupt_during_an_import_prints_one_line(
    module: str, words: tuple[str, ...], said: str
) -> None:
    done = interrupted(module, *words)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", f"{said}\n")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_the_fork_server_starts_with_sigint_blocked_so_that_it_prints_no_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK_SERVER],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
        check=True,
    )
    [blocked] = [line.split()[1] for line in done.stdout.splitlines() if "SigBlk" in line]
    assert int(blocked, 16) >> (signal.SIGINT - 1) & 1
