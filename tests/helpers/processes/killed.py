"""Kill and resume a build many times.

    python -m tests.helpers.processes.killed CORPUS FOLDER KILLS [FILE [OPTION]]

FILE is a table of clusters. OPTION is clusters (the default) or sample_clusters. If OPTION is
append or compact, FILE is a dataset instead. The program then appends CORPUS to a copy of the
dataset, or compacts the copy (CORPUS is a folder with all inputs). If OPTION is retire, the program
also retires the ids in the file CORPUS.ids. If OPTION is retire_only, it appends nothing.

This process first builds once without interruption. It counts the changes in the dataset's folder
(see `at_change` in stopped.py) and the writes. Then it forks children. Each child resumes the
build without worker processes, and kills itself at a random moment: right before a change, or
halfway through a write.

The program prints a JSON list with the number of tasks that had finished at each kill.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pipeline.build.build_dataset
import pipeline.build.build_plan
import pipeline.build.stages
import pipeline.inputs.find
import pipeline.storage.atomic_write
from pipeline.build.append.append_dataset import append
from pipeline.build.append.compact_dataset import compact
from pipeline.build.append.options import AppendOptions, CompactOptions
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress.reporter import reporter
from tests.helpers.data.corpus import digest, read_manifest
from tests.helpers.processes.command_line import PIECE_BYTES, REPO, environment, without_workers
from tests.helpers.processes.stopped import at_change


def kill_builds(corpus: Path, folder: Path, kills: int, *clusters: object) -> list[int]:
    """Run this program in a new process; return the number of finished tasks at each kill."""
    words = map(str, (corpus, folder, kills, *clusters))
    arguments = [sys.executable, "-m", __name__, *words]
    done = subprocess.run(arguments, cwd=REPO, env=environment(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    finished: list[int] = json.loads(done.stdout)
    return finished


def option() -> str:
    return sys.argv[5] if len(sys.argv) > 5 else "clusters"


def grows() -> bool:
    """Return whether the program adds a generation to a dataset."""
    return option() in ("append", "compact", "retire", "retire_only")


def prepare(out: Path) -> None:
    """Copy the dataset to which a generation is added."""
    if grows():
        shutil.copytree(sys.argv[4], out)


def complete(out: Path) -> bool:
    """Return whether the build, or the new generation, is committed."""
    if not (out / "manifest.json").exists():
        return False
    before = read_manifest(Path(sys.argv[4])).generation if grows() else 0
    return read_manifest(out).generation > before


def build(corpus: Path, out: Path) -> None:
    if grows():
        add_generation(corpus, out)
        return
    clusters: dict[str, Any] = {option(): sys.argv[4]} if len(sys.argv) > 4 else {}
    options = PreprocessOptions(
        inputs=(str(corpus),),
        out=str(out),
        capacity=1024,
        max_seq_len=512,
        split="train=0.8,valid=0.1,test=0.1",
        variants=2,
        **clusters,
    )
    with reporter(as_json=False) as report:
        pipeline.build.build_dataset.build(options, report)


def add_generation(corpus: Path, out: Path) -> None:
    inputs = () if option() == "retire_only" else (str(corpus),)
    places: dict[str, Any] = {"dataset": str(out), "inputs": inputs}
    ids = f"{corpus}.ids" if option().startswith("retire") else None
    with reporter(as_json=False) as report:
        if option() == "compact":
            compact(CompactOptions(**places), report)
        else:
            append(AppendOptions(**places, retire=ids), report)


def start(corpus: Path, out: Path, moment: int, *, in_write: bool) -> int:
    """Fork a child that builds and kills itself at a moment. Return the child's process id.

    Args:
        moment: number of the change or write, counted from 1. With 0, or if the build ends before
            that moment, the child does not kill itself.
        in_write: count writes instead of changes.
    """
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        if in_write:
            die_in_write(moment)
        else:
            at_change(moment, str(out), die)
        build(corpus, out)
        code = 0
    finally:
        os._exit(code)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_in_write(moment: int) -> None:
    """Make this process kill itself halfway through its write number `moment`, counted from 1."""
    whole, left = pipeline.storage.atomic_write.WholeWrites.write, [moment]

    def write(file: pipeline.storage.atomic_write.WholeWrites, data: Any) -> int:
        left[0] -= 1
        if left[0]:
            return whole(file, data)
        view = memoryview(data).cast("B")
        whole(file, view[: len(view) // 2])
        die()
        raise AssertionError("killed")

    pipeline.storage.atomic_write.WholeWrites.write = write  # type: ignore[method-assign]


def count_moments(corpus: Path, out: Path) -> tuple[int, int]:
    """Build without interruption. Return the number of changes and the number of writes."""
    writes = [0]
    whole = pipeline.storage.atomic_write.WholeWrites.write

    def write(file: pipeline.storage.atomic_write.WholeWrites, data: Any) -> int:
        writes[0] += 1
        return whole(file, data)

    pipeline.storage.atomic_write.WholeWrites.write = write  # type: ignore[method-assign]
    prepare(out)
    changes = at_change(0, str(out), die)
    build(corpus, out)
    pipeline.storage.atomic_write.WholeWrites.write = whole  # type: ignore[method-assign]
    return next(changes) - 1, writes[0]


def main(corpus: Path, folder: Path, kills: int) -> None:
    without_workers()
    pipeline.inputs.find.TASK_BYTES = pipeline.build.build_plan.PARTITION_BYTES = 25_000  # type: ignore[misc]
    pipeline.inputs.find.PIECE_BYTES = PIECE_BYTES  # type: ignore[misc]
    pipeline.inputs.find.FEWEST_TASKS = 1  # type: ignore[misc]
    pipeline.build.stages.RESTS_TOGETHER = 4  # type: ignore[misc]
    os.fsync = lambda descriptor: None  # fsync is needed only if the machine loses power
    out = folder / "out"
    changes, writes = count_moments(corpus, folder / "whole")
    expected = digest(folder / "whole")
    rng = random.Random(1)
    killed: list[int] = []
    prepare(out)
    while len(killed) < kills:
        in_write = len(killed) % 2 == 1
        moment = rng.randint(1, writes if in_write else changes)
        status = os.waitpid(start(corpus, out, moment, in_write=in_write), 0)[1]
        if os.WIFSIGNALED(status):
            killed.append(len(list(out.glob(".build/*-*[0-9].json"))))
        else:
            assert status == 0, "the build did not resume"
        if complete(out):  # the next build starts from the beginning
            assert os.waitpid(start(corpus, out, 0, in_write=False), 0)[1] == 0
            assert digest(out) == expected
            shutil.rmtree(out)
            prepare(out)
    assert os.waitpid(start(corpus, out, 0, in_write=False), 0)[1] == 0
    assert digest(out) == expected
    print(json.dumps(killed))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
