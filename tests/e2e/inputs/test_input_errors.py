"""Errors about inputs name the kind of the file, or the line and the invalid letter."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.helpers.data.archives import bgzip, skippable
from tests.helpers.data.corpus import read_records
from tests.helpers.processes.command_line import Run, preprocess

FASTA = b">a\nMKTAYI\n>b\nMKVLA\n"
FASTQ = b"@read1\nMKTAY\n+\n!!!!!\n"


def refusal(run: Run, path: Path, *options: str) -> str:
    """Return the one-line error of preprocess for a file."""
    done = run("preprocess", path, "--out", path.parent / "out", *options)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    [error] = [line for line in done.stderr.splitlines() if line.startswith("thdpack ")]
    return error


def test_a_dataset_as_an_input_is_refused(run: Run, sample: Path, tmp_path: Path) -> None:
    dataset = preprocess(sample, tmp_path / "dataset")
    said = f"not FASTA: name the FASTA files that the dataset was made from: {sample.name}"
    assert refusal(run, dataset) == f"thdpack preprocess: {dataset}: a thdpack dataset, {said}"
    shard = next((dataset / "train").iterdir())
    for part in (dataset / "train", dataset / "records", shard, dataset / "manifest.json"):
        done = run("preprocess", part, "--out", tmp_path / "out")
        of_part = f"thdpack preprocess: {part}: a part of a thdpack dataset, {said}\n"
        assert (done.returncode, done.stderr) == (1, of_part)
    done = run("append", dataset, f"{dataset}/")
    own = f"thdpack append: {dataset}/: a thdpack dataset, {said}\n"
    assert (done.returncode, done.stderr) == (1, own)
    assert not (tmp_path / "out").exists()
    (fasta := dataset / "train" / "x.fasta").write_bytes(FASTA)
    assert run("preprocess", fasta, "--out", tmp_path / "out").returncode == 0


def zipped() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.fasta", FASTA)
    return file.getvalue()


def tarred(name: str = "x.fasta") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(FASTA)
        archive.addfile(entry, io.BytesIO(FASTA))
    return file.getvalue()


def test_an_error_names_the_kind_of_a_file_that_is_not_fasta(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.fasta"
    for content, kind in (
        (FASTA.decode().encode("utf-16"), "UTF-16 text"),
        (FASTA.decode().encode("utf-16-le"), "UTF-16 text"),
        (FASTA.decode().encode("utf-16-be"), "UTF-16 text"),
        (zipped(), "a zip archive"),
        (tarred(), "a tar archive"),
        (tarred(">x.fasta"), "a tar archive"),
        (gzip.compress(tarred(), mtime=0), "a tar archive"),
        (b"\x1f\x9d\x90" + bytes(20), "a file packed by compress (.Z)"),
        (b"\x04\x22\x4d\x18" + bytes(20), "an lz4 archive"),
        (bgzip(b"BAM\x01" + bytes(200)), "a BAM file"),
        (struct.pack("<IIII", 0x1A412743, 0, 1, 0), "a 2bit file"),
        (struct.pack(">IIII", 0x1A412743, 0, 1, 0), "a 2bit file"),
        (FASTQ, "FASTQ"),
        (gzip.compress(FASTQ.replace(b"\n", b"\r\n"), mtime=0), "FASTQ"),
        (b"\n<!DOCTYPE html>\n<html>404</html>\n", "an HTML page"),
        (b"<HTML><body>>moved</body></HTML>", "an HTML page"),
        (b'<?xml version="1.0"?>\n<uniprot>\n', "XML"),
        (b"LOCUS       X 10 aa\n", "a GenBank file of proteins (GenPept); read it with --format"),
        (b"LOCUS       X 10 bp    DNA\n", "a GenBank file of nucleotides: give the proteins of"),
        (b"ID   X  Reviewed;  10 AA.\n", "read it with --format swiss"),
        (gzip.compress(gzip.compress(FASTA, mtime=0), mtime=0), "a gzip archive inside an archive"),
        (lzma.compress(gzip.compress(FASTA, mtime=0)), "a gzip archive inside an archive"),
    ):
        path.write_bytes(content)
        said = refusal(run, path)
        assert kind in said, said
        assert said.startswith(f"thdpack preprocess: {path}:1: "), said
    path.write_bytes(skippable(gzip.compress(FASTA, mtime=0)) * 2)
    assert f"{path}: the file is empty after decompression; write or" in refusal(run, path)


def test_fasta_that_looks_like_another_kind_is_read(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.fasta"
    path.write_bytes(b">" + b"a" * 256 + b"ustar\nMKT\n>BAM\x01\nMKV\n")
    assert run("preprocess", path, "--out", tmp_path / "out").returncode == 0


def test_the_error_for_residues_on_the_header_line_gives_the_cause(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "x.fasta"
    path.write_bytes(b">a\tMKTAYI\n>b\tMKVLA\n")
    assert (
        f"{path}:1: no residue in this file: residues are on the line of the id, after a tab"
        in refusal(run, path)
    )
    path.write_bytes(b">a some protein\n>b\n")
    assert f"{path}:2: no residue in this file; FASTA has the residues" in refusal(run, path)


def test_the_error_for_damaged_bzip2_names_bzip2(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "x.fasta.bz2"
    packed = bytearray(bz2.compress(FASTA * 100))
    packed[40] ^= 4
    path.write_bytes(packed)
    assert (
        refusal(run, path)
        == f"thdpack preprocess: {path}: damaged bzip2 archive; download or copy it again"
    )


@pytest.mark.parametrize(
    ("text", "line", "letter"),
    [
        (b">a\rMKT\r>b\rMK1T\r", 4, "1"),
        (b">a\rMKT\r;2\rM3T\r>b\rMK1T\r", 4, "3"),
        (b">a\r\nMKT\r\n>b\r\nMK1T\r\n", 4, "1"),
        (b">a\n\r\nMK\rM1\n", 4, "1"),
        (b">a\rMKT\n>b\xff\xfe\rM*T\r", 4, "*"),
        (b">a\nMK\n;caf\xe9\nM\xc3\xa9\n", 4, "é"),
        (b">a\nMK**\n", 2, "*"),
        (b">a\nMK\nM\tK\n", 3, "\\t"),
        (b";\xe9\n>a\nM1", 3, "1"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_an_error_names_the_first_unknown_letter_and_its_line(
    run: Run, tmp_path: Path, text: bytes, line: int, letter: str, packed: bool
) -> None:
    path = tmp_path / "x.fasta"
    path.write_bytes(gzip.compress(text, mtime=0) if packed else text)
    assert f"{path}:{line}: letter '{letter}' is outside" in refusal(
        run, path, "--on-invalid", "error"
    )


@pytest.mark.parametrize("residues", [b"MKT", b"MK\xc3\xa9T"])
def test_a_comment_may_have_any_encoding(run: Run, tmp_path: Path, residues: bytes) -> None:
    path = tmp_path / "x.fasta"
    path.write_bytes(b">a\n" + residues + b"\n;caf\xe9\r;\xff\r\n" + residues + b"\n>b\nMKV\n")
    assert run("preprocess", path, "--out", tmp_path / "out").returncode == 0
    assert [row["residues"] for row in read_records(tmp_path / "out")] == [
        2 * len(residues.decode()),
        3,
    ]


def test_an_error_after_a_comment_in_another_encoding_names_the_right_line(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "x.fasta"
    for residues, message in (
        (b"M\xe9", "byte 0xe9 is not UTF-8"),
        (b"\xc3\xa9\x01", "control character"),
    ):
        path.write_bytes(b">a\nMK\n;\xe9\xe9\n" + residues + b"\n")
        said = refusal(run, path)
        assert f"{path}:4: " in said
        assert message in said
