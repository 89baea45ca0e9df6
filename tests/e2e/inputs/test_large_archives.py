"""A large archive is decompressed by several threads, and its text is divided among the workers.

The dataset is the same as from one task. Damage is an error.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.inputs.residues import BINARY_DATA
from tests.helpers.data.archives import bgzip, in_parts, skippable, zstandard
from tests.helpers.data.corpus import digest, fasta, made_records
from tests.helpers.processes import started
from tests.helpers.processes.command_line import Run

TEXT = fasta(made_records(900))
SIZES: dict[str, Any] = {"section_bytes": 40_000, "partition_bytes": 100_000}
OPTIONS = ("--capacity", "2048", "--max-seq-len", "512")
WORKERS = ("--workers", "6")

ARCHIVES: dict[str, Callable[[bytes], bytes]] = {
    "one.fasta.gz": lambda data: gzip.compress(data, mtime=0),
    "members.fasta.gz": lambda data: in_parts("gz", data, 7),
    "padded.fasta.gz": lambda data: gzip.compress(data, mtime=0) + bytes(512),
    "x.fasta.bgz": bgzip,
    "one.fasta.zst": zstandard,
    "frames.fasta.zst": lambda data: skippable(b"x") + in_parts("zst", data, 7),
    "x.fasta.xz": lzma.compress,
    "one.fasta.bz2": bz2.compress,
    "streams.fasta.bz2": lambda data: in_parts("bz2", data, 3),
}


def sections(timeline: Path) -> list[str]:
    """Return the names of the map tasks that read sections."""
    events = json.loads(timeline.read_text())["traceEvents"]
    return [event["name"] for event in events if event["name"].startswith("map-000000s")]


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_divided_archive_gives_the_same_bytes_as_one_task(
    run: Run, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    path.write_bytes(ARCHIVES[name](TEXT))
    one_task = {"partition_bytes": SIZES["partition_bytes"]}
    whole = run("preprocess", path, "--out", tmp_path / "whole", *OPTIONS, **one_task)
    assert whole.returncode == 0, whole.stderr
    timeline = ("--timeline", tmp_path / "timeline.json")
    out = ("--out", tmp_path / "out")
    done = run("preprocess", path, *out, *OPTIONS, *WORKERS, *timeline, **SIZES)
    assert done.returncode == 0, done.stderr
    assert len(sections(tmp_path / "timeline.json")) > 5
    assert digest(tmp_path / "out") == digest(tmp_path / "whole")
    assert not (tmp_path / "out" / ".build").exists()


@pytest.mark.parametrize("line_end", [b"\r", b"\r\n"])
def test_other_line_ends_and_records_longer_than_a_section_are_read(
    run: Run, tmp_path: Path, line_end: bytes
) -> None:
    long = b">long\n" + b"MKTAYIAK" * 9_000 + b"\n"
    text = (TEXT[:100_000].rpartition(b"\n>")[0] + b"\n" + long + TEXT).replace(b"\n", line_end)
    path = tmp_path / "x.fasta.gz"
    path.write_bytes(gzip.compress(text, mtime=0))
    one_task = {"partition_bytes": SIZES["partition_bytes"]}
    run("preprocess", path, "--out", tmp_path / "whole", *OPTIONS, **one_task)
    done = run("preprocess", path, "--out", tmp_path / "out", *OPTIONS, *WORKERS, **SIZES)
    assert done.returncode == 0, done.stderr
    assert digest(tmp_path / "out") == digest(tmp_path / "whole")


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("one.fasta.gz", lambda data: data[: len(data) // 2]),
        ("one.fasta.gz", lambda data: data + b"appended"),
        ("members.fasta.gz", lambda data: data[:-3]),
        ("x.fasta.bgz", lambda data: data[:-28]),
        ("frames.fasta.zst", lambda data: data[:-1]),
        ("one.fasta.zst", lambda data: data[: len(data) // 2]),
        ("x.fasta.xz", lambda data: data[: len(data) // 2]),
        ("one.fasta.bz2", lambda data: data[: len(data) // 2]),
        ("streams.fasta.bz2", lambda data: data + b"appended"),
    ],
)
def test_a_damaged_archive_is_an_error_that_names_the_file(
    run: Run, tmp_path: Path, name: str, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / name
    path.write_bytes(damage(ARCHIVES[name](TEXT)))
    done = run("preprocess", path, "--out", tmp_path / "out", *OPTIONS, *WORKERS, **SIZES)
    assert done.returncode == 1
    assert f"{path}: " in done.stderr
    assert "archive" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_an_error_in_a_later_section_names_the_line_of_the_whole_text(
    run: Run, run_process: Run, tmp_path: Path
) -> None:
    path = tmp_path / "x.fasta.gz"
    path.write_bytes(gzip.compress(TEXT + b">bad\nMK\x00T\n", mtime=0))
    line = TEXT.count(b"\n") + 2
    said = [
        way("preprocess", path, "--out", tmp_path / "out", *more).stderr
        for way, more in ((run, ()), (lambda *w: run_process(*w, **SIZES), WORKERS))
    ]
    message = f"thdpack preprocess: {path}:{line}: byte 0x00: {BINARY_DATA}\n"
    assert message in said[0]
    assert message in said[1]


def test_a_killed_build_of_a_divided_archive_resumes_to_the_same_bytes(
    run_process: Run, tmp_path: Path
) -> None:
    path = tmp_path / "x.fasta.gz"
    path.write_bytes(gzip.compress(TEXT, mtime=0))
    words = ("preprocess", path, *OPTIONS, "--workers", "3")
    whole = run_process(*words, "--out", tmp_path / "whole", **SIZES)
    assert whole.returncode == 0, whole.stderr
    out = ("--out", tmp_path / "out")
    for outcomes in (1, 4, 8):
        setup = started.stopping_after_outcomes(outcomes)
        process = started.start(*words, *out, setup=setup, **SIZES)
        process.wait_until_stopped()
        process.kill()
        process.communicate()
    timeline = ("--timeline", tmp_path / "timeline.json")
    done = run_process(*words, *out, *timeline, **SIZES)
    assert done.returncode == 0, done.stderr
    assert "which an earlier run finished" in done.stderr
    assert digest(tmp_path / "out") == digest(tmp_path / "whole")


def test_many_archives_of_similar_size_are_read_by_one_task_each(
    run_process: Run, tmp_path: Path
) -> None:
    inputs = []
    for i in range(4):
        inputs.append(tmp_path / f"{i}.fasta.gz")
        inputs[-1].write_bytes(gzip.compress(fasta(made_records(100, seed=i)), mtime=0))
    timeline = tmp_path / "timeline.json"
    words = ("--out", tmp_path / "out", "--workers", "3", "--timeline", timeline)
    done = run_process("preprocess", *inputs, *words, *OPTIONS, **SIZES)
    assert done.returncode == 0, done.stderr
    assert not sections(timeline)
