"""`thdpack stats` of damaged and unfinished datasets, and its option `--read-tokens`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.manifest import Manifest
from tests.helpers.data.corpus import read_manifest
from tests.helpers.processes.command_line import Run, preprocess
from tests.helpers.reports.stats import rewritten

CLEAR = re.compile(r"thdpack stats: [^\n]+\n")


def truncated(dataset: Path) -> str:
    entry = dataset / read_manifest(dataset).records[0].name
    os.truncate(entry, entry.stat().st_size - 100)
    return entry.name


def flipped(dataset: Path) -> str:
    entry = dataset / read_manifest(dataset).records[1].name
    data = bytearray(entry.read_bytes())
    data[len(data) // 3] ^= 1
    entry.write_bytes(data)
    return entry.name


def without_records(dataset: Path) -> str:
    entry = dataset / read_manifest(dataset).records[0].name
    entry.unlink()
    return entry.name


def without_a_shard(dataset: Path) -> str:
    entry = dataset / read_manifest(dataset).shards["train"][0].name
    entry.unlink()
    return entry.name


def with_a_short_shard(dataset: Path) -> str:
    entry = dataset / read_manifest(dataset).shards["train"][0].name
    os.truncate(entry, 100)
    return entry.name


def edited(dataset: Path) -> str:
    path = dataset / "manifest.json"
    path.write_text(path.read_text().replace('"residues_in": ', '"residues_in": 1', 1))
    return "digest"


def unfinished(dataset: Path) -> str:
    (dataset / "manifest.json").unlink()
    return "did not finish"


def of_other_counts(dataset: Path) -> str:
    rewritten(
        dataset,
        lambda manifest: replace(
            manifest, records_by_status={**manifest.records_by_status, "kept": 7}
        ),
    )
    return "the numbers of records and residues in records/ differ from the manifest"


def of_other_tokens(dataset: Path) -> str:
    def change(manifest: Manifest) -> Manifest:
        train = manifest.splits["train"]
        return replace(
            manifest, splits={**manifest.splits, "train": replace(train, tokens=train.tokens + 1)}
        )

    rewritten(dataset, change)
    return "the manifest says"


DAMAGES = [
    truncated,
    flipped,
    without_records,
    without_a_shard,
    with_a_short_shard,
    edited,
    unfinished,
    of_other_counts,
    of_other_tokens,
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_dataset_gives_one_error_line_and_no_partial_report(
    run: Run, dataset: Path, tmp_path: Path, damage: Callable[[Path], str]
) -> None:
    named = damage(dataset)
    done = run("stats", dataset, "--csv", tmp_path / "csv")
    assert (done.returncode, done.stdout) == (1, "")
    assert CLEAR.fullmatch(done.stderr)
    assert named in done.stderr
    assert not (tmp_path / "csv").exists()


def test_the_option_read_tokens_finds_letter_counts_that_differ_from_the_shards(
    run: Run, dataset: Path, sample: Path, tmp_path: Path
) -> None:
    assert (
        run("stats", dataset, "--read-tokens", "--json").stdout
        == run("stats", dataset, "--json").stdout
    )
    padded = preprocess(
        sample,
        tmp_path / "padded",
        "--length-multiple",
        "32",
        "--long",
        "split",
        "--compression",
        "zstd",
    )
    assert run("stats", padded, "--read-tokens").returncode == 0
    residues = dict(read_manifest(dataset).residue_counts)
    rewritten(
        dataset,
        lambda manifest: replace(
            manifest, residue_counts={**residues, "L": residues["L"] + 1, "A": residues["A"] - 1}
        ),
    )
    assert run("stats", dataset).returncode == 0
    done = run("stats", dataset, "--read-tokens")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"the shards hold {residues['L']:,} tokens L" in done.stderr


def test_the_option_read_tokens_finds_a_wrong_cost_in_the_manifest(run: Run, dataset: Path) -> None:
    def change(manifest: Manifest) -> Manifest:
        return replace(
            manifest,
            splits={**manifest.splits, "train": replace(manifest.splits["train"], cost_max=5)},
        )

    rewritten(dataset, change)
    done = run("stats", dataset, "--read-tokens")
    assert (done.returncode, done.stdout) == (1, "")
    assert "cost_max" in done.stderr


def test_a_killed_build_is_reported_as_unfinished(run: Run, tmp_path: Path) -> None:
    (tmp_path / "out" / ".build").mkdir(parents=True)
    done = run("stats", tmp_path / "out")
    assert done.returncode == 1
    assert "its build did not finish" in done.stderr
