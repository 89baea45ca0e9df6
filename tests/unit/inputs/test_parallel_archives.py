"""An archive decompressed by several threads gives the text that one thread gives, or an error."""

from __future__ import annotations

import os
import random
import zlib
from pathlib import Path

import pytest

from pipeline.inputs.decompress import broken_archive_errors, detect
from pipeline.inputs.unpack.end_mark import MARK
from pipeline.inputs.unpack.parallel_archive import open_archive
from tests.helpers.data.archives import KINDS, in_parts
from tests.helpers.data.corpus import fasta, made_records

TEXT = fasta(made_records(400))
THREADS = 8
FLIPS = 300 if os.environ.get("THDPACK_LONG") else 12
"""Number of bit flips for each kind of archive."""


def read(path: Path, threads: int = THREADS, step: int = 30_000) -> bytes:
    """Return the decompressed text of a file."""
    text = bytearray()
    buffer = bytearray(step)
    with (
        path.open("rb", buffering=0) as file,
        open_archive(file, detect(path.read_bytes()[:8]), threads) as stream,
    ):
        while count := stream.readinto(buffer):
            text += buffer[:count]
    return bytes(text)


@pytest.mark.parametrize("step", [1, 19, 100_000])
@pytest.mark.parametrize("parts", [1, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_threads_gives_the_same_text(
    tmp_path: Path, kind: str, parts: int, step: int
) -> None:
    text = TEXT[:3_000] if step < 100 else TEXT
    path = tmp_path / "x"
    path.write_bytes(in_parts(kind, text, parts))
    for threads in (1, 2, THREADS):
        assert read(path, threads, step) == text


@pytest.mark.parametrize("kind", KINDS)
def test_the_position_of_the_file_shows_the_progress(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(in_parts(kind, TEXT, 3))
    with (
        path.open("rb", buffering=0) as file,
        open_archive(file, detect(path.read_bytes()[:8]), THREADS) as stream,
    ):
        while stream.readinto(bytearray(30_000)):
            pass
        assert file.tell() == path.stat().st_size


@pytest.mark.parametrize("parts", [1, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_an_error_or_changes_nothing(
    tmp_path: Path, kind: str, parts: int
) -> None:
    rng = random.Random(f"{kind} {parts}")
    sound = in_parts(kind, TEXT, parts)
    errors = 0
    for _ in range(FLIPS):
        bit = rng.randrange(8 * len(sound))
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        path = tmp_path / "x"
        path.write_bytes(damaged)
        if detect(bytes(damaged[:8])) == "none":
            continue  # a build would read such a file as plain text
        try:
            assert read(path) == TEXT, f"bit {bit}"
        except broken_archive_errors():
            errors += 1
    assert errors > FLIPS // 2


@pytest.mark.parametrize("parts", [1, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_archive_is_an_error(tmp_path: Path, kind: str, parts: int) -> None:
    rng = random.Random(f"{kind} {parts}")
    sound = in_parts(kind, TEXT, parts)
    ends = {len(in_parts(kind, TEXT[: i * -(-len(TEXT) // parts)], i)) for i in range(1, parts + 1)}
    path = tmp_path / "x"
    for size in {len(sound) - 1, *(rng.randrange(20, len(sound)) for _ in range(FLIPS))} - ends:
        path.write_bytes(sound[:size])
        with pytest.raises(broken_archive_errors()):
            read(path)


@pytest.mark.parametrize("mode", [zlib.Z_SYNC_FLUSH, zlib.Z_FULL_FLUSH])
def test_a_gzip_archive_that_ends_between_two_blocks_of_a_member_is_an_error(
    tmp_path: Path, mode: int
) -> None:
    """pigz aligns blocks to bytes. An archive cut there looks like a shorter archive, except that
    the footer is missing."""
    deflate = zlib.compressobj(6, zlib.DEFLATED, 31)
    blocks = [
        deflate.compress(TEXT[i : i + 20_000]) + deflate.flush(mode)
        for i in range(0, len(TEXT), 20_000)
    ]
    path = tmp_path / "x"
    path.write_bytes(b"".join(blocks) + deflate.flush())
    assert read(path) == TEXT
    for count in range(1, len(blocks) + 1):
        path.write_bytes(b"".join(blocks[:count]))
        with pytest.raises(broken_archive_errors()):
            read(path)


@pytest.mark.parametrize("kind", ["gz", "bz2"])
def test_an_archive_may_end_with_the_text_of_the_mark(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(in_parts(kind, TEXT + MARK, 1))
    assert read(path) == TEXT + MARK


@pytest.mark.parametrize("kind", KINDS)
def test_appended_bytes_are_an_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x"
    for more in (b"x", b"appended text", in_parts(kind, TEXT, 1)[:9]):
        path.write_bytes(in_parts(kind, TEXT, 2) + more)
        with pytest.raises(broken_archive_errors()):
            read(path)
