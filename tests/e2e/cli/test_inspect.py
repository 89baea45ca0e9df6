"""`thdpack inspect`: damaged datasets, and datasets with several variants."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from schemas.text.phrases import REBUILD
from tests.conftest import Run, preprocess
from tests.helpers.data.corpus import read_manifest
from tests.helpers.data.damage import DAMAGES


@pytest.fixture(scope="module")
def cropped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a dataset of three variants. Only the record `long` is cropped."""
    folder = tmp_path_factory.mktemp("cropped")
    text = "".join(f">short{i}\n{'ACDEFGHIKL'[i:]}\n" for i in range(9))
    (folder / "in.fasta").write_text(f"{text}>long\n{'ACDEFGHIKLMNPQRSTVWY' * 10}\n")
    shape = ("--capacity", "64", "--max-seq-len", "32", "--split", "train=1")
    words = (*shape, "--long", "crop", "--variants", "3")
    return preprocess(folder / "in.fasta", folder / "d", *words)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("train/*.arrow", ("--bucket", "0")),
        ("records/*.parquet", ("--bucket", "0")),
        ("records/*.parquet", ("--record", "long")),
        ("train/*.arrow", ("--record", "long")),
    ],
)
def test_inspect_reports_a_damaged_file_in_one_line_with_the_remedy(
    run: Run, cropped: Path, tmp_path: Path, damage: str, pattern: str, words: tuple[str, str]
) -> None:
    dataset = tmp_path / "d"
    shutil.copytree(cropped, dataset)
    spoil: Callable[[Path], object] = DAMAGES[damage][0]
    spoiled = next(
        dataset / entry.name
        for entry in read_manifest(dataset).files()
        if (dataset / entry.name).match(pattern)
    )
    spoil(spoiled)
    done = run("inspect", dataset, *words)
    assert done.returncode == 1
    assert done.stderr.startswith(f"thdpack inspect: {spoiled}: ")
    assert DAMAGES[damage][1] in done.stderr
    assert done.stderr.endswith(f"; {REBUILD}\n")
    assert done.stderr.count("\n") == 1


def test_inspect_shows_where_the_window_of_a_cropped_record_starts(run: Run, cropped: Path) -> None:
    manifest = read_manifest(cropped)
    starts = [
        start
        for entry in manifest.shards["train"]
        for row in pa.ipc.open_file(cropped / entry.name).read_all().to_pylist()
        for record, start in zip(row["record"], row["start"], strict=True)
        if record == 9
    ]
    said = run("inspect", cropped, "--record", "long").stdout
    assert f"kept, 30 residues from residue {starts[0]} (counted from 0): train, " in said
    assert re.search(r"row \d+, variant 0$", said, re.MULTILINE)


def test_inspect_counts_shards_and_buckets_of_all_variants(run: Run, cropped: Path) -> None:
    manifest = read_manifest(cropped)
    said = run("inspect", cropped).stdout
    shards = sum(len(manifest.shards_of(variant)["train"]) for variant in range(3))
    assert re.search(rf"train shards  {shards} in 3 variants, ", said)
    assert "--variants 3" in said
    buckets = [manifest.splits_of(variant)["train"].buckets for variant in range(3)]
    few, most = min(buckets), max(buckets)
    each = f"{few}" if few == most else f"{few} to {most}"
    error = run("inspect", cropped, "--bucket", "999").stderr
    assert f"it has {sum(buckets)} ({each} in each of 3 variants), counted from 0" in error


def test_a_path_below_a_file_is_reported_as_missing_or_as_not_writable(
    run: Run, sample: Path, tmp_path: Path
) -> None:
    below = tmp_path / "file" / "x"
    below.parent.write_text(">a\nMKV\n")
    assert run("inspect", below).stderr.startswith(
        f"thdpack inspect: {below}: there is no such folder: "
    )
    done = run("preprocess", sample, "--out", below)
    said = f"thdpack preprocess: cannot write to {below}: Not a directory; choose another --out\n"
    assert done.stderr == said


def test_inspect_prints_the_digest_and_the_generation(cropped: Path, run: Run) -> None:
    lines = [line.split() for line in run("inspect", cropped).stdout.splitlines()]
    assert ["digest", read_manifest(cropped).digest] in lines
    assert ["generation", "1"] in lines


def test_a_record_is_found_by_its_ordinal_unless_another_record_has_this_id(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "x.fasta").write_text(">a\nMKTAY\n>0\nMKVAY\n")
    dataset = preprocess(tmp_path / "x.fasta", tmp_path / "d")
    assert run("inspect", dataset, "--record", "1").stdout.startswith("0: record 1, ")
    assert run("inspect", dataset, "--record", "0").stdout.startswith("0: record 1, ")
    for name in ("2", "9" * 30):
        done = run("inspect", dataset, "--record", name)
        assert done.returncode == 2
        assert f"or ordinal '{name}'; an id is" in done.stderr


@pytest.mark.parametrize("name", ["p69906", "P69905.1", "HBA_HUMN", "sp|P69905|HBA_HUMA"])
def test_the_error_for_a_record_that_is_missing_names_a_similar_one(
    run: Run, tmp_path: Path, name: str
) -> None:
    (tmp_path / "x.fasta").write_text(">sp|P69905|HBA_HUMAN Hemoglobin\nMKTAY\n>\nMKVAY\n")
    dataset = preprocess(tmp_path / "x.fasta", tmp_path / "d")
    done = run("inspect", dataset, "--record", name)
    assert done.returncode == 2
    assert re.search(r"did you mean (P69905|HBA_HUMAN|sp\|P69905\|HBA_HUMAN)\?$", done.stderr)
