"""Damage in an archive (a compressed file) is an error or changes no record. Unusual but valid
archives are read."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import random
import subprocess
import threading
from pathlib import Path

import pytest

from pipeline.inputs.decompress import decompressed, detect
from pipeline.inputs.error_location import line_at
from pipeline.inputs.formats.fasta_records import read_fasta
from pipeline.inputs.source import Source
from schemas.errors import InputError
from schemas.vocabulary import ESM2
from tests.helpers.data.archives import KINDS, in_parts, skippable, zstandard, zstd
from tests.helpers.data.corpus import fasta, made_records

TEXT = fasta(made_records(40))
FLIPS = 1_000 if os.environ.get("THDPACK_LONG") else 40
"""Number of bit flips for each kind of archive."""

Rows = list[tuple[bytes, bytes]]


def source(path: Path) -> Source:
    content = path.read_bytes()
    return Source(
        url=str(path),
        name=path.name,
        bytes=len(content),
        fingerprint="",
        format="fasta",
        compression=detect(content[:8]),
        piece=1 << 20,
    )


def rows(path: Path) -> Rows:
    """Return all ids and residues of each block of a file."""
    blocks = read_fasta(source(path), ESM2, 0, path.stat().st_size, lambda count: None)
    return [(block.ids.tobytes(), block.tokens.tobytes()) for block, _ in blocks]


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_an_error_or_changes_no_record(
    tmp_path: Path, kind: str, parts: int
) -> None:
    rng = random.Random(f"{kind} {parts}")
    path = tmp_path / "x.fasta"
    sound = in_parts(kind, TEXT, parts)
    path.write_bytes(sound)
    expected = rows(path)
    errors = 0
    for _ in range(FLIPS):
        bit = rng.randrange(8 * len(sound))
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            assert rows(path) == expected, f"bit {bit}"
        except InputError as error:
            errors += 1
            assert str(path) in str(error)
    assert errors > FLIPS // 2  # most flipped bits must be detected


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_in_the_magic_bytes_of_a_part_is_an_error(tmp_path: Path, kind: str) -> None:
    first = in_parts(kind, TEXT, 1)
    path = tmp_path / "x.fasta"
    for bit in range(16):
        second = bytearray(first)
        second[bit // 8] ^= 1 << bit % 8
        path.write_bytes(first + second + first)
        with pytest.raises(InputError, match=r"archive \(a complete part is followed by"):
            rows(path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cut", [1, 40])
def test_a_truncated_last_part_is_an_error(tmp_path: Path, kind: str, cut: int) -> None:
    path = tmp_path / "x.fasta"
    path.write_bytes(in_parts(kind, TEXT, 1) * 2)
    os.truncate(path, path.stat().st_size - cut)
    with pytest.raises(InputError, match="truncated"):
        rows(path)


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_for_text_after_an_archive_says_that_something_was_appended(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "x.fasta"
    path.write_bytes(in_parts(kind, TEXT, 1) + b">appended\nMKTAYI\n")
    with pytest.raises(InputError, match="or something was appended"):
        rows(path)


@pytest.mark.parametrize("kind", ["bz2", "xz", "zst"])
def test_an_archive_of_several_parts_is_read_in_chunks_of_any_size(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    archive = in_parts(kind, TEXT, 5)
    for size in (1, 2, 3, 5, 7, 100):
        monkeypatch.setattr("pipeline.inputs.decompress._READ", size)
        assert decompressed(io.BytesIO(archive), detect(archive[:8])).read() == TEXT


def test_padding_between_xz_streams_and_after_them_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half = len(TEXT) // 2
    archive = lzma.compress(TEXT[:half]) + bytes(8) + lzma.compress(TEXT[half:]) + bytes(4)
    for size in (1, 5, 1 << 18):
        monkeypatch.setattr("pipeline.inputs.decompress._READ", size)
        assert decompressed(io.BytesIO(archive), "xz").read() == TEXT
        with pytest.raises(Exception, match="6 zeros of padding"):
            decompressed(io.BytesIO(lzma.compress(TEXT) + bytes(6)), "xz").read()


def test_skippable_zstd_frames_may_be_anywhere(tmp_path: Path) -> None:
    half = len(TEXT) // 2
    path = tmp_path / "x.fasta"
    path.write_bytes(TEXT)
    expected = rows(path)
    path.write_bytes(
        skippable(b"size")
        + zstandard(TEXT[:half])
        + skippable(b"")
        + zstandard(TEXT[half:])
        + skippable(b"end")
    )
    assert rows(path) == expected


def test_an_archive_that_needs_too_much_memory_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.fasta"
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 28})
    path.write_bytes(compressor.compress(TEXT) + compressor.flush())
    with pytest.raises(
        InputError, match=r"zstd archive: unpacking it takes more memory.*zstd -dc --long=31"
    ):
        rows(path)
    monkeypatch.setattr("pipeline.inputs.decompress._XZ_MEMORY", 1 << 20)
    path.write_bytes(lzma.compress(TEXT))
    with pytest.raises(InputError, match="xz archive: unpacking it takes more memory"):
        rows(path)


def test_an_archive_that_needs_a_dictionary_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.fasta"
    dictionary = zstd.train_dict([TEXT[i : i + 500] for i in range(0, len(TEXT), 100)], 1000)
    path.write_bytes(zstd.compress(TEXT, zstd_dict=dictionary))
    with pytest.raises(InputError, match="zstd archive: packed with a zstd dictionary"):
        rows(path)


LONG_TEXT = (b">a\n" + b"M" * 60_000 + b"\n") * 1_000
"""Text so long that only a part is decompressed ahead of the parser."""


def test_no_thread_remains_after_an_error_in_the_text_of_an_archive(tmp_path: Path) -> None:
    """Threads end even if the caller keeps the error, whose traceback refers to the stream."""
    path = tmp_path / "x.fasta"
    path.write_bytes(gzip.compress(b"text\n" + LONG_TEXT, 1))
    before = set(threading.enumerate())
    with pytest.raises(InputError) as error:
        rows(path)
    assert set(threading.enumerate()) <= before  # threads of other tests may end meanwhile
    assert error.value.line == 1


def test_no_thread_remains_after_only_a_part_of_an_archive_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.fasta"
    path.write_bytes(gzip.compress(LONG_TEXT, 1))
    before = set(threading.enumerate())
    blocks = read_fasta(source(path), ESM2, 0, path.stat().st_size, lambda count: None)
    next(blocks)
    blocks.close()
    assert line_at(source(path), 3) == 2
    assert set(threading.enumerate()) <= before  # threads of other tests may end meanwhile


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (["zstd", "-q", "-c"], "zstd"),
        (["pzstd", "-q", "-c"], "zstd"),
        (["xz", "-c", "--block-size=2000"], "xz"),
        (["bzip2", "-c"], "bzip2"),
        (["gzip", "-c"], "gzip"),
    ],
)
def test_archives_of_the_usual_commands_are_read(
    tmp_path: Path, command: list[str], kind: str
) -> None:
    path = tmp_path / "x.fasta"
    path.write_bytes(TEXT)
    expected = rows(path)
    try:
        packed = subprocess.run([*command, str(path)], capture_output=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip(f"{command[0]} is not installed")
    path.write_bytes(packed)
    assert detect(packed[:8]) == kind
    assert rows(path) == expected
