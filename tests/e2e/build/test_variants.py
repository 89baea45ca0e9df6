"""`--variants K`: K passes over the kept records, each shuffled, cropped and packed separately."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.build.arrays.sequence_hashes import variant_seed
from schemas.manifest import Manifest
from schemas.manifest_entries import VariantEntry
from tests.helpers.data.corpus import (
    LETTERS,
    as_read,
    digest,
    fasta,
    made_records,
    read_buckets,
    read_manifest,
    read_records,
    sequences_in,
)
from tests.helpers.data.damaged_datasets import deep, save_manifest, shallow
from tests.helpers.oracles.slow_windows import slow_start
from tests.helpers.processes.command_line import Run, use_few_small_tasks

MOST = 126
SHAPE: dict[str, Any] = {"capacity": 512, "max_seq_len": MOST + 2, "shard_mb": 1}
WORDS = ("--capacity", 512, "--max-seq-len", MOST + 2)
SPLIT = ("--split", "train=0.7,valid=0.2,test=0.1")
SIZES = {"task_bytes": 60_000, "partition_bytes": 60_000}
BuildHere = Callable[..., Manifest]


@pytest.fixture(autouse=True)
def _small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    use_few_small_tasks(monkeypatch)


@pytest.fixture(scope="module")
def records() -> list[tuple[str, str]]:
    return made_records(400, longest=4 * MOST)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, records: list[tuple[str, str]]) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "made.fasta"
    path.write_bytes(fasta(records))
    return path


def neighbours(buckets: list[dict[str, Any]]) -> set[tuple[int, ...]]:
    return {tuple(sorted(bucket["record"])) for bucket in buckets}


def pieces(buckets: list[dict[str, Any]]) -> Counter[tuple[str, int, int, str]]:
    """Return how often each (split, record, start, residues) occurs."""
    return Counter(
        (bucket["split"], *sequence) for bucket in buckets for sequence in sequences_in(bucket)
    )


@pytest.mark.parametrize("runs", ["one", "many"])
@pytest.mark.parametrize("long", ["truncate", "split", "crop"])
def test_each_variant_has_each_kept_record_once_with_other_neighbours(
    build_here: BuildHere,
    monkeypatch: pytest.MonkeyPatch,
    records: list[tuple[str, str]],
    corpus: Path,
    tmp_path: Path,
    long: str,
    runs: str,
) -> None:
    """With `many`, a partition is read in several runs, and rests are packed in several levels."""
    if runs == "many":
        monkeypatch.setattr("pipeline.build.spill.spilled_partition.WINDOW_BYTES", 3_000)
        monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.WHOLE_BYTES", 5_000)
        monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.RUN_BYTES", 4_000)
        monkeypatch.setattr("pipeline.build.stages.RESTS_TOGETHER", 2)
    out = tmp_path / "out"
    build_here(corpus, out, variants=3, long=long, seed=7, split=SPLIT[1], **SHAPE)
    rows = read_records(out)
    kept = [row["ordinal"] for row in rows if row["status"] == "kept"]
    variants = [read_buckets(out, variant) for variant in range(3)]
    for number, buckets in enumerate(variants):
        found = pieces(buckets)
        assert max(found.values()) == 1
        firsts = [ordinal for _, ordinal, start, _ in found if start == 0 or long == "crop"]
        assert sorted(firsts) == kept
        for split, ordinal, start, residues in found:
            whole = as_read(records[ordinal][1])
            assert split == rows[ordinal]["split"]
            assert residues == whole[start : start + MOST]
            if long == "crop":
                seed = variant_seed(7, number)
                size = len(whole)
                assert start == slow_start(rows[ordinal]["hash"], ordinal, size, MOST, seed=seed)
        if long != "crop":
            assert found == pieces(variants[0])
    together = [neighbours(buckets) for buckets in variants]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert len(together[one] & together[other]) < len(together[one]) / 4
    assert shallow(out) == deep(out) == []


def test_variants_have_the_same_slot_count_and_totals_that_match_their_buckets(
    build_here: BuildHere, corpus: Path, tmp_path: Path
) -> None:
    manifest = build_here(corpus, tmp_path / "out", variants=3, **SHAPE)
    most = 0
    for variant in range(3):
        buckets = read_buckets(tmp_path / "out", variant)
        for split, totals in manifest.splits_of(variant).items():
            mine = [bucket for bucket in buckets if bucket["split"] == split]
            assert totals.buckets == len(mine)
            assert totals.sequences == sum(bucket["num_seqs"] for bucket in mine)
            assert totals.tokens == sum(bucket["num_tokens"] for bucket in mine)
        assert all(len(bucket["input_ids"]) == manifest.capacity for bucket in buckets)
        most = max(most, *(len(bucket["cu_seqlens"]) - 1 for bucket in buckets))
    assert most <= manifest.slots


def test_bytes_of_a_variant_do_not_depend_on_workers_or_on_the_number_of_variants(
    run: Run, run_process: Run, corpus: Path, tmp_path: Path
) -> None:
    found = {}
    for name, runner, words in (
        ("one", run, ("--variants", 1)),
        ("three", run, ("--variants", 3)),
        ("two workers", run_process, ("--variants", 3, "--workers", 2)),
    ):
        out = tmp_path / name
        arguments = ("--out", out, "--long", "crop", *WORDS, *words)
        done = runner("preprocess", corpus, *arguments, **SIZES)
        assert done.returncode == 0, done.stderr
        found[name] = digest(out)
    assert found["three"] == found["two workers"]
    del found["one"]["manifest.json"]
    assert found["one"].items() < found["three"].items()


@pytest.mark.parametrize("long", ["truncate", "crop"])
def test_variants_added_later_give_the_bytes_of_one_build(
    run: Run, corpus: Path, tmp_path: Path, long: str
) -> None:
    options = ("--long", long, *WORDS, *SPLIT)
    for out, numbers in ((tmp_path / "grown", (1, 2, 4)), (tmp_path / "whole", (4,))):
        for variants in numbers:
            before = {path: path.stat().st_mtime_ns for path in out.rglob("*.arrow")}
            done = run("preprocess", corpus, "--out", out, *options, "--variants", variants)
            assert done.returncode == 0, done.stderr
            after = {path: path.stat().st_mtime_ns for path in out.rglob("*.arrow")}
            assert before.items() <= after.items()  # the shards of earlier variants are reused
    assert digest(tmp_path / "grown") == digest(tmp_path / "whole")
    done = run("preprocess", corpus, "--out", out, *options, "--variants", 4)
    assert "nothing to do" in done.stdout
    done = run("preprocess", corpus, "--out", out, *options)
    assert done.returncode != 0
    assert "has 4 variants, and --variants is 1: give --variants 4" in done.stderr


def test_variants_are_added_only_to_a_dataset_of_the_same_inputs(run: Run, tmp_path: Path) -> None:
    made = tmp_path / "made.fasta"
    made.write_bytes(fasta(made_records(50, longest=300)))
    assert run("preprocess", made, "--out", tmp_path / "out").returncode == 0
    before = digest(tmp_path / "out")
    content = made.read_bytes()
    made.write_bytes(content.replace(b"L", b"V", 1))
    done = run("preprocess", made, "--out", tmp_path / "out", "--variants", 2)
    assert done.returncode != 0
    assert "the inputs changed since this dataset was built" in done.stderr
    assert digest(tmp_path / "out") == before


def test_a_dry_run_says_which_variants_a_build_would_add(
    run: Run, sample: Path, tmp_path: Path
) -> None:
    words = ("preprocess", sample, "--out", tmp_path / "out")
    assert "(4 variants of 0.6 MB)" in run(*words, "--variants", 4, "--dry-run").stdout
    assert run(*words, "--variants", 2).returncode == 0
    for variants, said in (
        (2, "already holds this dataset"),
        (3, "the dataset has 2 variants; this build adds 1 more, so that it has 3"),
        (5, "the dataset has 2 variants; this build adds 3 more, so that it has 5"),
        (5, "(3 variants of 0.6 MB)"),
    ):
        assert said in run(*words, "--variants", variants, "--dry-run").stdout
    assert "would read" not in run(*words, "--variants", 2, "--dry-run").stdout
    replaced = run(*words, "--dry-run", "--overwrite").stdout
    assert f"would replace the dataset in {tmp_path / 'out'}" in replaced
    done = run(*words, "--variants", 1, "--dry-run")
    assert done.returncode == 2
    assert "has 2 variants, and --variants is 1: give --variants 2" in done.stderr


def test_a_dry_run_prints_one_json_object_on_request(
    run: Run, sample: Path, tmp_path: Path
) -> None:
    words = ("preprocess", sample, "--out", tmp_path / "out", "--log-json", "--dry-run")
    new = json.loads(run(*words).stdout)
    assert new["event"] == "dry-run"
    assert not new["exists"]
    assert [source["url"] for source in new["inputs"]] == [str(sample)]
    assert new["input_bytes"] == sample.stat().st_size
    assert new["new_variants"] == 1
    assert run(*words[:-1]).returncode == 0
    known = json.loads(run(*words).stdout)
    assert (known["exists"], known["new_variants"], known["dataset_bytes"]) == (True, 0, 0)
    assert json.loads(run(*words, "--variants", 3).stdout)["new_variants"] == 2
    assert json.loads(run(*words, "--overwrite").stdout)["replaces"]


def test_a_task_list_adds_variants_to_a_dataset(run: Run, corpus: Path, tmp_path: Path) -> None:
    whole, grown = tmp_path / "whole", tmp_path / "grown"
    assert run("preprocess", corpus, "--out", whole, *WORDS, "--variants", 3).returncode == 0
    for variants in (1, 3):
        done = run("plan-tasks", corpus, "--out", grown, *WORDS, "--variants", variants)
        assert done.returncode == 0, done.stderr
        for stage in ("map", "reduce"):
            every = ("--stage", stage, "--index", 0, "--array-size", 1)
            done = run("run-task", grown, *every)
            assert done.returncode == 0, done.stderr
        done = run("commit", grown)
        assert done.returncode == 0, done.stderr
        assert read_manifest(grown).variants == variants
    assert digest(grown) == digest(whole)


def test_windows_of_all_variants_start_uniformly_and_show_the_expected_share_of_residues(
    build_here: BuildHere, tmp_path: Path
) -> None:
    """Crop 200 records of 500 residues in 24 variants. A window of 126 residues has 375 possible
    starts.

    The limits are six standard deviations. The seed is fixed, so the result does not vary.
    """
    count, size, variants = 200, 500, 24
    rng = np.random.default_rng(0)
    corpus = tmp_path / "long.fasta"
    records = [(f"r{i}", "".join(rng.choice(list(LETTERS), size))) for i in range(count)]
    corpus.write_bytes(fasta(records))
    build_here(corpus, tmp_path / "out", variants=variants, long="crop", **SHAPE)
    starts = np.zeros((variants, count), dtype=np.int64)
    for variant in range(variants):
        for bucket in read_buckets(tmp_path / "out", variant):
            starts[variant, bucket["record"]] = bucket["start"]
    places = size - MOST + 1
    assert starts.min() == 0
    assert starts.max() == places - 1
    deciles = np.bincount((starts * 10 // places).ravel(), minlength=10)
    expected = np.bincount(np.arange(places) * 10 // places, minlength=10) / places
    deviation = np.sqrt(starts.size * expected * (1 - expected))
    assert (abs(deciles - starts.size * expected) < 6 * deviation).all()
    pairs = [np.corrcoef(starts[a], starts[b])[0, 1] for a in range(variants) for b in range(a)]
    assert max(map(abs, pairs)) < 6 / count**0.5
    residue = np.arange(size)
    shows = np.minimum(np.minimum(residue + 1, size - residue), min(MOST, places)) / places
    # for each place: expected share of the records that have a window there in some variant
    share = 1 - (1 - shows) ** variants
    inside = (starts[:, :, None] <= residue) & (residue < starts[:, :, None] + MOST)
    shown = inside.any(axis=0).sum(axis=0)
    assert (abs(shown - count * share) < 6 * np.sqrt(count * share * (1 - share)) + 1).all()


def test_the_deep_check_finds_a_variant_that_lacks_or_repeats_records(
    build_here: BuildHere, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    manifest = build_here(corpus, out, variants=2, long="split", **SHAPE)
    shards = dict(manifest.shards_of(1))
    first, *others = shards["train"]
    totals = manifest.splits_of(1)
    train = totals["train"]

    def changed(entries: Any, factor: int) -> VariantEntry:
        buckets = train.buckets + factor * first.buckets
        split = replace(train, buckets=buckets, tokens=train.tokens + factor * first.tokens)
        return VariantEntry.of({**totals, "train": split}, {**shards, "train": entries})

    assert others
    save_manifest(out, replace(manifest, more_variants=(changed(tuple(others), -1),)))
    problems = deep(out)
    assert any(
        "its first sequence is not in buckets of variant 1 exactly once" in p for p in problems
    )
    save_manifest(out, replace(manifest, more_variants=(changed((first, first, *others), 1),)))
    assert any("variant 1 has first sequences of" in problem for problem in deep(out))
