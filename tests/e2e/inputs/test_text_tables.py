"""CSV and TSV are read. The error for other text names its kind, and the option that reads it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from pipeline.inputs.file_kinds import foreign
from pipeline.inputs.find import find_sources
from pipeline.inputs.named.expand import expand
from schemas.errors import InputError
from tests.helpers.data.corpus import digest, read_records
from tests.helpers.processes.command_line import REPO, Run

COLUMNS = ("--sequence-column", "Sequence", "--id-column", "Entry")

NO_IDS = "no column 'id', 'Entry' or 'accession', so the records have empty ids"


def test_csv_and_tsv_are_read_from_files_compressed_files_and_standard_input(
    run: Run, tmp_path: Path
) -> None:
    csv = b'Entry,Note,Sequence\r\nP1,"a, ""b""\r\nc",MKTAY\r\n\r\nP2,,MKV*\r\nP3,x,\r\n'
    tsv = b'\xef\xbb\xbfEntry\tNote\tSequence\nP1\t"a\tMKTAY\nP2\t\tMKV*\nP3\tx\t'
    quoted = b'"Entry"\t"Sequence"\n"P1"\t"MKTAY"\n"P2"\t"MKV*"\n"P3"\t""\n'
    for name, content in (
        ("x.csv", csv),
        ("x.CSV.gz", gzip.compress(csv, mtime=0)),
        ("x.tsv", tsv),
        ("y.tsv", quoted),
    ):
        (tmp_path / name).write_bytes(content)
        out = tmp_path / f"out-{name}"
        done = run("preprocess", tmp_path / name, "--out", out, *COLUMNS)
        assert done.returncode == 0, done.stderr
        assert [(row["id"], row["residues"], row["status"]) for row in read_records(out)] == [
            ("P1", 5, "kept"),
            ("P2", 3, "kept"),
            ("P3", 0, "too_short"),
        ]
    words = ("preprocess", "-", "--out", tmp_path / "piped", "--format", "csv", *COLUMNS)
    assert run(*words, stdin=csv).returncode == 0
    assert {row["id"] for row in read_records(tmp_path / "piped")} == {"P1", "P2", "P3"}


def test_the_columns_id_and_sequence_may_be_named_in_any_case(run: Run, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    import pyarrow as pa

    (tmp_path / "x.csv").write_text("ID, Sequence ,Note\nP1,MKTAY,x\n")
    (tmp_path / "x.tsv").write_text("Id\tSEQUENCE\nP1\tMKTAY\n")
    pq.write_table(pa.table({"ID": ["P1"], "Sequence": ["MKTAY"]}), tmp_path / "x.parquet")
    for name in ("x.csv", "x.tsv", "x.parquet"):
        out = tmp_path / f"out-{name}"
        done = run("preprocess", tmp_path / name, "--out", out)
        assert done.returncode == 0, done.stderr
        assert [(row["id"], row["residues"]) for row in read_records(out)] == [("P1", 5)]
    (tmp_path / "y.csv").write_text("Sequence,SEQUENCE\nMKT,MKV\n")
    said = run("preprocess", tmp_path / "y.csv", "--out", tmp_path / "out").stderr
    assert "no column 'sequence' in the header line, which has Sequence, SEQUENCE; choose" in said


def test_if_records_have_no_ids_the_error_of_inspect_names_the_option_id_column(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text("Protein,sequence\nP1,MKTAY\n")
    assert run("preprocess", tmp_path / "x.csv", "--out", tmp_path / "out").returncode == 0
    said = run("inspect", tmp_path / "out", "--record", "P1").stderr
    assert "its records have no ids; for tables, --id-column of `thdpack preprocess` names" in said


def test_a_table_without_a_column_of_ids_gives_a_warning_that_names_its_columns(
    run: Run, tmp_path: Path
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    ipc = pytest.importorskip("pyarrow.ipc")
    import pyarrow as pa

    rows = {"Protein": ["P1", "P2"], "Note": ["x", "y"], "Sequence": ["MKTAY", "MKV"]}
    table = pa.table(rows)
    lines = [*zip(*rows.values(), strict=True)]
    for name, mark in (("x.csv", ","), ("x.tsv", "\t")):
        text = "\n".join(mark.join(line) for line in [tuple(rows), *lines])
        (tmp_path / name).write_text(text)
    (tmp_path / "x.tsv.gz").write_bytes(gzip.compress((tmp_path / "x.tsv").read_bytes(), mtime=0))
    pq.write_table(table, tmp_path / "x.parquet")
    with ipc.new_stream(tmp_path / "x.arrow", table.schema) as stream:
        stream.write_table(table)
    names = ("x.csv", "x.tsv", "x.tsv.gz", "x.parquet", "x.arrow")
    for name in names:
        words = ("preprocess", tmp_path / name, "--out", tmp_path / f"out-{name}")
        done = run(*words)
        line = f"{tmp_path / name}: {NO_IDS}; choose a column with --id-column: Protein, Note\n"
        assert line in done.stderr
        assert f"\n            note  {line}" in done.stdout  # the summary repeats it
        assert {row["id"] for row in read_records(tmp_path / f"out-{name}")} == {""}
        said = run(*words, "--id-column", "protein", "--overwrite")
        assert "empty ids" not in said.stderr + said.stdout
    said = run("preprocess", *(tmp_path / name for name in names), "--out", tmp_path / "all").stderr
    assert said.count("empty ids") == 1
    assert (
        f"{tmp_path / 'x.csv'} and 4 other tables: no column 'id', 'Entry' or 'accession', so"
        in said
    )


@pytest.mark.parametrize(
    ("header", "ids"),
    [("Entry,Sequence,Accession", "P1"), ("x,sequence,accession", "A1"), ("x,sequence,ID", "A1")],
)
def test_the_usual_names_of_the_id_column_need_no_option(
    run: Run, tmp_path: Path, header: str, ids: str
) -> None:
    (tmp_path / "x.csv").write_text(f"{header}\nP1,MKTAY,A1\n")
    done = run("preprocess", tmp_path / "x.csv", "--out", tmp_path / "out")
    assert done.returncode == 0
    assert "empty ids" not in done.stderr
    assert [row["id"] for row in read_records(tmp_path / "out")] == [ids]


def test_if_a_table_has_only_a_sequence_column_the_warning_suggests_no_id_column(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text("sequence\nMKTAY\n")
    (tmp_path / "y.csv").write_text("id,sequence\n,MKTAYV\n")  # the ids exist, but are empty
    said = run("preprocess", tmp_path / "x.csv", "--out", tmp_path / "x").stderr
    assert f"{tmp_path / 'x.csv'}: {NO_IDS}\n" in said
    assert "empty ids" not in run("preprocess", tmp_path / "y.csv", "--out", tmp_path / "y").stderr


def test_the_block_size_of_the_csv_reader_does_not_change_the_dataset(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = "".join(f"r{i},{'MKTAYIVLW'[i % 5 :] * (i % 7 + 1)}\n" for i in range(300))
    (tmp_path / "x.csv").write_text(f"id,sequence\n{rows}")
    digests = []
    for block in (8 << 20, 512):
        monkeypatch.setattr("pipeline.inputs.formats.csv_records._BLOCK", block)
        done = run("preprocess", tmp_path / "x.csv", "--out", tmp_path / str(block))
        assert done.returncode == 0, done.stderr
        digests.append(digest(tmp_path / str(block)))
    assert digests[0] == digests[1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a,b\nx,y\n", ":1: no column 'sequence' in the header line, which has a, b; choose on"),
        (
            b"sp|A5A615|YNCL_ECOLI,MNV\nb,MKV\n",
            ":1: no column 'sequence': the first line seems to be data, and not the names of "
            "columns; add a header line, such as id,sequence\n",
        ),
        (
            b"YNCL_ECOLI,MNVSSRTVVLINFFAAVGLFTLISMRFGWFI\nb,MKV\n",
            ":1: no column 'sequence': the first line seems to be data",
        ),
        (
            b"uniprot_accession,ProteinSequenceOfTheEntry\nb,MKV\n",
            ":1: no column 'sequence' in the header line, which has uniprot_accession, Pro",
        ),
        (
            b"id;sequence\nx;MK\n",
            ":1: no column 'sequence' in the header line, which has only id;sequence; "
            "its columns are separated by ';': save",
        ),
        (
            b"id,sequence\na,MK\n\nb,MK,3\n",
            ":4: 3 columns, expected 2 as in the header line: put",
        ),
        (b"id,sequence\na\n", ":2: 1 column, expected 2 as in the header line: complete this line"),
        (
            b"name\na\n",
            ":1: no column 'sequence' in the header line, which has only name; choose",
        ),
        (b"\nid,sequence\n", ":1: an empty line, expected the names of columns, such as id,seq"),
        (b"id,\x00\x01\na,b\n", ":1: not text, but binary data: give FASTA, or a table"),
        (
            b"id,sequence\na,MK\n" * 9 + b"b,M\xff\n",
            ":19: not UTF-8: save the file in UTF-8, as in",
        ),
        (b'id,sequence\na,MK\nb,"MKT\nc,AK\nd,CK\n', ':3: a value begins with a quote (") and'),
        (b'id,sequence\na,MK\nb,"MKT\nc,"AK"\nd,CK\n', ':3: a value begins with a quote (")'),
        (b">a\nMK\n", ":1: a line of FASTA, expected the names of columns; give --format fasta"),
        (b"", ": the file is empty"),
        (b"id,sequence\n", ": no residue in this file"),
        (b"id,sequence\na,M\x01K\n", ": control character '\\x01': binary data"),
    ],
)
def test_the_error_for_invalid_csv_names_the_file_and_the_fault(
    run: Run, tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    done = run("preprocess", path, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert f"\nthdpack preprocess: {path}{said}" in f"\n{done.stderr}"


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        ("csv", "the names of columns"),
        ("parquet", "format parquet"),
        ("arrow", "format arrow"),
        ("swiss", "format swiss"),
        ("genbank", "format genbank"),
    ],
)
def test_fasta_that_is_read_in_another_format_gives_the_remedy(
    run: Run, tmp_path: Path, format: str, expected: str
) -> None:
    (path := tmp_path / "x.fasta").write_bytes(b">a|b,c\nMK\n")
    done = run("preprocess", path, "--format", format, "--out", tmp_path / "out")
    said = f"{path}:1: a line of FASTA, expected {expected}; give --format fasta"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, f"thdpack preprocess: {said}")


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"id,sequence\na,MKT\n", "CSV, a table of text; read it with --format csv"),
        (b"Entry\tSequence\nP1\tMKT\n", "TSV, a table of text; read it with --format tsv"),
        (b"ID   X56734; SV 1; linear; mRNA; STD; PLN; 1859 BP.\n", "read it with --format embl"),
        (b"ID   X  Reviewed;  10 AA.\n", "read it with --format swiss"),
        (b'[{"id": 1}]', "JSON"),
        (b"HEADER    HYDROLASE\n", "a PDB structure"),
        (b"data_1ABC\n#\n", "an mmCIF structure"),
        (b"# STOCKHOLM 1.0\n", "a Stockholm alignment"),
        (b"MKVLAACDEF\nGKLMN\n", "residues without a header: write a line such as >name above"),
        (b"It is a truth, that a man of fortune must want a wife.\n", "plain text, which begins"),
        (b"#!/bin/sh\necho a\n", "plain text, which begins with '#!/bin/sh echo a': give FASTA"),
        (b"import os\n\nprint(os.getcwd(), 1)\n", "plain text, which begins with 'import os"),
        (b"Entry Name,Protein names,Length\nA,B,3\n", "CSV, a table of text"),
    ],
)
def test_errors_name_the_kind_of_text_and_the_option_that_reads_it(head: bytes, kind: str) -> None:
    found = foreign(head, packed=False)
    assert found is not None
    assert kind in f"{found.description}; {found.remedy}"


@pytest.mark.parametrize("head", [b"#x\n>a\nMKT\n", b"\x89PNG\r\n\x1a\n", b">a\nMKT\x01\n"])
def test_fasta_and_binary_data_are_not_taken_for_plain_text(head: bytes) -> None:
    assert foreign(head, packed=False) is None


def test_a_readme_in_place_of_fasta_is_recognised_as_plain_text(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "README.txt"
    path.write_bytes((REPO / "README.md").read_bytes())
    done = run("preprocess", path, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert f"{path}:1: not FASTA but plain text, which begins with '# thdpack" in done.stderr


def test_skipped_files_beside_proteins_are_listed_in_one_line(tmp_path: Path) -> None:
    for name in ("a.faa", "b.txt", "genome.fna", "genome.gbff.gz", "z.csv"):
        (tmp_path / name).write_bytes(b">a\nMKT\n")
    chosen, lines = expand(str(tmp_path), "auto")
    assert [name for name, _ in chosen] == [f"{tmp_path}/a.faa"]
    assert [each.line for each in lines] == [
        f"{tmp_path}: genome.fna, genome.gbff.gz, z.csv, b.txt: not named like protein FASTA, "
        "Parquet or Arrow; name a file on the command line to read it"
    ]
    (tmp_path / "a.faa").unlink()
    with pytest.raises(InputError, match=r"holds genome\.fna, .*give --format csv or genbank"):
        expand(str(tmp_path), "auto")


def test_a_file_given_by_name_is_read_in_the_format_of_its_suffix(tmp_path: Path) -> None:
    kinds = {"x.gb": "genbank", "x.gbff.gz": "genbank", "x.embl": "embl", "x.tsv": "tsv"}
    for name in kinds:
        (tmp_path / name).write_bytes(b">a\nMKT\n")
    found, _ = find_sources(tuple(str(tmp_path / name) for name in kinds), "auto", spool=None)
    assert [source.format for source in found] == list(kinds.values())


@pytest.mark.parametrize("dry", [("--dry-run",), ()])
def test_wrong_columns_are_refused_before_any_task_and_in_a_dry_run(
    run: Run, tmp_path: Path, dry: tuple[str, ...]
) -> None:
    (tmp_path / "first.fasta").write_bytes(b">a\nMKT\n")
    (tmp_path / "x.csv").write_bytes(b"name,seq\na,MKTAYIAK\n")
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"name,seq\na,MKTAYIAK\n", mtime=0))
    table = pa.table({"name": ["a"], "seq": ["MKTAYIAK"], "length": [8]})
    parquet.write_table(table, tmp_path / "x.parquet")
    for name in ("x.csv", "x.csv.gz", "x.parquet"):
        words = ("preprocess", tmp_path / "first.fasta", tmp_path / name, "--out", tmp_path / "out")
        for wrong in ((), ("--sequence-column", "seqs"), ("--sequence-column", "length")):
            done = run(*words, *wrong, *dry)
            assert done.returncode == 1
            assert "column" in done.stderr
            assert "read, tokenize" not in done.stderr  # no phase of the build began
        done = run(*words, "--sequence-column", "seq", "--id-column", "nam", *dry)
        assert "no column 'nam'" in done.stderr
        assert "read, tokenize" not in done.stderr
