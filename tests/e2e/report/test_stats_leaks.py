"""Leaks in the report of `thdpack stats`: sequences and clusters that two splits share, and entries
of other files (--against) that are also in the dataset.
"""

from __future__ import annotations

import gzip
from collections import Counter
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.report.gather.records.shared_values import shared_values
from pipeline.storage.file_hash import hash_file
from schemas.records import Status
from tests.helpers.data.corpus import fasta, made_records, read_manifest, read_records
from tests.helpers.processes.command_line import Run, preprocess
from tests.helpers.reports.stats import rewritten, stats
from tests.helpers.stores.stores import http_store

SPLITS = ("train", "valid", "test")
WHERE = "length not between 40 and 50 or id = '[red]'"
ROW = st.tuples(
    st.integers(0, 8), st.none() | st.integers(0, 4), st.sampled_from([*SPLITS, "left out"])
)


@given(st.lists(ROW, max_size=60), st.permutations(SPLITS))
def test_shared_sequences_and_clusters_match_plain_set_intersections(
    rows: list[tuple[int, int | None, str]], order: list[str]
) -> None:
    table = pl.DataFrame(
        {
            "hash": [bytes([value] * 16) for value, _, _ in rows],
            "cluster": [cluster for _, cluster, _ in rows],
            "split": [None if split == "left out" else split for *_, split in rows],
            "status": [
                "kept" if split != "left out" else ("excluded", "duplicate")[i % 2]
                for i, (*_, split) in enumerate(rows)
            ],
        },
        schema={"hash": pl.Binary, "cluster": pl.UInt64, "split": pl.String, "status": pl.String},
    )
    found = [
        (leak.of, leak.splits, leak.shared, leak.records)
        for leak in shared_values(table.lazy(), order, clusters=True)
    ]
    expected = []
    for of, place in (("sequences", 0), ("clusters", 1)):
        for pair in combinations(order, 2):
            a, b = (
                Counter(row[place] for row in rows if row[2] == split and row[place] is not None)
                for split in pair
            )
            both = a.keys() & b.keys()
            expected.append(
                (of, pair, len(both), (sum(a[key] for key in both), sum(b[key] for key in both)))
            )
    assert found == expected


def test_a_dataset_has_no_leak_until_its_records_are_changed(run: Run, dataset: Path) -> None:
    leaks = stats(run, dataset)["leaks"]
    assert {tuple(leak["splits"]) for leak in leaks} == set(combinations(SPLITS, 2))
    assert all((leak["shared"], leak["records"]) == (0, [0, 0]) for leak in leaks)
    kept = [row for row in read_records(dataset) if row["status"] == "kept"]
    train, valid = (
        [row["ordinal"] for row in kept if row["split"] == split] for split in ("train", "valid")
    )
    hashes = {row["ordinal"]: row["hash"] for row in kept}
    # three train records get the sequences of two valid records
    changed = dict(zip(train[:3], (hashes[valid[i]] for i in (0, 1, 1)), strict=True))
    replace_values(dataset, "hash", changed)
    found = {tuple(leak["splits"]): leak for leak in stats(run, dataset)["leaks"]}
    assert found["train", "valid"] == {
        "of": "sequences",
        "splits": ["train", "valid"],
        "shared": 2,
        "records": [3, 2],
    }
    assert found["train", "test"]["shared"] == found["valid", "test"]["shared"] == 0
    assert "train and valid  sequences        2" in run("stats", dataset).stdout


def test_a_cluster_in_two_splits_is_reported_as_a_leak(run: Run, tmp_path: Path) -> None:
    made = made_records(120, longest=80)
    (tmp_path / "in.fasta").write_bytes(fasta(made))
    table = "".join(f"made{i - i % 4}\tmade{i}\n" for i in range(len(made)))
    (tmp_path / "clusters.tsv").write_text(table)
    dataset = preprocess(
        tmp_path / "in.fasta",
        tmp_path / "dataset",
        *("--capacity", "512", "--max-seq-len", "64", "--split", "valid=0.2,test=0.2"),
        *("--clusters", tmp_path / "clusters.tsv"),
    )
    assert [leak["shared"] for leak in stats(run, dataset)["leaks"]] == [0] * 6
    rows = [row for row in read_records(dataset) if row["status"] == "kept"]
    train, test = ([row for row in rows if row["split"] == split] for split in ("train", "test"))
    value = test[0]["cluster"]
    replace_values(dataset, "cluster", {train[0]["ordinal"]: value})
    members = sum(row["cluster"] == value for row in test)
    assert {
        (leak["of"], *leak["splits"], *leak["records"])
        for leak in stats(run, dataset)["leaks"]
        if leak["shared"]
    } == {("clusters", "train", "test", 1, members)}


def replace_values(dataset: Path, column: str, changed: dict[int, Any]) -> None:
    """Replace values of a column of records/, and update the hashes in the manifest.

    Args:
        changed: new value of each changed record, by ordinal.
    """
    entries = []
    for entry in read_manifest(dataset).records:
        path = dataset / entry.name
        table = pq.read_table(path)
        values = [
            changed.get(row["ordinal"], row[column])
            for row in table.select(["ordinal", column]).to_pylist()
        ]
        place = table.column_names.index(column)
        field = table.field(place)
        pq.write_table(table.set_column(place, field, pa.array(values, field.type)), path)
        size, digest = hash_file(path)
        entries.append(replace(entry, bytes=size, xxh3_128=digest))
    rewritten(dataset, lambda manifest: replace(manifest, records=tuple(entries)))


def entries_in(entries: list[str], records: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return the expected overlap of entries with records, computed with plain loops."""

    def among(found: list[str]) -> int:
        return sum(entry.upper() in found for entry in entries)

    kept = {
        split: [text for text, row in records if row["split"] == split and row["status"] == "kept"]
        for split in SPLITS
    }
    return {
        "similar": None,
        "entries": len(entries),
        "in_splits": {split: among(found) for split, found in kept.items()},
        "in_records": among([text for text, _ in records]),
        "by_status": {
            status.value: among([text for text, row in records if row["status"] == status])
            for status in Status
        },
    }


def test_overlaps_with_other_files_equal_those_of_plain_loops(run: Run, tmp_path: Path) -> None:
    made = [record for record in made_records(200, longest=80) if "J1" not in record[1]]
    (tmp_path / "in.fasta").write_bytes(fasta(made))
    dataset = preprocess(
        tmp_path / "in.fasta",
        tmp_path / "dataset",
        *("--capacity", "512", "--max-seq-len", "64", "--min-residues", "20"),
        *("--split", "train=0.6,valid=0.2,test=0.2", "--where", WHERE),
    )
    rows = read_records(dataset)
    records = [(text.upper(), row) for (_, text), row in zip(made, rows, strict=True)]
    others = [text for _, text in made_records(40, seed=1, longest=80) if "J1" not in text]
    # every third record with upper and lower case swapped, two copies of the first record, random
    # sequences of another seed, and the first 63 residues of a longer record
    entries = [text.swapcase() for _, text in made[::3]] + [made[0][1]] * 2 + others
    entries.append(next(text for _, text in made if len(text) > 70)[:63])
    named = [(f"entry{i}", text) for i, text in enumerate(entries)]
    test, nothing = tmp_path / "test.fasta.gz", tmp_path / "other.fasta"
    test.write_bytes(gzip.compress(fasta(named)))
    nothing.write_bytes(fasta([("a", others[-1]), ("b", others[-2])]))
    report = stats(run, dataset, "--against", test, "--against", nothing)
    assert report["against"] == [
        {"name": str(test), **entries_in(entries, records)},
        {"name": str(nothing), **entries_in(others[-2:], records)},
    ]
    found = report["against"][0]
    assert all(found["in_splits"].values())
    assert found["by_status"]["duplicate"]
    assert found["by_status"]["too_short"]
    assert found["by_status"]["filtered"]
    assert report["settings"]["where"] == WHERE
    assert report["against"][1]["in_records"] == 0
    shown = run("stats", dataset, "--against", test).stdout
    assert "in train  in valid  in test  in any record" in shown
    count = f"of its {len(entries)} entries, {found['in_splits']['train']} are in train;"
    assert count in shown.splitlines()[-1]
    # the whole report, or only its first lines
    for option in ((), ("--json", tmp_path / "report.json")):
        shown = run("stats", dataset, "--against", nothing, *option).stdout
        last = f"{nothing}: no sequence of its 2 entries is in train."
        assert shown.splitlines()[-1] == last
    shown = run("stats", dataset, "--against", test).stdout
    assert f"--where {WHERE}\n" in shown
    assert run("stats", test, "--json").returncode == 0


def test_a_remote_dataset_has_the_same_overlap_with_a_file_as_a_local_copy(
    run: Run, dataset: Path, tmp_path: Path
) -> None:
    (tmp_path / "test.fasta").write_bytes(fasta(made_records(30, longest=300)))
    here = stats(run, dataset, "--against", tmp_path / "test.fasta")["against"]
    with http_store(dataset) as url:
        assert stats(run, url, "--against", tmp_path / "test.fasta")["against"] == here
    assert here[0]["in_records"] > 20


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["FASTA", "--against", "FASTA"], 2, "name a dataset before it"),
        (["DATASET", "DATASET", "--against", "FASTA"], 2, "in one dataset"),
        (["DATASET", "--against", "nothing.fasta"], 2, "nothing.fasta: no such file"),
        (["DATASET", "--against", "EMPTY"], 1, "empty.fasta: the file is empty"),
        (["DATASET", "--against", "TABLE"], 1, "name, seq; stats reads FASTA, and .csv"),
        (["DATASET", "--against", "IDS"], 1, "such as >name; stats reads FASTA, and"),
    ],
)
def test_wrong_use_of_the_option_against_is_an_error_that_names_the_mistake(
    run: Run, built: Path, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    names = {"FASTA": "a.fasta", "EMPTY": "empty.fasta", "TABLE": "t.csv", "IDS": "ids.txt"}
    places = {"DATASET": built, **{key: tmp_path / name for key, name in names.items()}}
    places["FASTA"].write_bytes(b">a\nMKV\n")
    places["EMPTY"].write_bytes(b"")
    places["TABLE"].write_bytes(b"name,seq\na,MKV\n")
    places["IDS"].write_bytes(b"sp_1 first\nsp_2 second\n")
    done = run("stats", *(places.get(argument, argument) for argument in arguments))
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert "--sequence-column" not in done.stderr
    assert "--format" not in done.stderr
