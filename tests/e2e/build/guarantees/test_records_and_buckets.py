"""Every record has one status, every kept residue is in one bucket, and the manifest agrees.

The reader in these tests shares no code with the pipeline.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.data.corpus import (
    as_read,
    read_buckets,
    read_manifest,
    read_records,
    sequences_in,
)
from tests.helpers.data.small_builds import build
from tests.helpers.processes.command_line import Run


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
