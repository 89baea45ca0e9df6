"""`thdpack verify` finds each kind of damage; a manifest that cannot be trusted is refused."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from schemas.errors import ManifestError
from schemas.manifest import Manifest, _canonical
from schemas.shard import shard_schema
from tests.helpers.data.corpus import fasta, made_records, read_manifest
from tests.helpers.data.damaged_datasets import deep, shallow, update_entries
from tests.helpers.processes.command_line import Run, preprocess


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("verify")
    # no record is cropped, because verify cannot compare the hash of a cropped record
    (folder / "x.fasta").write_bytes(fasta(made_records(600, longest=250)))
    return preprocess(
        folder / "x.fasta",
        folder / "out",
        "--capacity",
        "1024",
        "--max-seq-len",
        "256",
        "--split",
        "valid=0.2",
    )


@pytest.fixture
def dataset(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "out"))


def rewrite_shard(dataset: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a bucket and update the hashes, to simulate a bug of the writer."""
    manifest = read_manifest(dataset)
    entry = manifest.shards["train"][0]
    path = dataset / entry.name
    rows = pa.ipc.open_file(path).read_all().to_pylist()
    change(rows[3])
    table = pa.Table.from_pylist(rows, schema=shard_schema(manifest.capacity))
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=64)
    update_entries(dataset, [entry.name])


def rewrite_records(dataset: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    manifest = read_manifest(dataset)
    entry = manifest.records[0]
    path = dataset / entry.name
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path)
    update_entries(dataset, [entry.name])


def test_verify_finds_nothing_wrong_in_a_good_dataset(run_process: Run, dataset: Path) -> None:
    said = f"{dataset}: verified, nothing wrong"
    done = run_process("verify", dataset)
    assert (done.returncode, done.stdout) == (0, f"{said}\n")
    done = run_process("verify", dataset, "--deep")
    deep = "; every row of records/ agrees with its buckets"
    assert (done.returncode, done.stdout) == (0, f"{said}{deep}\n")


def token(at: int, value: int) -> Callable[[dict[str, Any]], None]:
    """Set the token with index `at` of a bucket's second sequence."""

    def change(row: dict[str, Any]) -> None:
        row["input_ids"][row["cu_seqlens"][1] + at] = value

    return change


def put(name: str, value: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    def change(row: dict[str, Any]) -> None:
        row[name] = value(row[name])

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (token(0, 5), "does not start with <cls>"),
        (token(-1, 5), "does not end with <eos>"),
        (token(1, 32), "neither a residue nor <unk>"),
        (token(1, 1), "neither a residue nor <unk>"),
        (token(1, 2), "neither a residue nor <unk>"),
        (put("cu_seqlens", lambda c: [1, *c[1:]]), "does not rise from 0"),
        (put("cu_seqlens", lambda c: [0, c[2], c[1], *c[3:]]), "does not rise from 0"),
        (
            put("cu_seqlens", lambda c: [0, *c[2:]]),
            "num_seqs does not agree|longer than max_seq_len|does not start|residue|padding"
            "|wrong pieces",
        ),
        (put("num_seqs", lambda n: n + 1), "num_seqs does not agree"),
        (put("num_tokens", lambda n: n - 1), "num_tokens is not"),
        (put("max_seqlen", lambda n: n + 1), "max_seqlen is not"),
        (put("record", lambda r: r[1:]), "num_seqs does not agree"),
        (put("start", lambda s: [-1, *s[1:]]), "start is negative"),
    ],
)
def test_each_broken_rule_of_a_bucket_is_named(
    dataset: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    rewrite_shard(dataset, change)
    problems = shallow(dataset)
    assert any(re.search(f"bucket 3: .*({message})", problem) for problem in problems), problems


def swapped(row: dict[str, Any]) -> None:
    row["record"][0], row["record"][1] = row["record"][1], row["record"][0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (token(3, 4), "another hash"),
        (token(3, 3), "another hash"),
        (swapped, "another hash|expected number of residues"),
    ],
)
def test_verify_deep_finds_buckets_that_contradict_the_records(
    dataset: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    rewrite_shard(dataset, change)
    assert shallow(dataset) == [], "verify without --deep must not find this damage"
    problems = deep(dataset)
    assert any(re.search(message, problem) for problem in problems), problems


def first(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    return next(row for row in rows if all(row[name] == value for name, value in wanted.items()))


def lose(rows: list[dict[str, Any]]) -> None:
    rows[5]["ordinal"] = rows[6]["ordinal"]


def misplace(rows: list[dict[str, Any]]) -> None:
    first(rows, status="kept")["bucket"] += 1


def other_split(rows: list[dict[str, Any]]) -> None:
    first(rows, status="kept", split="train")["split"] = "valid"


def unduplicate(rows: list[dict[str, Any]]) -> None:
    first(rows, status="duplicate").update(status="kept", duplicate_of=None, split="train")


def wrong_original(rows: list[dict[str, Any]]) -> None:
    first(rows, status="duplicate")["duplicate_of"] = first(rows, status="kept")["ordinal"]


@pytest.mark.parametrize("change", [lose, misplace, other_split, unduplicate, wrong_original])
def test_verify_deep_finds_wrong_rows_of_records(
    dataset: Path, change: Callable[[list[dict[str, Any]]], None]
) -> None:
    rewrite_records(dataset, change)
    assert shallow(dataset) == []
    assert any("records/: " in problem for problem in deep(dataset))


def test_verify_deep_prints_errors_and_fails(
    run: Run,
    run_process: Run,
    dataset: Path,
) -> None:
    rewrite_records(dataset, misplace)
    assert run("verify", dataset).returncode == 0
    done = run_process("verify", dataset, "--deep")
    assert done.returncode == 1
    assert "records/: " in done.stdout
    rewrite_shard(dataset, token(0, 5))
    done = run("verify", dataset)
    assert done.returncode == 1
    assert "does not start with <cls>" in done.stdout


def test_flipped_bits_truncation_and_missing_files_are_found(run: Run, dataset: Path) -> None:
    manifest = read_manifest(dataset)
    shard, records = dataset / manifest.shards["train"][0].name, dataset / manifest.records[0].name
    content = shard.read_bytes()
    for damaged in (bytes([content[0] ^ 1]) + content[1:], content[:-1], content + b"\0"):
        shard.write_bytes(damaged)
        done = run("verify", dataset)
        assert done.returncode == 1
        assert str(shard) in done.stdout
    shard.unlink()
    assert "missing" in run("verify", dataset).stdout
    shard.write_bytes(content)
    records.write_bytes(records.read_bytes()[:-4])
    done = run("verify", dataset)
    assert done.returncode == 1
    assert str(records) in done.stdout


def test_a_folder_without_a_manifest_is_not_a_dataset(run: Run, tmp_path: Path) -> None:
    done = run("verify", tmp_path)
    assert done.returncode == 1
    assert "not a dataset, or its build did not finish" in done.stderr
    assert f"build a dataset with `thdpack preprocess {tmp_path} --out DATASET`" in done.stderr


def signed(raw: dict[str, Any]) -> str:
    return json.dumps({**raw, "digest": xxhash.xxh3_128_hexdigest(_canonical(raw))})


@pytest.mark.parametrize(
    "name",
    [
        "../outside.arrow",
        "/etc/passwd",
        "train/../../x.arrow",
        "train/a/b.arrow",
        "other/x.arrow",
        "train\\x.arrow",
        "train//x.arrow",
        "x.arrow",
    ],
)
def test_a_manifest_with_an_invalid_path_is_refused(dataset: Path, name: str) -> None:
    raw = json.loads((dataset / "manifest.json").read_text())
    del raw["digest"]
    raw["shards"]["train"] = [{**raw["shards"]["train"][0], "name": name}]
    with pytest.raises(ManifestError, match=r"\.name|is not in"):
        Manifest.from_json(signed(raw), where="here")


def test_a_manifest_that_was_edited_or_has_another_version_is_refused(dataset: Path) -> None:
    text = (dataset / "manifest.json").read_text()
    raw = json.loads((dataset / "manifest.json").read_text())
    del raw["digest"]
    for bad, message in (
        (text.replace('"seed": 0', '"seed": 1'), "does not match its own digest"),
        (signed({**raw, "format": 1}), "format version 1, but this thdpack"),
        (
            signed({**raw, "vocabulary_digest": "0" * 32}),
            "has no vocabulary 'esm2' with the tokens",
        ),
        (signed({**raw, "surprise": 1}), "does not match its own digest"),
        (signed({**raw, "seed": "0"}), "a key is missing or has a wrong value"),
        ("[]", "not a manifest"),
        ("{}", "format version None"),
        ("{", "not JSON"),
    ):
        with pytest.raises(ManifestError, match=message):
            Manifest.from_json(bad, where="here")


def test_a_manifest_survives_a_round_trip(dataset: Path) -> None:
    text = (dataset / "manifest.json").read_text()
    assert Manifest.from_json(text, where="here").to_json() == text


def test_verify_json_prints_one_object_with_the_same_exit_codes(dataset: Path, run: Run) -> None:
    manifest = read_manifest(dataset)
    done = run("verify", dataset, "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"], told["problems"]) == (0, True, [])
    assert (told["dataset"], told["digest"], told["generation"]) == (
        str(dataset),
        manifest.digest,
        1,
    )
    assert told["files"] == len(manifest.files())
    assert told["bytes"] == sum((dataset / entry.name).stat().st_size for entry in manifest.files())
    assert told["seconds"] > 0
    assert told["unnamed"] == []
    (other := dataset / "train" / "other.arrow").touch()
    assert json.loads(run("verify", dataset, "--json").stdout)["unnamed"] == ["train/other.arrow"]
    done = run("verify", dataset)
    assert done.returncode == 0
    assert done.stderr.startswith("note: no generation names 1 file, so readers ignore it: train/o")
    other.unlink()
    removed = dataset / manifest.files()[0].name
    removed.unlink()
    done = run("verify", dataset, "--json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"]) == (1, False)
    assert any(manifest.files()[0].name in line for line in told["problems"])
    (dataset / "manifest.json").unlink()
    done = run("verify", dataset, "--json")
    assert (done.returncode, done.stdout) == (1, "")
