"""Records that are equal after cropping are all in one split.

`--dedup cropped` keeps only the first of such records.

A piece is one of the sequences into which `--long split` cuts a record. A run is a group of
consecutive records that a reduce task reads at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from pipeline.build.arrays.sequence_hashes import first_piece_hashes, sequence_hashes
from pipeline.build.verify.verify_dataset import verify_dataset
from schemas.manifest import Manifest
from tests.helpers.data.corpus import (
    LETTERS,
    digest,
    fasta,
    made_records,
    read_buckets,
    read_records,
    sequences_in,
)
from tests.helpers.processes.command_line import InThisProcess, Run, use_few_small_tasks

MOST = 254
SHAPE: dict[str, Any] = {
    "capacity": 1024,
    "max_seq_len": MOST + 2,
    "split": "train=0.5,valid=0.3,test=0.2",
}
BuildHere = Callable[..., Manifest]


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    use_few_small_tasks(monkeypatch)
    monkeypatch.setattr("pipeline.build.verify.verify_dataset.ProcessExecutor", InThisProcess)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Write 60 groups of four records that are equal after cropping, and 200 other records."""
    rng = np.random.default_rng(0)
    records = []
    for i in range(60):
        begin = "".join(rng.choice(list(LETTERS), MOST))
        records += [
            (f"begin{i}.{k}", begin + "".join(rng.choice(list(LETTERS), 100 * k))) for k in range(4)
        ]
    path = tmp_path / "made.fasta"
    path.write_bytes(fasta(records + made_records(200)))
    return path


def sides(out: Path, *, first_pieces: bool) -> dict[str, set[str]]:
    """Return, for each sequence or each first piece of a record, the splits that contain it."""
    found: dict[str, set[str]] = {}
    for bucket in read_buckets(out):
        for _, start, residues in sequences_in(bucket):
            if start == 0 or not first_pieces:
                found.setdefault(residues, set()).add(bucket["split"])
    return found


@pytest.mark.parametrize("dedup", ["exact", "none", "cropped"])
def test_no_sequence_is_in_two_splits_after_cropping(
    build_here: BuildHere, corpus: Path, tmp_path: Path, dedup: str
) -> None:
    build_here(corpus, tmp_path / "out", dedup=dedup, **SHAPE)
    found = sides(tmp_path / "out", first_pieces=False)
    assert [residues for residues, splits in found.items() if len(splits) > 1] == []
    assert len({split for splits in found.values() for split in splits}) == 3
    assert verify_dataset(tmp_path / "out", deep=True) == []


def test_all_pieces_of_records_with_the_same_first_piece_are_in_one_split(
    build_here: BuildHere, corpus: Path, tmp_path: Path
) -> None:
    build_here(corpus, tmp_path / "out", long="split", **SHAPE)
    assert all(len(splits) == 1 for splits in sides(tmp_path / "out", first_pieces=True).values())
    of_record: dict[int, set[str]] = {}
    for bucket in read_buckets(tmp_path / "out"):
        for ordinal, _, _ in sequences_in(bucket):
            of_record.setdefault(ordinal, set()).add(bucket["split"])
    assert all(len(splits) == 1 for splits in of_record.values())
    assert verify_dataset(tmp_path / "out", deep=True) == []


@pytest.mark.parametrize("runs", [False, True])
def test_dedup_cropped_keeps_the_first_of_records_that_are_equal_after_cropping(
    build_here: BuildHere, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs: bool
) -> None:
    if runs:
        monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.WHOLE_BYTES", 10_000)
        monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.RUN_BYTES", 9_000)
    build_here(corpus, tmp_path / "out", dedup="cropped", **SHAPE)
    rows = read_records(tmp_path / "out")
    for i in range(60):
        first, *others = rows[4 * i : 4 * i + 4]
        assert first["status"] == "kept"
        assert [(row["status"], row["duplicate_of"]) for row in others] == [
            ("duplicate", first["ordinal"])
        ] * 3
    pieces = [
        residues
        for bucket in read_buckets(tmp_path / "out")
        for _, _, residues in sequences_in(bucket)
    ]
    assert len(pieces) == len(set(pieces))
    assert verify_dataset(tmp_path / "out", deep=True) == []


def test_dedup_cropped_gives_the_same_bytes_with_one_run_and_with_many(
    build_here: BuildHere, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_here(corpus, tmp_path / "whole", dedup="cropped", **SHAPE)
    monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.WHOLE_BYTES", 10_000)
    monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.RUN_BYTES", 9_000)
    build_here(corpus, tmp_path / "runs", dedup="cropped", **SHAPE)
    assert digest(tmp_path / "whole") == digest(tmp_path / "runs")


@pytest.mark.parametrize("long", ["split", "crop"])
def test_dedup_cropped_is_refused_unless_long_keeps_the_first_residues(
    run: Run, corpus: Path, tmp_path: Path, long: str
) -> None:
    done = run(
        "preprocess", corpus, "--out", tmp_path / "out", "--dedup", "cropped", "--long", long
    )
    assert done.returncode == 2
    assert f"is for --long truncate, not for --long {long}" in done.stderr


def test_first_piece_hashes_match_the_xxhash_library() -> None:
    rng = np.random.default_rng(0)
    sizes = np.array([0, 5, 6, 7, 30, 6])
    tokens = rng.integers(4, 24, int(sizes.sum())).astype(np.uint8)
    ends = np.cumsum(sizes)
    found = first_piece_hashes(tokens, ends, sequence_hashes(tokens, ends), 6)
    expected = [
        xxhash.xxh3_128_digest(tokens[end - size : end][:6].tobytes())
        for end, size in zip(ends, sizes, strict=True)
    ]
    assert found.tobytes() == b"".join(expected)


@pytest.mark.parametrize("runs", [False, True])
def test_stats_counts_records_that_equal_an_earlier_record_after_cropping(
    run: Run,
    build_here: BuildHere,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    runs: bool,
) -> None:
    if runs:
        monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.WHOLE_BYTES", 10_000)
        monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.RUN_BYTES", 9_000)
    build_here(corpus, tmp_path / "exact", **SHAPE)
    pieces = [
        residues
        for bucket in read_buckets(tmp_path / "exact")
        for _, _, residues in sequences_in(bucket)
    ]
    copies = len(pieces) - len(set(pieces))
    assert copies >= 60
    shape = ["--capacity", "1024", "--max-seq-len", str(MOST + 2)]
    for what, more in ((tmp_path / "exact", []), (corpus, shape)):
        done = run("stats", what, *more, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["cropped_copies"] == copies
    assert (
        f"kept records that equal an earlier record after truncation: {copies:,} ("
        in run("stats", tmp_path / "exact").stdout
    )
    build_here(corpus, tmp_path / "cropped", dedup="cropped", **SHAPE)
    assert json.loads(run("stats", tmp_path / "cropped", "--json").stdout)["cropped_copies"] == 0
