"""Every number of a report equals the result of a slow, simple script that uses Biopython.

By default, the tests use only the first records of the real corpora. With THDPACK_LONG, they use
all records.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from pipeline.report.gather.composition import STANDARD
from schemas.manifest import Manifest
from tests.conftest import Run
from tests.helpers.data.corpus import fasta, made_records, read_manifest, with_headers
from tests.helpers.data.real_corpora import corpus_text
from tests.helpers.reports import slow_packing, slow_report
from tests.helpers.reports.slow_packing import binned
from tests.helpers.reports.stats import stats

CORPORA = ["yeast_proteome.fasta.gz", "uniref90_10000.fasta.gz", "one_line_20000.fasta.gz"]
DEFAULTS = {"min_residues": 1, "on_invalid": "unk", "dedup": "exact", "long": "truncate"}


def text_of(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def read_slowly(inputs: list[Path], manifest: Manifest) -> list[slow_report.Record]:
    """Return the records of the inputs, each with its expected status in the build."""
    texts = {path.name: text_of(path) for path in inputs}
    return slow_report.read(inputs, texts, dict(manifest.options))


def build(run: Run, inputs: list[Path], out: Path, *options: str) -> Manifest:
    done = run("preprocess", *inputs, "--out", out, *options)
    assert done.returncode == 0, done.stderr
    return read_manifest(out)


def check_dataset(
    run: Run,
    inputs: list[Path],
    out: Path,
    *options: str,
) -> list[slow_report.Record]:
    """Build a dataset, compare its report with recomputed numbers, and return the records."""
    manifest = build(run, inputs, out, *options)
    report = stats(run, out)
    chosen = dict(manifest.options)
    records = read_slowly(inputs, manifest)
    assert report["kind"] == "dataset"
    assert report["manifest_digest"] == manifest.digest
    assert (report["build"], report["parent"], report["generation"], report["slots"]) == (
        manifest.build,
        None,
        1,
        manifest.slots,
    )
    assert {**report["settings"], "vocabulary": "esm2"} == {
        name: chosen.get(name, "esm2") for name in report["settings"]
    }
    assert report["prediction"] is None
    check_counts(report, slow_report.expected(records, inputs, chosen, over="buckets"), records)
    check_splits(report["splits"], slow_packing.splits(out))
    check_waste(
        report, slow_packing.waste(records, chosen), slow_packing.splits(out), manifest.capacity
    )
    return records


def check_counts(
    report: dict[str, Any], expected: dict[str, Any], records: list[slow_report.Record]
) -> None:
    histogram = report["lengths"].pop("histogram")
    assert (
        binned([record.residues for record in records], histogram["edges"]) == histogram["counts"]
    )
    letters = report["composition"].pop("letters")
    counts = expected["composition"].pop("letters")
    total = sum(counts.values())
    assert {letter["letter"]: letter["count"] for letter in letters} == counts
    assert [letter["letter"] for letter in letters[:20]] == list(STANDARD)
    for letter in letters:
        assert letter["share"] == pytest.approx(letter["count"] / total, rel=1e-12)
        assert letter["kind"] == (
            "standard"
            if letter["letter"] in STANDARD
            else "unknown"
            if letter["letter"] == "<unk>"
            else "rare"
        )
    for name, value in expected.items():
        assert report[name] == approximately(value), name


def approximately(value: Any) -> Any:
    """Return a value that equals `value` up to rounding of floats."""
    if isinstance(value, float):
        return pytest.approx(value, rel=1e-12)
    if isinstance(value, dict):
        return {key: approximately(inner) for key, inner in value.items()}
    return [approximately(inner) for inner in value] if isinstance(value, list) else value


def check_splits(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    assert [split["name"] for split in found] == [split["name"] for split in expected]
    for split, true in zip(found, expected, strict=True):
        for name, value in true.items():
            if name.endswith("_counts"):
                assert binned(value, split[name]["edges"]) == split[name]["counts"], name
            else:
                assert split[name] == (
                    pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
                ), name
        assert set(split) == set(true)


def check_waste(
    report: dict[str, Any],
    expected: dict[str, dict[str, Any]],
    splits: list[dict[str, Any]],
    capacity: int,
) -> None:
    found = {way["name"]: way for way in report["waste"]}
    assert list(found) == ["bshd", "sorted", "next-fit", "packed"]
    costs = [cost for split in splits for cost in split["cost_counts"]]
    buckets = len(costs)
    [train] = [split for split in splits if split["name"] == "train"]
    spread, peak = slow_packing._spread(train["cost_counts"] or costs)
    share = 1 - report["tokens"] / (buckets * capacity)
    packed = {
        "batches": buckets,
        "places": buckets * capacity,
        "waste": share,
        "spread": spread,
        "peak": peak,
        "cost_counts": costs,
    }
    for name, true in {**expected, "packed": packed}.items():
        way = found[name]
        for key, value in true.items():
            if key == "cost_counts" and value is not None:
                assert binned(value, way[key]["edges"]) == way[key]["counts"], name
            else:
                assert way[key] == (
                    pytest.approx(value, rel=1e-9, abs=1e-12) if isinstance(value, float) else value
                ), (name, key)


def check_sequences(
    run: Run,
    inputs: list[Path],
    built: Path,
    records: list[slow_report.Record],
) -> None:
    """Check the report of FASTA files. Compare its forecast with the dataset built from them."""
    manifest = read_manifest(built)
    report = stats(run, *inputs)
    chosen = dict(manifest.options)
    check_counts(report, slow_report.expected(records, inputs, chosen, over="input"), records)
    truth = slow_packing.splits(built)
    check_forecast(report, truth, built, manifest)
    ways = slow_packing.waste(records, chosen)
    assert [way["predicted"] for way in report["waste"]] == [False, False, False, True]
    check_waste(report, ways, truth, manifest.capacity)


def check_forecast(
    report: dict[str, Any], truth: list[dict[str, Any]], built: Path, manifest: Manifest
) -> None:
    for split, true in zip(report["splits"], truth, strict=True):
        assert split.pop("bytes") == pytest.approx(true.pop("bytes"), rel=0.01)
    check_splits(report["splits"], truth)
    forecast = report["prediction"]
    buckets = sum(true["buckets"] for true in truth)
    assert forecast["buckets"] == buckets
    assert forecast["fill"] == pytest.approx(
        report["tokens"] / (buckets * manifest.capacity), rel=1e-12
    )
    assert forecast["shards"] == sum(true["shards"] for true in truth)
    assert forecast["slots"] == manifest.slots
    assert forecast["bytes"] == pytest.approx(
        sum(entry.bytes for entry in manifest.files()), rel=0.01
    )


@pytest.mark.parametrize("corpus", CORPORA)
def test_every_number_in_the_reports_of_a_dataset_and_its_fasta_agrees_with_biopython(
    run: Run, shared: Path, tmp_path: Path, corpus: str
) -> None:
    path = tmp_path / corpus
    path.write_bytes(gzip.compress(corpus_text(shared / corpus), compresslevel=1))
    records = check_dataset(run, [path], tmp_path / "dataset")
    check_sequences(run, [path], tmp_path / "dataset", records)


def test_every_number_of_the_sample_agrees_with_biopython(
    run: Run, sample: Path, tmp_path: Path
) -> None:
    records = check_dataset(run, [sample], tmp_path / "dataset")
    check_sequences(run, [sample], tmp_path / "dataset", records)


@pytest.mark.parametrize(
    "options",
    [
        ("--long", "split"),
        ("--long", "crop", "--seed", "3"),
        ("--long", "drop", "--min-residues", "30", "--on-invalid", "skip"),
        (
            "--dedup",
            "none",
            "--length-multiple",
            "16",
            "--split",
            "train=0.6,valid=0.3,test=0.1",
            "--seed",
            "7",
        ),
        ("--split", "valid=1", "--packer", "next-fit", "--max-seqs", "5"),
    ],
    ids=["split", "windows", "left-out", "padded", "all-valid"],
)
def test_every_number_agrees_with_biopython_for_several_inputs_and_various_options(
    run: Run, tmp_path: Path, options: tuple[str, ...]
) -> None:
    inputs = []
    for i, name in enumerate(("b <script>.fasta", "a.fasta", "nothing new.fasta")):
        path = tmp_path / "in" / name
        path.parent.mkdir(exist_ok=True)
        records = [*made_records(150, seed=i % 2), *made_records(40, seed=2)]
        path.write_bytes(fasta(with_headers(records)))
        inputs.append(path)
    check_dataset(
        run, inputs, tmp_path / "dataset", "--capacity", "1024", "--max-seq-len", "256", *options
    )
