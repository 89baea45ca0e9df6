"""All kinds of input give the same records."""

from __future__ import annotations

import bz2
import gzip
import http.server
import lzma
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.data.archives import bgzip, zstd
from tests.helpers.data.corpus import (
    as_read,
    fasta,
    made_records,
    read_buckets,
    read_records,
    sequences_in,
)
from tests.helpers.processes.command_line import Run

RECORDS = [(header.split()[0], residues) for header, residues in made_records(300)]
TEXT = fasta(made_records(300))


def members(data: bytes) -> bytes:
    return b"".join(
        gzip.compress(data[i : i + 10_000], mtime=0) for i in range(0, len(data), 10_000)
    )


ARCHIVES: dict[str, Callable[[bytes], bytes]] = {
    "x.fasta": bytes,
    "x.fa.gz": gzip.compress,
    "multi.faa.gz": members,
    "x.fasta.bgz": bgzip,
    "x.fasta.zst": zstd.compress,
    "frames.fasta.zst": lambda data: zstd.compress(data[:5000]) + zstd.compress(data[5000:]),
    "x.fasta.xz": lzma.compress,
    "x.fasta.bz2": bz2.compress,
    "gzip_under_another_name.fasta": gzip.compress,
}


def held(out: Path) -> list[tuple[str, str]]:
    """Return (id, residues) of each record. Sequences cut from one record are joined again."""
    rows = read_records(out)
    pieces: dict[int, list[tuple[int, str]]] = {}
    for bucket in read_buckets(out):
        for ordinal, start, residues in sequences_in(bucket):
            pieces.setdefault(ordinal, []).append((start, residues))
    return [
        (row["id"], "".join(part for _, part in sorted(pieces.get(row["ordinal"], []))))
        for row in rows
    ]


EXPECTED = [(name, as_read(residues)) for name, residues in RECORDS]
OPTIONS = ("--dedup", "none", "--long", "split", "--capacity", "4096", "--max-seq-len", "256")


def check(
    run: Run, out: Path, *inputs: object, stdin: bytes | None = None, options: tuple[str, ...] = ()
) -> None:
    done = run("preprocess", *inputs, "--out", out, *OPTIONS, *options, stdin=stdin)
    assert done.returncode == 0, done.stderr
    assert held(out) == EXPECTED


@pytest.mark.parametrize("name", ARCHIVES)
def test_every_kind_of_archive_gives_the_same_records(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(ARCHIVES[name](TEXT))
    check(run, tmp_path / "out", tmp_path / name)


def test_standard_input_is_read_like_a_file(run_process: Run, tmp_path: Path) -> None:
    check(run_process, tmp_path / "out", "-", stdin=gzip.compress(TEXT, mtime=0))


def test_folders_and_globs_expand_in_byte_order_and_skipped_files_are_named(
    run: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    (folder / "b").mkdir(parents=True)
    records = made_records(300)
    for name, part in (
        ("Z.fa", slice(0, 100)),
        ("a.faa.gz", slice(100, 200)),
        ("b/c.fasta", slice(200, 300)),
    ):
        data = fasta(records[part])
        (folder / name).write_bytes(gzip.compress(data, mtime=0) if name.endswith("gz") else data)
    (folder / "notes.txt").write_text("not sequences")
    check(run, tmp_path / "out", folder)
    done = run("preprocess", folder, "--out", tmp_path / "dry", "--dry-run")
    assert "skipped" in done.stdout
    assert "notes.txt" in done.stdout
    assert not (tmp_path / "dry").exists()
    check(run, tmp_path / "glob", f"{folder}/[Za]*", f"{folder}/b/*.fasta")
    assert {row["source"] for row in read_records(tmp_path / "glob")} == {
        "Z.fa",
        "a.faa.gz",
        "b/c.fasta",
    }


@pytest.mark.parametrize("kind", ["parquet", "arrow", "stream"])
def test_parquet_and_arrow_are_read_and_a_wrong_sequence_column_is_an_error(
    run: Run, tmp_path: Path, kind: str
) -> None:
    table = pa.table(
        {
            "name": [name for name, _ in RECORDS],
            "seq": [residues for _, residues in RECORDS],
            "x": range(len(RECORDS)),
        }
    )
    path = tmp_path / ("data.parquet" if kind == "parquet" else "data.arrow")
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=70)
    else:
        with (pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream)(
            path, table.schema
        ) as writer:
            writer.write_table(table, max_chunksize=70)
    check(run, tmp_path / "out", path, options=("--sequence-column", "seq", "--id-column", "name"))
    assert [row["offset"] for row in read_records(tmp_path / "out")] == list(range(300))
    wrong = run("preprocess", path, "--out", tmp_path / "wrong")
    assert wrong.returncode == 1
    assert "no column 'sequence': the columns are name, seq, x; choose one" in wrong.stderr
    assert (
        run("preprocess", path, "--out", tmp_path / "wrong", "--sequence-column", "x").returncode
        == 1
    )


SWISS = """ID   {name}              Reviewed;         {size} AA.
AC   {name};
DT   01-JAN-2000, integrated into UniProtKB/Swiss-Prot.
DE   RecName: Full=Made up;
OS   Escherichia coli.
SQ   SEQUENCE   {size} AA;  1000 MW;  0000000000000000 CRC64;
     {residues}
//
"""


def test_a_swiss_prot_flat_file_is_read_and_a_broken_one_is_an_error(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "x.dat"
    path.write_text(
        "".join(
            SWISS.format(name=name, size=len(seq), residues=seq)
            for name, seq in (("P00001", "MKTAYIAKQR"), ("P00002", "GGLAVEC"))
        )
    )
    assert run("preprocess", path, "--format", "swiss", "--out", tmp_path / "out").returncode == 0
    assert held(tmp_path / "out") == [("P00001", "MKTAYIAKQR"), ("P00002", "GGLAVEC")]
    path.write_text("ID   broken\nnonsense\n")
    broken = run("preprocess", path, "--format", "swiss", "--out", tmp_path / "broken")
    assert broken.returncode == 1
    assert f"{path}:" in broken.stderr
    assert "Traceback" not in broken.stderr


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """Serve the test's folder by HTTP on loopback; return the URL."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path))
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


def test_http_and_file_urls_are_read(run: Run, tmp_path: Path, web: str) -> None:
    (tmp_path / "x.fasta.gz").write_bytes(gzip.compress(TEXT, mtime=0))
    check(run, tmp_path / "out", f"{web}/x.fasta.gz")
    check(run, tmp_path / "file", f"file://{tmp_path}/x.fasta.gz")
    missing = run("preprocess", f"{web}/none.fasta", "--out", tmp_path / "none")
    assert missing.returncode == 2
    assert f"{web}/none.fasta" in missing.stderr
    assert "Traceback" not in missing.stderr
