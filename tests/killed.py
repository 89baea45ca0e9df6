"""A build killed again and again, at a few milliseconds a kill: `python -m tests.killed CORPUS FOLDER KILLS`.

This process builds once, so that all is imported, and then forks; each child is driver and worker of a build, and is killed after a random time.
Prints, as JSON, how many kills there were and how much was done at each.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import pipeline.build
import pipeline.plan
import pipeline.sources
import pipeline.stages
from pipeline.options import PreprocessOptions
from pipeline.progress import reporter
from tests.conftest import InThisProcess
from tests.corpus import digest


def build(corpus: Path, out: Path) -> None:
    with reporter(as_json=False) as report:
        pipeline.build.build(PreprocessOptions(inputs=(str(corpus),), out=str(out), capacity=1024, max_seq_len=512), report)


def start(corpus: Path, out: Path) -> int:
    """A child that builds and leaves with 0; its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        build(corpus, out)
        code = 0
    finally:
        os._exit(code)


def main(corpus: Path, folder: Path, kills: int) -> None:
    pipeline.build.ProcessExecutor = InThisProcess  # type: ignore[assignment, misc, attr-defined]
    pipeline.sources.TASK_BYTES = pipeline.plan.PARTITION_BYTES = 25_000  # type: ignore[misc]
    pipeline.sources.PIECE_BYTES, pipeline.sources.FEWEST_TASKS = 5_000, 1  # type: ignore[misc]
    pipeline.stages.RESTS_TOGETHER = 4  # type: ignore[misc]
    out = folder / "out"
    build(corpus, folder / "first")
    began = time.monotonic()
    build(corpus, folder / "whole")
    takes, expected = time.monotonic() - began, digest(folder / "whole")
    rng = random.Random(1)
    killed: list[int] = []
    while len(killed) < kills:
        child = start(corpus, out)
        time.sleep(rng.uniform(0, takes))
        os.kill(child, signal.SIGKILL)  # nobody has waited for it: it is there, if only as what it left
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            killed.append(len(list(out.glob(".build/*-*[0-9].json"))))
        else:
            assert status == 0, "it did not go on from where it was killed"
        if (out / "manifest.json").exists():  # killed while it cleared up, or too late: the next begins anew
            assert digest(out) == expected
            shutil.rmtree(out)
    assert os.waitpid(start(corpus, out), 0)[1] == 0
    assert digest(out) == expected
    print(json.dumps(killed))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
