"""The content hash of an input does not depend on the tasks that read the input.

docs/reference/format.md defines the content hash.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from pipeline.inputs.content_hash import HashingReader
from schemas.errors import DatasetError
from schemas.manifest import Manifest
from tests.helpers.data.corpus import fasta, made_records

BuildHere = Callable[..., Manifest]
RECORDS = made_records(200)
PIECE = 4_000


def documented_hash(content: bytes) -> str:
    pieces = [content[i : i + PIECE] for i in range(0, len(content), PIECE)]
    if len(pieces) <= 1:
        return xxhash.xxh3_128_hexdigest(content)
    return xxhash.xxh3_128_hexdigest(b"".join(map(xxhash.xxh3_128_digest, pieces)))


def table() -> bytes:
    sink = io.BytesIO()
    pq.write_table(
        pa.table(
            {
                "id": [header for header, _ in RECORDS],
                "sequence": [residues for _, residues in RECORDS],
            }
        ),
        sink,
    )
    return sink.getvalue()


INPUTS = {
    "one.fasta": fasta(RECORDS),
    "cut.fasta": fasta(RECORDS),
    # the records are so long that most ranges contain no header
    "long.fasta": fasta([("a", "ACDEFGHIKL" * 3_000), ("b", "MKV" * 3_000)], width=90_000),
    "packed.fasta.gz": gzip.compress(fasta(RECORDS), mtime=0) + gzip.compress(b"", mtime=0),
    "packed.fasta.xz": lzma.compress(fasta(RECORDS)),
    "table.parquet": table(),
    "short.fasta": b">a\nMKV\n",
}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.inputs.find.PIECE_BYTES", PIECE)


@pytest.mark.parametrize("name", INPUTS)
def test_the_content_hash_follows_its_documentation(
    build_here: BuildHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = tmp_path / name
    path.write_bytes(INPUTS[name])
    monkeypatch.setattr(
        "pipeline.inputs.find.TASK_BYTES", 1 << 30 if name == "one.fasta" else 3 * PIECE
    )
    manifest = build_here(path, tmp_path / "out", capacity=1024, max_seq_len=512)
    assert [entry.xxh3_128 for entry in manifest.inputs] == [documented_hash(INPUTS[name])]
    assert build_here(path, tmp_path / "out", capacity=1024, max_seq_len=512) == manifest, (
        "the build must find the input unchanged"
    )


@pytest.mark.parametrize("place", [0, 11, 60_000, -2])
def test_one_changed_residue_changes_the_content_hash(
    build_here: BuildHere, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    monkeypatch.setattr("pipeline.inputs.find.TASK_BYTES", 3 * PIECE)
    path = tmp_path / "made.fasta"
    path.write_bytes(INPUTS["cut.fasta"])
    build_here(path, tmp_path / "out", capacity=1024, max_seq_len=512)
    changed = bytearray(INPUTS["cut.fasta"])
    changed[place] ^= 1
    stat = path.stat()
    path.write_bytes(changed)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with pytest.raises(DatasetError, match="the inputs changed"):
        build_here(path, tmp_path / "out", capacity=1024, max_seq_len=512)


def test_the_content_hash_does_not_depend_on_how_an_input_is_read() -> None:
    rng = random.Random(0)
    content = rng.randbytes(50_000)
    for size in (None, 0, 1, PIECE - 1, PIECE, PIECE + 1, 30_000, 50_000):
        reader = HashingReader(io.BytesIO(content), piece=PIECE, size=size)
        for _ in range(rng.randrange(20)):
            if rng.random() < 0.5:
                reader.read(rng.choice([1, 7, 3_000, PIECE, 9_000]))
            else:
                reader.readinto(bytearray(rng.choice([1, 7, 3_000, PIECE, 9_000])))
        pieces = reader.finish()
        end = len(content) if size is None else size
        assert pieces == [
            xxhash.xxh3_128_hexdigest(content[i : min(i + PIECE, end)])
            for i in range(0, end, PIECE)
        ]
