"""`--metadata` joins a table to records/, like a plain join; `--keep-header` keeps headers."""

from __future__ import annotations

import csv
import gzip
import math
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.manifest import Manifest
from tests.conftest import Run
from tests.helpers.data.corpus import digest, fasta, made_records, read_manifest, read_records
from tests.helpers.data.slow_headers import stated
from tests.helpers.processes import started
from tests.helpers.processes.command_line import PIECE_BYTES, preprocess

Row = dict[str, Any]
FAMILIES = (
    "sp|P{0:05d}|N{0}_HUMAN Protein (Fragment) OS=Homo sapiens OX=9606 GN=G{0} PE=1 SV=1",
    "UniRef50_A{0:05d}   Protein n={0} Tax=Homo sapiens TaxID=9606 RepID=A{0}_HUMAN",
    "NP_{0:06d}.1 a kinase, partial [Homo sapiens]",
    "plain{0}",
)
TYPES = {
    "Organism (ID)": "int",
    "Protein names": "string",
    "length of motif": "int",
    "reviewed": "bool",
    "score": "float",
    "version": "string",
}
SCHEMA = pa.schema(
    [
        ("Entry", pa.string()),
        ("score", pa.float64()),
        ("Protein names", pa.string()),
        ("Organism (ID)", pa.int32()),
        ("reviewed", pa.bool_()),
        ("length of motif", pa.int64()),
        ("version", pa.string()),
    ]
)
SIZES = {"task_bytes": 20_000, "partition_bytes": 20_000}
SHAPE = ("--capacity", "512", "--max-seq-len", "128")


@pytest.fixture(scope="module")
def records() -> list[tuple[str, str]]:
    made = made_records(400, seed=3, longest=300)
    return [
        (FAMILIES[i % len(FAMILIES)].format(i), residues) for i, (_, residues) in enumerate(made)
    ]


@pytest.fixture(scope="module")
def corpus(records: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "records.fasta"
    path.write_bytes(fasta(records))
    return path


@pytest.fixture(scope="module")
def table(records: list[tuple[str, str]]) -> list[Row]:
    """Return the rows of a table: for most accessions, for some ids, and for other proteins."""
    draw = random.Random(1)
    keys = [f"other{i}" for i in range(50)]
    for header, _ in records:
        identifier, _, description = header.partition(" ")
        accession = stated(identifier.encode(), description.encode()).accession
        by_id, by_accession = draw.random() < 0.3, draw.random() < 0.6
        if by_id:
            keys.append(identifier)
        if accession is not None and by_accession and accession.decode() not in keys:
            keys.append(accession.decode())
    rows = []
    for i, key in enumerate(keys):
        row = {
            "Entry": key,
            "score": draw.choice((0.5, -1e-9, 3.0, math.pi, None)),
            "Protein names": draw.choice(('the "big" one', "5\"-x, a'b", "NA", "γ", None)),
            "Organism (ID)": draw.choice((9606, 10090, None)),
            "reviewed": draw.choice((True, False, None)),
            "length of motif": i * 10**15,
            "version": draw.choice(("1", "2", "2b")),
        }
        rows.append(row)
    return rows


def joined(header: str, table: Sequence[Row]) -> Row | None:
    """Return the row of a record, found by a plain search; None if the record has no row."""
    identifier, _, description = header.partition(" ")
    accession = stated(identifier.encode(), description.strip(" ").encode()).accession
    by_key = {row["Entry"]: row for row in table}
    own = by_key.get(accession.decode()) if accession is not None else None
    return own or by_key.get(identifier)


def write_table(path: Path, table: Sequence[Row]) -> Path:
    """Write a table in the format that the name of the file says. `x/table` is a Parquet file."""
    path.parent.mkdir(exist_ok=True)
    kind = path.suffixes[0] if path.suffix else ".parquet"
    if kind in (".parquet", ".arrow"):
        found = pa.Table.from_pylist(list(table), schema=SCHEMA)
        if kind == ".parquet":
            pq.write_table(found, path, row_group_size=37)
        else:
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
                writer.write_table(found)
        return path
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        if kind == ".csv":
            writer = csv.writer(file)
            writer.writerow(SCHEMA.names)
            writer.writerows([as_text(row[name]) for name in SCHEMA.names] for row in table)
        else:  # like UniProt: no quotes around values, whatever they hold
            for line in (
                SCHEMA.names,
                *([as_text(value) for value in row.values()] for row in table),
            ):
                file.write("\t".join(line) + "\n")
    return path


def as_text(value: object) -> str:
    return "" if value is None else str(value)


def test_records_have_the_values_of_a_plain_join(
    run: Run, records: list[tuple[str, str]], corpus: Path, table: list[Row], tmp_path: Path
) -> None:
    """Rests included: the build has many partitions."""
    out = tmp_path / "out"
    path = write_table(tmp_path / "table.parquet", table)
    words = ("preprocess", corpus, "--out", out, "--metadata", path, "--keep-header")
    done = run(*words, *SHAPE, "--long", "split", **SIZES)
    assert done.returncode == 0, done.stderr
    matched = 0
    for (header, _), row in zip(records, read_records(out), strict=True):
        own = joined(header, table)
        matched += own is not None
        expected = {name: None if own is None else own[name] for name in TYPES}
        assert {name: row[name] for name in TYPES} == expected, header
        assert row["header"] == header.replace("   ", " ")
    assert 100 < matched < len(records)
    manifest = read_manifest(out)
    assert manifest.metadata_columns == TYPES
    assert manifest.metadata_records == matched
    said = f"{matched} of {len(records)} records found in table.parquet ({len(table)} rows)"
    assert said in done.stdout
    assert run("verify", out, "--deep").returncode == 0
    assert run("stats", out).returncode == 0
    assert said in run(*words, *SHAPE, "--long", "split", **SIZES).stdout


def test_the_order_of_rows_and_columns_and_the_format_do_not_change_the_bytes(
    run: Run, corpus: Path, table: list[Row], tmp_path: Path
) -> None:
    shuffled = random.Random(2).sample(table, len(table))
    columns = [{name: row[name] for name in SCHEMA.names} for row in shuffled]
    paths = [write_table(tmp_path / "0" / "table", table)]
    for i, kind in enumerate((".parquet", ".arrow", ".tsv", ".csv", ".tsv.gz"), 1):
        written = write_table(tmp_path / str(i) / f"table{kind}", columns)
        paths.append(written.rename(written.parent / "table"))
    found = []
    for i, path in enumerate(paths):
        words = ("--metadata", str(path), "--where", "score > 0 or score is null")
        out = preprocess(corpus, tmp_path / f"out{i}", *SHAPE, *words, **SIZES)
        files = digest(out)
        del files["manifest.json"]  # names the size of the table
        found.append(files)
    assert all(files == found[0] for files in found)


FILTERS: dict[str, Callable[[Row], bool]] = {
    "score > 0.4": lambda row: row["score"] is not None and row["score"] > 0.4,
    '"Organism (ID)" = 9606 and not reviewed': lambda row: (
        row["Organism (ID)"] == 9606 and row["reviewed"] is False
    ),
    '"Protein names" is null or "Protein names" like \'%"%\'': lambda row: (
        row["Protein names"] is None or '"' in row["Protein names"]
    ),
    "\"length of motif\" >= 200000000000000001 and version = '2b'": lambda row: (
        (row["length of motif"] or 0) > 2 * 10**17 and row["version"] == "2b"
    ),
}


@pytest.mark.parametrize("expression", FILTERS)
def test_where_over_columns_of_metadata_keeps_what_a_plain_filter_keeps(
    run: Run,
    records: list[tuple[str, str]],
    corpus: Path,
    table: list[Row],
    tmp_path: Path,
    expression: str,
) -> None:
    out = tmp_path / "out"
    path = write_table(tmp_path / "table.tsv", table)
    words = ("--metadata", path, "--where", expression, "--dedup", "none", "--min-residues", 1)
    done = run("preprocess", corpus, "--out", out, *words)
    assert done.returncode == 0, done.stderr
    nothing = dict.fromkeys(TYPES)
    expected = [
        "too_short"
        if not residues
        else "kept"
        if FILTERS[expression](joined(header, table) or nothing)
        else "filtered"
        for header, residues in records
    ]
    assert [row["status"] for row in read_records(out)] == expected


@pytest.mark.parametrize("dedup", ["exact", "none"])
def test_a_partition_read_in_many_runs_has_the_same_bytes(
    build_here: Callable[..., Manifest],
    corpus: Path,
    table: list[Row],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    dedup: str,
) -> None:
    path = write_table(tmp_path / "table.tsv", table)
    monkeypatch.setattr("pipeline.inputs.find.TASK_BYTES", 20_000)
    monkeypatch.setattr("pipeline.inputs.find.PIECE_BYTES", PIECE_BYTES)
    monkeypatch.setattr("pipeline.inputs.find.FEWEST_TASKS", 1)
    monkeypatch.setattr("pipeline.build.build_plan.PARTITION_BYTES", 40_000)
    monkeypatch.setattr("pipeline.build.reduce_stage.write_records._ROW_GROUP", 32)
    shape = {"capacity": 1024, "max_seq_len": 512, "metadata": str(path), "dedup": dedup}
    build_here(corpus, tmp_path / "whole", keep_header=True, **shape)
    monkeypatch.setattr("pipeline.build.spill.spilled_partition.WINDOW_BYTES", 3_000)
    monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.WHOLE_BYTES", 4_000)
    monkeypatch.setattr("pipeline.build.reduce_stage.spilled_records.RUN_BYTES", 3_000)
    monkeypatch.setattr("pipeline.build.named_files.metadata.prepare_table.RUN_BYTES", 3_000)
    build_here(corpus, tmp_path / "runs", keep_header=True, **shape)
    assert digest(tmp_path / "whole") == digest(tmp_path / "runs")


def test_a_killed_and_resumed_build_and_a_task_list_have_the_same_bytes(
    run: Run, corpus: Path, table: list[Row], tmp_path: Path
) -> None:
    path = write_table(tmp_path / "table.tsv", table)
    options = (*SHAPE, "--metadata", str(path), "--keep-header", "--where", "reviewed")
    whole = digest(preprocess(corpus, tmp_path / "whole", *options, **SIZES))
    killed = tmp_path / "killed"
    setup = started.stopping_after_outcomes(3)
    process = started.start("preprocess", corpus, "--out", killed, *options, setup=setup, **SIZES)
    process.wait_until_stopped()
    process.kill()
    process.communicate(timeout=100)
    work = next((killed / ".build").glob("prepared-*.arrow"))
    work.write_bytes(work.read_bytes()[:-9])  # as after a power cut
    assert digest(preprocess(corpus, killed, *options, **SIZES)) == whole
    listed = tmp_path / "listed"
    assert run("plan-tasks", corpus, "--out", listed, *options, **SIZES).returncode == 0
    path.unlink()  # the tasks do not read the table again
    for stage in ("map", "reduce"):
        words = ("--stage", stage, "--index", 0, "--array-size", 1)
        done = run("run-task", listed, *words, **SIZES)
        assert done.returncode == 0, done.stderr
    assert run("commit", listed, **SIZES).returncode == 0
    assert digest(listed) == whole


def test_a_damaged_work_file_is_written_again(
    run: Run, corpus: Path, table: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is damaged after the prepare task, before a task reads it."""
    path = write_table(tmp_path / "table.tsv", table)
    whole = digest(preprocess(corpus, tmp_path / "whole", "--metadata", str(path)))
    damaged = iter([True])

    def damage(*_: object, **__: object) -> Iterator[object]:
        if next(damaged, False):
            work = next((tmp_path / "out/.build").glob("prepared-*.arrow"))
            work.write_bytes(work.read_bytes()[:-1] + b"?")
        return map_tasks(*_, **__)

    from pipeline.build.stages import map_tasks

    monkeypatch.setattr("pipeline.build.build_dataset.map_tasks", damage)
    done = run("preprocess", corpus, "--out", tmp_path / "out", "--metadata", path)
    assert done.returncode == 0, done.stderr
    assert "prepared-000000 runs again" in done.stderr
    assert digest(tmp_path / "out") == whole


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,x\nP1,2\n", "no column accession, Entry or id, by which rows belong"),
        ("Entry,organism\nP1,2\n", "column 'organism' is already a column of records/: rename it"),
        ("Entry,header\nP1,2\n", "column 'header' is already a column of records/: rename it"),
        ("Entry,length\nP1,2\n", "column 'length' already has a meaning in --where: rename it"),
        ("Entry,x,x\nP1,2,3\n", "column 'x' occurs 2 times: rename or remove the others"),
        ("Entry,\nP1,2\n", "column '' has no name: name it or remove it"),
        (
            "Entry,x\nP1,2\nP2,2\n\nP1,3\n",
            ":5: line 2 and line 5 have the same Entry, 'P1': remove one of them",
        ),
        ("x,ENTRY\n1,P1\n2,\n", ":3: this row has no value in the key column 'ENTRY'"),
        ("Entry,x\nP1,2\nP2\n", ":3: 1 columns, expected 2 as in the header line"),
        ("Entry,x\n", "the table has no rows"),
    ],
)
def test_a_wrong_table_prints_one_error_line(
    run: Run, corpus: Path, tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    done = run("preprocess", corpus, "--out", tmp_path / "out", "--metadata", path)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert str(path) in last
    assert said in last


def test_the_key_column_is_accession_then_entry_then_id(run: Run, tmp_path: Path) -> None:
    source, path = tmp_path / "x.fasta", tmp_path / "table.csv"
    source.write_text(">one\nMKV\n>two\nMKA\n")
    path.write_text("Key,ID2,Accession\nx,two,one\ny,one,two\n")
    preprocess(source, tmp_path / "out", "--metadata", str(path))
    assert [row["ID2"] for row in read_records(tmp_path / "out")] == ["two", "one"]


def test_a_table_without_any_match_is_reported(run: Run, corpus: Path, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("id,x\nnobody,1\n")
    done = run("preprocess", corpus, "--out", tmp_path / "out", "--metadata", path)
    assert done.returncode == 0
    assert "no record found in table.csv (1 row)" in done.stdout
    assert {row["x"] for row in read_records(tmp_path / "out")} == {None}


def test_inspect_shows_the_header_and_the_values(
    run: Run, records: list[tuple[str, str]], corpus: Path, tmp_path: Path
) -> None:
    path = tmp_path / "table.tsv"
    path.write_text("Entry\tnote\tempty\nP00004\ta\x1b[31m b\t\n")
    options = ("--metadata", str(path), "--keep-header")
    preprocess(corpus, tmp_path / "out", *options)
    shown = run("inspect", tmp_path / "out", "--record", "P00004").stdout
    assert f"    header: {records[4][0]}\n" in shown
    assert "    note: a\\x1b[31m b\n" in shown
    assert "empty" not in shown


def test_an_expression_is_checked_with_the_types_of_the_table_before_any_work(
    run: Run, corpus: Path, table: list[Row], tmp_path: Path
) -> None:
    path = write_table(tmp_path / "table.tsv", table)
    for expression, said in (
        ("version > 3", "cannot compare string with numeric type"),
        ("scores > 3", "--where names 'scores' (do you mean score?)"),
    ):
        words = ("--out", tmp_path / "out", "--metadata", path, "--where", expression)
        done = run("preprocess", corpus, *words)
        assert done.returncode == 1
        assert said in done.stderr
        assert not (tmp_path / "out").exists()


def test_headers_with_bytes_that_are_not_utf8_or_without_description_are_kept(
    tmp_path: Path,
) -> None:
    source = tmp_path / "x.fasta"
    source.write_bytes(b">a \t b  c \xff \nMK\n>alone\nMKV\n> \nMKVV\n")
    preprocess(source, tmp_path / "out", "--keep-header")
    headers = [row["header"] for row in read_records(tmp_path / "out")]
    assert headers == ["a b  c \\xff", "alone", ""]
    preprocess(source, tmp_path / "plain")
    assert "header" not in read_records(tmp_path / "plain")[0]
