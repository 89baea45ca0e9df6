"""Guarantees of a build, checked by a reader that shares no code with the pipeline."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schemas.manifest import Manifest
from tests.helpers.data.corpus import (
    as_read,
    digest,
    fasta,
    made_records,
    read_buckets,
    read_manifest,
    read_records,
    sequences_in,
)
from tests.helpers.processes.command_line import PIECE_BYTES, Run

LONG = "THDPACK_LONG" in os.environ
SMALL = ("--capacity", "2048", "--max-seq-len", "512", "--split", "valid=0.2,test=0.1")


def build(run: Run, source: Path | list[Path], out: Path, *options: object, **sizes: int) -> str:
    """Run a build, which must succeed; return its output."""
    inputs = source if isinstance(source, list) else [source]
    small = SMALL[:4] if "--split" in options else SMALL
    done = run("preprocess", *inputs, "--out", out, *small, *options, **sizes)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def records() -> list[tuple[str, str]]:
    return made_records(700)


@pytest.fixture
def corpus(tmp_path: Path, records: list[tuple[str, str]]) -> Path:
    path = tmp_path / "made.fasta"
    path.write_bytes(fasta(records))
    return path


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--long", "split", "--length-multiple", "8"),
        ("--long", "drop", "--min-residues", "30"),
        ("--dedup", "none"),
        ("--on-invalid", "skip"),
    ],
)
@pytest.mark.parametrize("partition_bytes", [64 << 20, 50_000])
def test_every_record_has_one_status_and_every_kept_residue_is_in_one_bucket(
    run: Run,
    tmp_path: Path,
    corpus: Path,
    records: list[tuple[str, str]],
    options: tuple[str, ...],
    partition_bytes: int,
) -> None:
    out = tmp_path / "out"
    build(run, corpus, out, *options, task_bytes=60_000, partition_bytes=partition_bytes)
    rows = read_records(out)
    assert [row["ordinal"] for row in rows] == list(range(len(records)))
    assert [row["id"] for row in rows] == [header.split()[0] for header, _ in records]
    placed: dict[int, list[tuple[int, str]]] = {}
    where: dict[int, tuple[str, str, int]] = {}
    for bucket in read_buckets(out):
        for ordinal, start, residues in sequences_in(bucket):
            placed.setdefault(ordinal, []).append((start, residues))
            if start == 0:
                where[ordinal] = bucket["split"], bucket["shard"], bucket["row"]
    seen: dict[str, int] = {}
    for row, (_, text) in zip(rows, records, strict=True):
        residues = as_read(text)
        assert row["residues"] == len(residues)
        assert row["unknown"] == residues.count("?")
        status, pieces, original = expected_outcome(residues, row["ordinal"], seen, options)
        assert (row["status"], row["duplicate_of"]) == (status, original)
        assert sorted(placed.get(row["ordinal"], [])) == pieces
        assert (row["split"], row["shard"], row["bucket"]) == where.get(
            row["ordinal"], (None, None, None)
        )
    text = corpus.read_bytes()
    assert all(text[row["offset"] :].startswith(b">" + row["id"].encode()) for row in rows)


def expected_outcome(
    residues: str, ordinal: int, seen: dict[str, int], options: tuple[str, ...]
) -> tuple[str, list[tuple[int, str]], int | None]:
    """Return how a build should treat a record.

    Returns:
        Status, (start, residues) of each sequence cut from the record, and the ordinal of the
        record that it duplicates.
    """
    most = 510
    shortest = 30 if "--min-residues" in options else 1
    if "skip" in options and "?" in residues:
        return "invalid", [], None
    if len(residues) < shortest:
        return "too_short", [], None
    if "drop" in options and len(residues) > most:
        return "too_long", [], None
    if "none" not in options and seen.setdefault(residues, ordinal) != ordinal:
        return "duplicate", [], seen[residues]
    if "split" in options:
        return "kept", [(i, residues[i : i + most]) for i in range(0, len(residues), most)], None
    return "kept", [(0, residues[:most])], None


def test_buckets_follow_the_format(run: Run, tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    build(run, corpus, out, "--length-multiple", "8", task_bytes=60_000, partition_bytes=50_000)
    manifest = read_manifest(out)
    free = dict.fromkeys(manifest.splits, 0)
    for bucket in read_buckets(out):
        edges = bucket["cu_seqlens"]
        spans = [b - a for a, b in zip(edges[:-1], edges[1:], strict=True)]
        count = bucket["num_seqs"]
        assert (edges[0], edges[-1]) == (0, 2048)
        assert all(span > 0 for span in spans)
        assert all(span <= 512 and span % 8 == 0 for span in spans)
        assert len(spans) <= manifest.slots
        assert bucket["max_seqlen"] == max(spans[:count])
        assert bucket["num_tokens"] == sum(
            len(residues) + 2 for _, _, residues in sequences_in(bucket)
        )
        assert set(bucket["input_ids"][edges[count] :]) <= {1}
        free[bucket["split"]] += 2048 - edges[count]
    # The fewest possible buckets leave less than one bucket free. A packer may use one more bucket.
    assert all(tokens < 2 * 2048 for tokens in free.values()), free


def test_duplicates_are_never_in_two_splits(run: Run, tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    build(run, corpus, out, "--dedup", "none", task_bytes=60_000, partition_bytes=50_000)
    splits: dict[bytes, set[str]] = {}
    for row in read_records(out):
        if row["split"] is not None:
            splits.setdefault(row["hash"], set()).add(row["split"])
    assert all(len(found) == 1 for found in splits.values())
    assert len({split for found in splits.values() for split in found}) == 3


@pytest.mark.parametrize("compression", ["none", "zstd"] if LONG else ["none"])
def test_same_inputs_and_options_give_the_same_bytes_with_any_number_of_workers(
    run: Run,
    run_process: Run,
    tmp_path: Path,
    corpus: Path,
    compression: str,
) -> None:
    """The first build runs in this process, the others in worker processes."""
    sizes = {"task_bytes": 25_000, "partition_bytes": 30_000}
    build(run, corpus, tmp_path / "here", "--compression", compression, **sizes)
    expected = digest(tmp_path / "here")
    assert len(expected) > 10
    for workers in (2, 5):
        options = ("--workers", workers, "--compression", compression)
        build(run_process, corpus, tmp_path / str(workers), *options, **sizes)
        assert digest(tmp_path / str(workers)) == expected


def test_the_size_of_tasks_does_not_change_the_bytes(
    run: Run, tmp_path: Path, corpus: Path
) -> None:
    for name, task_bytes in (("whole", 1 << 30), ("cut", 7_001)):
        build(run, corpus, tmp_path / name, task_bytes=task_bytes, partition_bytes=50_000)
    assert digest(tmp_path / "whole") == digest(tmp_path / "cut")


@pytest.mark.parametrize("task_bytes", [25_000, 1 << 30])
def test_the_layout_of_spills_does_not_change_the_bytes(
    build_here: Callable[..., Manifest],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    corpus: Path,
    task_bytes: int,
) -> None:
    """A map task writes one spill. If the build has at least GROUPED_FROM partitions, the spill is
    grouped by partition. Otherwise, its blocks are in the order in which records were parsed.

    The inputs are so small that some partitions of a spill are empty.
    """
    monkeypatch.setattr("pipeline.build.build_plan.PARTITION_BYTES", 10_000)
    monkeypatch.setattr("pipeline.inputs.find.TASK_BYTES", task_bytes)
    monkeypatch.setattr("pipeline.inputs.find.PIECE_BYTES", PIECE_BYTES)
    monkeypatch.setattr("pipeline.inputs.find.FEWEST_TASKS", 1)
    build_here(corpus, tmp_path / "blocks", capacity=2048, max_seq_len=512)
    monkeypatch.setattr("pipeline.build.spill.spill_files.GROUPED_FROM", 4)
    build_here(corpus, tmp_path / "grouped", capacity=2048, max_seq_len=512)
    assert digest(tmp_path / "blocks") == digest(tmp_path / "grouped")


def test_the_folder_of_the_inputs_does_not_change_the_bytes(
    run: Run, tmp_path: Path, corpus: Path
) -> None:
    other = tmp_path / "elsewhere" / "deep"
    other.mkdir(parents=True)
    (other / corpus.name).write_bytes(corpus.read_bytes())
    build(run, corpus, tmp_path / "a")
    build(run, other / corpus.name, tmp_path / "b")
    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    manifest = (tmp_path / "a" / "manifest.json").read_text()
    assert str(tmp_path) not in manifest


def test_the_seed_changes_only_the_order(run: Run, tmp_path: Path, corpus: Path) -> None:
    def order(out: Path) -> list[tuple[int, int, str]]:
        return [sequence for bucket in read_buckets(out) for sequence in sequences_in(bucket)]

    build(run, corpus, tmp_path / "a")
    build(run, corpus, tmp_path / "b", "--seed", 1)
    assert order(tmp_path / "a") != order(tmp_path / "b")
    assert sorted(order(tmp_path / "a")) == sorted(order(tmp_path / "b"))


def test_the_order_is_shuffled(run: Run, tmp_path: Path, corpus: Path) -> None:
    build(run, corpus, tmp_path / "a", "--split", "train=1")
    ordinals = [
        ordinal for bucket in read_buckets(tmp_path / "a") for ordinal, _, _ in sequences_in(bucket)
    ]
    mean = (len(ordinals) - 1) / 2
    ranks = {ordinal: rank for rank, ordinal in enumerate(sorted(ordinals))}
    covariance = sum((i - mean) * (ranks[o] - mean) for i, o in enumerate(ordinals))
    variance = sum((i - mean) ** 2 for i in range(len(ordinals)))
    # the rank correlation is at most four standard deviations from 0
    assert abs(covariance / variance) < 4 / len(ordinals) ** 0.5


def test_sequences_in_a_bucket_are_not_sorted_by_length(
    run: Run, tmp_path: Path, corpus: Path
) -> None:
    build(run, corpus, tmp_path / "a")
    spans: list[list[int]] = [
        [len(residues) for _, _, residues in sequences_in(bucket)]
        for bucket in read_buckets(tmp_path / "a")
    ]
    assert sum(lengths == sorted(lengths, reverse=True) for lengths in spans) < len(spans) / 4


def test_the_same_build_is_not_repeated_and_a_changed_build_needs_overwrite(
    run: Run, tmp_path: Path, corpus: Path
) -> None:
    out = tmp_path / "out"
    build(run, corpus, out)
    before = digest(out)
    assert "already built" in build(run, corpus, out)
    refused = run("preprocess", corpus, "--out", out, *SMALL, "--seed", 1)
    assert refused.returncode == 2
    assert "--seed 0 → 1" in refused.stderr
    assert "--overwrite" in refused.stderr
    assert digest(out) == before
    text = corpus.read_bytes()
    corpus.write_bytes(text.replace(b"made7 ", b"made8 "))  # the file keeps its size
    changed = run("preprocess", corpus, "--out", out, *SMALL)
    assert changed.returncode == 1
    assert "inputs changed" in changed.stderr
    assert digest(out) == before
    build(run, corpus, out, "--overwrite")
    after = digest(out)
    assert after != before
    assert not set(after) & set(before) - {"manifest.json"}, (
        "no shard of the replaced dataset may remain"
    )


def test_changes_that_keep_the_modification_time_are_noticed(
    run: Run, tmp_path: Path, corpus: Path
) -> None:
    """A resumed build reads a changed input again, even if the input's size and modification time
    are unchanged."""
    out, sizes = tmp_path / "out", {"task_bytes": 25_000, "partition_bytes": 30_000}
    stat = corpus.stat()
    corpus_before = corpus.read_bytes()
    broken = tmp_path / "zz_broken.fasta"
    broken.write_bytes(b"no header\n")
    failed = run("preprocess", corpus, broken, "--out", out, *SMALL, **sizes)
    assert failed.returncode == 1
    broken.write_bytes(b">ok\nMKT\n")
    changed = corpus_before.replace(b">made3 ", b">made4 ")
    corpus.write_bytes(changed)
    os.utime(corpus, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    build(run, [corpus, broken], out, **sizes)
    build(run, [corpus, broken], tmp_path / "fresh", **sizes)
    assert digest(out) == digest(tmp_path / "fresh")


def summary_value(text: str, name: str) -> str:
    return next(
        line.split(maxsplit=1)[1] for line in text.splitlines() if line.strip().startswith(name)
    )


def test_summary_and_manifest_agree_with_the_records(
    run: Run, tmp_path: Path, corpus: Path, records: list[tuple[str, str]]
) -> None:
    out = tmp_path / "out"
    printed = build(run, corpus, out, task_bytes=60_000, partition_bytes=50_000)
    rows, buckets, manifest = read_records(out), read_buckets(out), read_manifest(out)
    by_status: dict[str, int] = {}
    for row in rows:
        by_status[row["status"]] = by_status.get(row["status"], 0) + 1
    assert {status: n for status, n in manifest.records_by_status.items() if n} == by_status
    letters: dict[str, int] = {}
    lengths: list[int] = []
    for bucket in buckets:
        for _, _, residues in sequences_in(bucket):
            lengths.append(len(residues) + 2)
            for letter in residues:
                letters[letter] = letters.get(letter, 0) + 1
    assert {
        ("?" if name == "<unk>" else name): n for name, n in manifest.residue_counts.items() if n
    } == letters
    assert manifest.residues_in == sum(len(as_read(text)) for _, text in records)
    assert manifest.residues_kept == sum(letters.values())
    for split, totals in manifest.splits.items():
        mine = [b for b in buckets if b["split"] == split]
        costs = [sum((len(r) + 2) ** 2 for _, _, r in sequences_in(b)) for b in mine]
        assert (totals.buckets, totals.tokens) == (len(mine), sum(b["num_tokens"] for b in mine))
        assert (totals.cost_sum, totals.cost_square_sum, totals.cost_max) == (
            sum(costs),
            sum(c * c for c in costs),
            max(costs),
        )
        assert histogram_total(manifest.histograms[split]["length"]) == totals.sequences
        assert all(
            histogram_total(manifest.histograms[split][name]) == totals.buckets
            for name in ("fill", "cost", "sequences")
        )
    waste = 1 - sum(lengths) / (512 * len(lengths))
    assert f"{100 * waste:.1f} %" in summary_value(printed, "padding avoided")
    assert summary_value(printed, "records in") == f"in  {len(records):,}"


def histogram_total(histogram: Any) -> int:
    return sum(histogram.counts)
