"""A process pool prints no warning after the process that started it was killed."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.conftest import REPO

PROGRAM = """
import os, signal
from pipeline.executors.processes import ProcessExecutor
executor = ProcessExecutor(1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_a_kill_no_warning_about_semaphores_appears() -> None:
    # Python's resource tracker prints the warning when it removes the semaphores of the pool. The
    # tracker inherits standard error, so `run` returns only after the tracker has ended.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=REPO, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert done.stderr == ""
