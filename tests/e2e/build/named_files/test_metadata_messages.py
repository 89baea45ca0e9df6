"""Messages about the table of `--metadata`, and headers that `--keep-header` stores."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Run
from tests.helpers.data.corpus import fasta, read_records
from tests.helpers.data.metadata_tables import headed_records, made_table, write_table
from tests.helpers.processes.command_line import preprocess

RECORDS = headed_records(40)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "records.fasta"
    path.write_bytes(fasta(RECORDS))
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,x\nP1,2\n", "no key column (accession, Entry or id)"),
        ("Entry,organism\nP1,2\n", "column 'organism' is already a column of records/: rename it"),
        ("Entry,header\nP1,2\n", "column 'header' is already a column of records/: rename it"),
        ("Entry,length\nP1,2\n", "column 'length' already has a meaning in --where: rename it"),
        ("Entry,x,x\nP1,2,3\n", "column 'x' occurs 2 times: rename or remove all but one"),
        ("Entry,\nP1,2\n", "column '' has no name: name it or remove it"),
        (
            "Entry,x\nP1,2\nP2,2\n\nP1,3\n",
            ":5: line 2 and line 5 have the same Entry, 'P1': remove one of them",
        ),
        ("x,ENTRY\n1,P1\n2,\n", ":3: this row has no value in the key column 'ENTRY'"),
        ("Entry,x\nP1,2\nP2\n", ":3: 1 column, expected 2 as in the header line: complete this"),
        ("Entry,x\n", "the table has no rows"),
    ],
)
def test_the_error_for_an_invalid_table_names_the_file_and_the_fault(
    run: Run, corpus: Path, tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    done = run("preprocess", corpus, "--out", tmp_path / "out", "--metadata", path)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert str(path) in last
    assert said in last


def test_the_error_for_fasta_in_place_of_a_table_names_fasta(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    done = run("preprocess", corpus, "--out", tmp_path / "out", "--metadata", corpus)
    assert done.returncode == 1
    expected = "expects a table (Parquet, Arrow, CSV or TSV) with a column of accessions or ids"
    assert f"{corpus}: this is FASTA, but --metadata {expected}" in done.stderr


def test_a_column_named_accession_in_any_case_is_the_key_column(run: Run, tmp_path: Path) -> None:
    source, path = tmp_path / "x.fasta", tmp_path / "table.csv"
    source.write_text(">one\nMKV\n>two\nMKA\n")
    path.write_text("Key,ID2,Accession\nx,two,one\ny,one,two\n")
    preprocess(source, tmp_path / "out", "--metadata", str(path))
    assert [row["ID2"] for row in read_records(tmp_path / "out")] == ["two", "one"]


def test_a_table_that_matches_no_record_is_reported(run: Run, corpus: Path, tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("id,x\nnobody,1\n")
    done = run("preprocess", corpus, "--out", tmp_path / "out", "--metadata", path)
    assert done.returncode == 0
    assert "table.csv (1 row) matches no record of the inputs" in done.stdout
    assert {row["x"] for row in read_records(tmp_path / "out")} == {None}


def test_inspect_shows_the_header_of_a_record_and_its_values_from_the_table(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    path = tmp_path / "table.tsv"
    path.write_text("Entry\tnote\tempty\nP00004\ta\x1b[31m b\t\n")
    options = ("--metadata", str(path), "--keep-header")
    preprocess(corpus, tmp_path / "out", *options)
    shown = run("inspect", tmp_path / "out", "--record", "P00004").stdout
    assert f"    header: {RECORDS[4][0]}\n" in shown
    assert "    note: a\\x1b[31m b\n" in shown
    assert "empty" not in shown


def test_the_where_expression_is_checked_against_the_table_before_any_work(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    path = write_table(tmp_path / "table.tsv", made_table(RECORDS))
    for expression, said in (
        ("version > 3", "cannot compare string with numeric type"),
        ("scores > 3", "--where names 'scores' (do you mean score?)"),
    ):
        words = ("--out", tmp_path / "out", "--metadata", path, "--where", expression)
        done = run("preprocess", corpus, *words)
        assert done.returncode == 2
        assert said in done.stderr
        assert not (tmp_path / "out").exists()


def test_keep_header_stores_empty_headers_bare_ids_and_invalid_utf8(
    tmp_path: Path,
) -> None:
    source = tmp_path / "x.fasta"
    source.write_bytes(b">a \t b  c \xff \nMK\n>alone\nMKV\n> \nMKVV\n")
    preprocess(source, tmp_path / "out", "--keep-header")
    headers = [row["header"] for row in read_records(tmp_path / "out")]
    assert headers == ["a b  c \\xff", "alone", ""]
    preprocess(source, tmp_path / "plain")
    assert "header" not in read_records(tmp_path / "plain")[0]
