"""A build never mixes old and new content of an input that is rewritten during the build."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.build.build_plan import plan
from pipeline.build.destination.destination import open_destination
from pipeline.build.options import PreprocessOptions
from pipeline.build.run_task import run_once
from pipeline.build.stages import hash_tasks, map_tasks
from pipeline.inputs.find import unchanged
from schemas.errors import InputError
from tests.helpers.processes.command_line import Run

LINES = b"".join(b">%d\n" % i + b"MKTAYIAKQR" * 30 + b"\n" for i in range(20))


def rewrite_in_place(path: Path) -> None:
    """Change a file's last residue, but not its size or modification time."""
    before = path.stat()
    content = path.read_bytes()
    while path.stat().st_ctime_ns == before.st_ctime_ns:  # ctime advances only every few ms
        with path.open("r+b") as file:
            file.write(content[:-2] + b"W\n")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns, after.st_ino) == (
        before.st_size,
        before.st_mtime_ns,
        before.st_ino,
    )


def test_a_rewritten_file_with_its_old_modification_time_counts_as_changed(tmp_path: Path) -> None:
    path = tmp_path / "x.fasta"
    path.write_bytes(LINES)
    source = plan(PreprocessOptions(inputs=(str(path),), out=str(tmp_path / "out"))).sources[0]
    assert unchanged(source)
    rewrite_in_place(path)
    assert not unchanged(source)


def test_a_file_rewritten_between_two_tasks_of_a_task_list_is_refused(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "x.fasta"
    path.write_bytes(LINES)
    sizes = {"task_bytes": 2_000}
    assert run("plan-tasks", path, "--out", tmp_path / "out", **sizes).returncode == 0
    assert run("run-task", tmp_path / "out", "--index", 0, **sizes).returncode == 0
    rewrite_in_place(path)
    done = run("run-task", tmp_path / "out", "--index", 1, **sizes)
    assert done.returncode == 1
    assert f"{path}: changed since the tasks were planned" in done.stderr


@pytest.mark.parametrize("stage", ["map", "hash"])
def test_a_file_rewritten_while_a_task_reads_it_is_an_error_and_the_next_build_reads_it_again(
    run: Run, tmp_path: Path, stage: str
) -> None:
    path, out = tmp_path / "x.fasta", tmp_path / "out"
    path.write_bytes(LINES)
    options = PreprocessOptions(inputs=(str(path),), out=str(out))
    planned = plan(options)
    destination = open_destination(str(out))
    with destination.claim():
        work = destination.work_folder(planned, options)
        task = (
            map_tasks(planned, options.of_dataset, work)[0]
            if stage == "map"
            else hash_tasks(planned, work, every=True)[0]
        )
        changed = []

        def on_bytes(count: int) -> None:
            if not changed:
                changed.append(count)
                rewrite_in_place(path)

        with pytest.raises(InputError, match="changed while it was read"):
            run_once(task, on_bytes, out=destination.out)
    assert run("preprocess", path, "--out", out).returncode == 0
    assert run("verify", out, "--deep").returncode == 0


def test_if_a_dataset_was_built_from_other_inputs_the_error_names_the_first_differences(
    run: Run, tmp_path: Path
) -> None:
    names = [tmp_path / f"{name}.fasta" for name in "abcdef"]
    for name in names:
        name.write_bytes(f">{name.stem}\nMKTAYIAK\n".encode())
    a, b, *others = names
    words = ("--dedup", "none", "--out", tmp_path / "out")
    assert run("preprocess", a, b, *words).returncode == 0

    def said(*inputs: Path) -> str:
        done = run("preprocess", *inputs, *words)
        assert done.returncode == 2
        return done.stderr.partition("the inputs differ: ")[2].partition(");")[0]

    assert said(b, a) == "they are in another order"
    assert said(a, others[0]) == "c.fasta is new, b.fasta is no longer given"
    assert said(*names) == "c.fasta is new, d.fasta is new, e.fasta is new and 1 more"
    inner = tmp_path / "inner" / "g.fasta"
    inner.parent.mkdir()
    inner.write_bytes(b">g\nMKT\n")
    wide = (*words[:-1], tmp_path / "wide")
    assert run("preprocess", a, inner, *wide).returncode == 0
    done = run("preprocess", inner, *wide)  # its name was inner/g.fasta, and is g.fasta
    assert "the inputs differ: a.fasta is no longer given);" in done.stderr
    b.write_bytes(b">b\nMK\n")
    assert said(a, b) == "b.fasta had 12 bytes and has 6"
