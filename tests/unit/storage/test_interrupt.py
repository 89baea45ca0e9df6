"""Ctrl-C while the pool of processes holds a lock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import REPO

PROGRAM = """
import os, signal, sys
from functools import partial
from pathlib import Path
import pipeline.executors.processes as executors
from pipeline.storage.local_folder import LocalFolder
from pipeline.storage.interrupt import interrupt
from pipeline.build.options import PreprocessOptions
from pipeline.build.build_plan import plan
from pipeline.build.run_task import run_once
from pipeline.build.stages import hash_tasks

some_of = executors._some_of

def interrupted(done, wait):
    lock = executor._pool._shutdown_lock
    lock.acquire()  # an exception here would leave the lock held, and the pool's end would hang
    os.kill(os.getpid(), signal.SIGINT)
    lock.release()
    return some_of(done, wait=wait)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, interrupt)
    executors._some_of = interrupted
    out = LocalFolder(Path(sys.argv[1]), Path(sys.argv[1]))
    options = PreprocessOptions(inputs=("data/sample.fasta",), out="x")
    tasks = hash_tasks(plan(options), out, every=True)
    try:
        with executors.ProcessExecutor(1) as executor:
            executor.run(partial(run_once, out=out), tasks, print, print)
    except KeyboardInterrupt:
        print("interrupted")
"""


def test_an_interrupt_while_a_lock_is_held_ends_the_build(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == ["interrupted"], done.stderr
