"""Reads of a file on a store return the same bytes as reads of a local file, in any order."""

from __future__ import annotations

import io
import random

import fsspec
import pyarrow as pa
import pytest

from pipeline.storage.ranged_file import RangedFile

CONTENT = random.Random(8).randbytes(100_000)


@pytest.fixture(autouse=True)
def _small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.storage.ranged_file.RANGE", 20_000)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Record each requested range as (begin, end)."""
    found: list[tuple[int, int]] = []
    fetch = RangedFile._fetch

    def noted(self: RangedFile, begin: int, end: int) -> bytes:
        found.append((begin, end))
        return fetch(self, begin, end)

    monkeypatch.setattr(RangedFile, "_fetch", noted)
    return found


def opened(content: bytes = CONTENT, *, at: int = 0) -> RangedFile:
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/ranged", content)
    return RangedFile("memory://ranged", fs, "/ranged", at=at)


def test_a_read_across_ranges_returns_all_bytes() -> None:
    with opened() as file:
        assert file.read(50_000) == CONTENT[:50_000]
        assert file.read(200_000) == CONTENT[50_000:]
        assert file.read(1) == b""


@pytest.mark.parametrize("seed", range(20))
def test_seeking_and_reading_in_any_order_gives_the_bytes_of_the_file(seed: int) -> None:
    rng = random.Random(seed)
    at = rng.randrange(len(CONTENT))
    with opened(at=at) as file:
        local = io.BytesIO(CONTENT)
        local.seek(at)
        for _ in range(30):
            if rng.random() < 0.3:
                place = rng.randrange(len(CONTENT))
                assert file.seek(place) == local.seek(place)
            size = rng.choice((8, 5_000, 20_000, 45_000))
            assert file.read(size) == local.read(size), f"{size} bytes that end at {local.tell()}"


@pytest.mark.parametrize("new", [pa.ipc.new_file, pa.ipc.new_stream])
def test_arrow_reads_a_large_table_with_few_requests(
    new: object, fetched: list[tuple[int, int]]
) -> None:
    table = pa.table({"sequence": ["MKV" * 100] * 300})
    sink = io.BytesIO()
    with new(sink, table.schema) as writer:  # type: ignore[operator]
        writer.write_table(table, max_chunksize=100)
    with opened(sink.getvalue()) as file:
        reader = pa.ipc.open_file(file) if new is pa.ipc.new_file else pa.ipc.open_stream(file)
        assert reader.read_all() == table
    assert len(fetched) <= 15


def test_lines_are_read_without_a_request_for_each_byte(fetched: list[tuple[int, int]]) -> None:
    with opened(b"a line\n" * 5_000) as file:
        assert len(io.BufferedReader(file).readlines()) == 5_000
    assert len(fetched) == 2
