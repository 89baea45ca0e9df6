"""All kinds of input give the same records. A broken input gives a clear error."""

from __future__ import annotations

import bz2
import gzip
import http.server
import lzma
import os
import shutil
import subprocess
import sys
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
    digest,
    fasta,
    made_records,
    read_buckets,
    read_records,
    sequences_in,
)
from tests.helpers.processes.command_line import REPO, Run, environment

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
    assert missing.returncode == 1
    assert f"{web}/none.fasta" in missing.stderr
    assert "Traceback" not in missing.stderr


def test_the_error_for_an_unknown_protocol_names_the_protocol(run: Run, tmp_path: Path) -> None:
    done = run("preprocess", "nosuch://bucket/x.fa", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "nosuch://" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cut.fasta.gz", gzip.compress(TEXT, mtime=0)[:-2000], "truncated gzip archive"),
        ("cut.fasta.bgz", bgzip(TEXT)[:-3000], "truncated gzip archive"),
        ("cut.fasta.zst", zstd.compress(TEXT)[:-200], "truncated zstd archive"),
        ("cut.fasta.xz", lzma.compress(TEXT)[:-200], "truncated xz archive"),
        ("cut.fasta.bz2", bz2.compress(TEXT)[:-200], "truncated bzip2 archive"),
        (
            "bad.fasta.gz",
            gzip.compress(TEXT, mtime=0)[:3000]
            + b"\xff" * 500
            + gzip.compress(TEXT, mtime=0)[3500:],
            "gzip archive",
        ),
        ("cut.parquet", b"PAR1" + bytes(100), "not a readable parquet file"),
        ("empty.fasta", b"", "empty.fasta: the file is empty"),
        ("headers.fasta", b">a\n>b\n", "headers.fasta:2: no residue"),
        (
            "preamble.fasta",
            b"# hello\n>a\nMK\n",
            "1: expected '>' before residues: write a line such as >name",
        ),
        ("binary.fasta", b">a\nMK\nM\x00K\n", "binary.fasta:3: byte 0x00: binary data"),
        ("latin1.fasta", b">a\nMK\xe5\n", "latin1.fasta:2: byte 0xe5 is not UTF-8"),
    ],
)
def test_a_broken_input_is_a_clear_error_and_the_previous_dataset_stays(
    run: Run, tmp_path: Path, sample: Path, name: str, content: bytes, message: str
) -> None:
    out = tmp_path / "out"
    assert run("preprocess", sample, "--out", out).returncode == 0
    before = digest(out)
    good = tmp_path / "good.fasta"
    good.write_bytes(TEXT)
    (tmp_path / name).write_bytes(content)
    done = run("preprocess", good, tmp_path / name, "--out", out, "--overwrite")
    assert done.returncode == 1
    assert message in done.stderr
    assert str(tmp_path / name) in done.stderr
    assert "Traceback" not in done.stderr
    assert digest(out) == before


def test_the_text_of_an_error_is_the_same_from_a_worker_as_from_the_driver(
    run: Run,
    run_process: Run,
    tmp_path: Path,
) -> None:
    """The driver gets a worker's error from another process, with file and line."""
    for name, content in (
        ("cut.fasta.gz", gzip.compress(TEXT, mtime=0)[:-2000]),
        ("binary.fasta", b">a\nMK\nM\x00K\n"),
    ):
        (tmp_path / name).write_bytes(content)
        said = [
            way("preprocess", tmp_path / name, "--out", tmp_path / "out").stderr.splitlines()[-1]
            for way in (run, run_process)
        ]
        assert said[0] == said[1]
        assert name in said[0]


def test_the_option_on_invalid_error_reports_the_letter_and_its_line(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "x.fasta"
    path.write_text(">a\nMKT*\n\n>b\nMKT\n;1\nMK1T\n")
    done = run("preprocess", path, "--out", tmp_path / "out", "--on-invalid", "error")
    assert done.returncode == 1
    assert f"{path}:7: letter '1'" in done.stderr


def test_a_missing_input_and_an_input_named_twice_are_errors(
    run: Run, tmp_path: Path, sample: Path
) -> None:
    (tmp_path / "in").mkdir()
    sample = Path(shutil.copy(sample, tmp_path / "in"))
    for arguments, code, message in (
        (["missing.fasta"], 1, "no such file"),
        (["missing*.fasta"], 1, "no file matches"),
        ([sample, sample], 2, "named twice"),
        ([sample.parent / ".." / "in", sample], 2, "named twice"),
    ):
        done = run("preprocess", *arguments, "--out", tmp_path / "out")
        assert done.returncode == code, done.stdout
        assert message in done.stderr
        assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_full_disk_is_a_clear_error(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The destination is a file system of 1 MB. Mounting it needs root, which CI has.

    Other programs may fill a disk during a build, so the check at the start is left out here.
    """
    monkeypatch.setattr("pipeline.build.build_dataset.check_free_space", lambda *_: None)
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)],
        capture_output=True,
        check=False,
    ).returncode:
        pytest.skip("mounting needs root")
    try:
        big = tmp_path / "big.fasta"
        big.write_bytes(fasta(made_records(6000)))
        done = run("preprocess", big, "--out", small / "out")
        assert done.returncode == 1
        assert "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr
        assert not (small / "out" / "manifest.json").exists()
        assert not list((small / "out").rglob("*.tmp"))
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_line_of_gigabytes_does_not_exhaust_the_memory(tmp_path: Path) -> None:
    """Limit memory to 4 GB, and read a sparse file of 8 GB."""
    path = tmp_path / "long.fasta"
    with path.open("wb") as file:
        file.write(b">")
        for _ in range(150):
            file.write(b"M" * (1 << 20))
        file.truncate(8 << 30)
    build = f"{sys.executable} -m pipeline preprocess {path} --workers 1 --out {tmp_path / 'out'}"
    done = subprocess.run(
        ["bash", "-c", f"ulimit -v 4000000; exec {build}"],
        cwd=REPO,
        env=environment(),
        capture_output=True,
        check=False,
    )
    os.truncate(path, 0)
    assert done.returncode == 1
    assert f"{path}:1: a record of more than 128 MiB".encode() in done.stderr
