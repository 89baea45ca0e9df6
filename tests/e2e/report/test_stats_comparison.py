"""`thdpack stats A B`: the comparison of two datasets, or of a dataset and a FASTA file."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.helpers.data.corpus import as_read, fasta, made_records, read_manifest, read_records
from tests.helpers.data.grown import append
from tests.helpers.processes.command_line import Run, preprocess
from tests.helpers.reports.stats import stats


def test_a_comparison_lists_changes_and_counts_common_sequences(
    run: Run, built: Path, tmp_path: Path
) -> None:
    newer = [*made_records(120, longest=300), *made_records(80, seed=9, longest=300)]
    (tmp_path / "newer.fasta").write_bytes(fasta(newer))
    other = preprocess(
        tmp_path / "newer.fasta",
        tmp_path / "other",
        "--capacity",
        "1024",
        "--max-seq-len",
        "256",
        "--split",
        "valid=0.1,test=0.05",
    )
    found = stats(run, built, other)
    assert (found["kind"], found["related"]) == ("comparison", "none")
    assert (found["a"], found["b"]) == (stats(run, built), stats(run, other))
    changes = {change["name"]: change for change in found["changes"]}
    assert changes["records"] == {"name": "records", "a": 500, "b": 200, "change": -0.6}
    assert changes["train_tokens"]["b"] == read_manifest(other).splits["train"].tokens
    lines = run("stats", built, other).stdout.splitlines()
    for name in ("waste_sorted", "train_fill", "valid_fill"):  # shares: 100 × (b − a)
        difference = 100 * (changes[name]["b"] - changes[name]["a"])
        assert abs(difference) > 0.1
        shown = f"{difference:+.1f}\u00a0percentage points".replace("-", "−")
        (line,) = (line for line in lines if line.startswith(name.replace("_", " ")))
        assert line.endswith(shown)
    (line,) = (line for line in lines if line.startswith("records "))
    assert line.rstrip().endswith("−60.0\u00a0%")
    assert found["settings"] == [{"name": "capacity", "a": "512", "b": "1024"}]
    a, b = ({row["hash"] for row in read_records(path)} for path in (built, other))
    residues = {row["hash"]: row["residues"] for row in read_records(other)}
    overlap = {
        "only_a": len(a - b),
        "only_b": len(b - a),
        "both": len(a & b),
        "residues_both": sum(residues[h] for h in a & b),
    }
    assert found["overlap"] == overlap
    assert overlap["both"] == len(
        {as_read(x) for _, x in made_records(300, longest=300)} & {as_read(x) for _, x in newer}
    )


def test_a_dataset_can_be_compared_with_a_fasta_file_or_with_itself(run: Run, built: Path) -> None:
    mixed = stats(run, built, built.parent / "in" / "second.fasta")
    assert (mixed["a"]["kind"], mixed["b"]["kind"], mixed["overlap"]["only_b"]) == (
        "dataset",
        "fasta",
        0,
    )
    same = stats(run, built, built)
    assert (same["related"], same["settings"], same["overlap"]["only_a"]) == ("same", [], 0)
    assert not any(change["change"] for change in same["changes"])
    text = run("stats", built, built).stdout
    assert "A and B are the same build." in text
    assert "no change" in text


def test_parent_and_child_datasets_are_recognized_by_their_manifests(
    run: Run, dataset: Path, tmp_path: Path
) -> None:
    child = Path(shutil.copytree(dataset, tmp_path / "child"))
    append(child, seed=3, inputs=tmp_path)
    assert stats(run, dataset, child)["related"] == "child"
    assert stats(run, child, dataset)["related"] == "parent"
