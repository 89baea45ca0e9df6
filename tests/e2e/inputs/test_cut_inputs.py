"""Truncated files are refused, even if a parser would accept them as complete."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pyarrow as pa
import pytest

from tests.e2e.inputs.test_inputs import SWISS
from tests.helpers.data.archives import bgzip
from tests.helpers.data.corpus import fasta, made_records, read_records
from tests.helpers.processes.command_line import Run

GENBANK = """LOCUS       {name}                 10 aa            linear   BCT 01-JAN-2000
DEFINITION  made up.
ACCESSION   {name}
VERSION     {name}.1
KEYWORDS    .
SOURCE      x
  ORGANISM  x
            Bacteria.
FEATURES             Location/Qualifiers
     source          1..10
ORIGIN
        1 mktayiakqr
//
"""
SWISS_PROT = SWISS.format(name="{name}", size=10, residues="MKTAYIAKQR")


def refusal(run: Run, path: Path, *options: str) -> str:
    done = run("preprocess", path, "--out", path.parent / "cut", *options)
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_a_bgz_file_cut_between_two_blocks_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.fasta.bgz"
    whole = bgzip(fasta(made_records(60)))
    path.write_bytes(whole)
    assert run("preprocess", path, "--out", tmp_path / "out").returncode == 0
    path.write_bytes(whole + whole)
    assert run("preprocess", path, "--out", tmp_path / "two").returncode == 0
    starts = [i for i in range(1, len(whole)) if whole.startswith(b"\x1f\x8b\x08\x04", i)]
    assert len(starts) > 3
    for start in starts:
        path.write_bytes(whole[:start])
        assert f"{path}: truncated gzip archive: the empty block that bgzip" in refusal(run, path)


@pytest.mark.parametrize(("format", "text"), [("swiss", SWISS_PROT), ("genbank", GENBANK)])
def test_a_flat_file_cut_in_its_last_record_is_refused(
    run: Run, tmp_path: Path, format: str, text: str
) -> None:
    path = tmp_path / "x.dat"
    first, second = text.format(name="P00001"), text.format(name="P00002")
    path.write_text(first + second)
    assert (
        run(
            "preprocess", path, "--format", format, "--out", tmp_path / "out", "--dedup", "none"
        ).returncode
        == 0
    )
    assert [row["residues"] for row in read_records(tmp_path / "out")] == [10, 10]
    for cut in (5, second.index("\n//") - 2, second.index("\n//") + 1, len(second) - 2):
        path.write_text(first + second[:cut])
        assert f"{path}:" in refusal(run, path, "--format", format), cut
    path.write_text(first + second[:-1])
    assert run("preprocess", path, "--format", format, "--out", tmp_path / "whole").returncode == 0


def test_an_arrow_stream_cut_between_two_batches_is_refused(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    table = pa.table({"sequence": ["MKT"] * 50})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=10)
    whole = sink.getvalue()
    messages = [i for i in range(8, len(whole), 8) if whole.startswith(b"\xff\xff\xff\xff", i)]
    assert len(messages) == 6  # five batches and the end-of-stream marker
    for end in messages:
        path.write_bytes(whole[:end])
        assert f"{path}: truncated Arrow stream" in refusal(run, path)
    path.write_bytes(whole)
    assert run("preprocess", path, "--out", tmp_path / "out").returncode == 0


def test_a_compressed_table_is_refused_with_a_reason(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet.gz"
    path.write_bytes(gzip.compress(b"PAR1", mtime=0))
    assert f"{path}: a gzip archive of a table; unpack it" in refusal(run, path)
