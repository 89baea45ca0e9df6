"""`--long crop`: the buckets hold one random window of each kept record that has more than
max_seq_len - 2 residues. Shorter kept records are in the buckets as a whole.

A run is a group of consecutive records that a reduce task reads at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.build.verify.verify_dataset import verify_dataset
from schemas.manifest import Manifest
from schemas.vocabulary import ESM2
from tests.helpers.data.corpus import (
    LETTERS,
    digest,
    fasta,
    made_records,
    read_buckets,
    read_records,
    sequences_in,
)
from tests.helpers.oracles.slow_windows import slow_start
from tests.helpers.processes.command_line import InThisProcess, Run, use_few_small_tasks

MOST = 126
SHAPE: dict[str, Any] = {"capacity": 512, "max_seq_len": MOST + 2, "long": "crop"}
BuildHere = Callable[..., Manifest]


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    use_few_small_tasks(monkeypatch)
    monkeypatch.setattr("pipeline.build.verify.verify_dataset.ProcessExecutor", InThisProcess)


@pytest.fixture
def records() -> list[tuple[str, str]]:
    """Return records. Two of them are equal, and two differ only in their last residue."""
    rng = np.random.default_rng(0)
    begin = "".join(rng.choice(list(LETTERS), 2 * MOST))
    twins = [("twin0", begin + "A"), ("twin1", begin + "C"), ("copy", begin + "A")]
    exact = [(f"exact{i}", "".join(rng.choice(list(LETTERS), MOST + i))) for i in range(3)]
    return [*twins, *exact, *made_records(300, longest=4 * MOST)]


@pytest.fixture
def corpus(tmp_path: Path, records: list[tuple[str, str]]) -> Path:
    path = tmp_path / "made.fasta"
    path.write_bytes(fasta(records))
    return path


@pytest.mark.parametrize("runs", ["one", "many"])
@pytest.mark.parametrize("dedup", ["exact", "none"])
def test_each_kept_record_has_one_window_in_a_bucket_and_the_seed_decides_where_it_begins(
    build_here: BuildHere,
    monkeypatch: pytest.MonkeyPatch,
    records: list[tuple[str, str]],
    corpus: Path,
    tmp_path: Path,
    dedup: str,
    runs: str,
) -> None:
    """With `many`, a partition is read in several runs."""
    if runs == "many":
        monkeypatch.setattr("pipeline.build.spill.spilled_partition.WINDOW_BYTES", 3_000)
        monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.WHOLE_BYTES", 5_000)
        monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.RUN_BYTES", 4_000)
    out = tmp_path / "out"
    build_here(corpus, out, dedup=dedup, seed=7, **SHAPE)
    found = [found for bucket in read_buckets(out) for found in sequences_in(bucket)]
    rows = read_records(out)
    assert sorted(ordinal for ordinal, _, _ in found) == [
        row["ordinal"] for row in rows if row["status"] == "kept"
    ]
    for ordinal, start, residues in found:
        whole = "".join(c if c in ESM2.tokens else "?" for c in records[ordinal][1].upper())
        assert start == slow_start(rows[ordinal]["hash"], ordinal, len(whole), MOST, seed=7)
        assert residues == whole[start : start + MOST]
    assert len({start for _, start, _ in found}) > 60
    duplicates = [row["id"] for row in rows if row["status"] == "duplicate"]
    assert ("copy" in duplicates) == (dedup == "exact")
    assert not {"twin0", "twin1"} & set(duplicates)
    assert verify_dataset(str(out), deep=True) == []


def test_bytes_do_not_depend_on_workers_and_another_seed_gives_other_windows(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    words = ("--capacity", 512, "--max-seq-len", MOST + 2, "--long", "crop")
    digests, starts = [], []
    for name, more in {
        "one": ("--workers", 1),
        "two": ("--workers", 2),
        "other": ("--seed", 1),
    }.items():
        done = run("preprocess", corpus, "--out", tmp_path / name, *words, *more)
        assert done.returncode == 0, done.stderr
        digests.append(digest(tmp_path / name))
        buckets = read_buckets(tmp_path / name)
        starts.append({o: start for b in buckets for o, start, _ in sequences_in(b)})
    assert "residues left out" in done.stderr + done.stdout
    assert digests[0] == digests[1]
    assert sum(starts[0][ordinal] != starts[2][ordinal] for ordinal in starts[0]) > 60
