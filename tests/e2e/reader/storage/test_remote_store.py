"""A remote dataset is read correctly, even from a store that fails, stalls or flips bits."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

import pipeline.reader.cache.cache_folder
import pipeline.storage.retries
from pipeline.reader import ShardReader
from schemas.errors import DatasetError, ManifestError
from tests.conftest import OurThreads
from tests.helpers.data.corpus import read_manifest
from tests.helpers.data.damage import flip
from tests.helpers.processes.command_line import Run
from tests.helpers.stores.reading import assert_cache_is_sound, tokens
from tests.helpers.stores.stores import Trouble, http_store


def test_a_remote_dataset_is_fetched_once_and_then_read_from_the_cache(
    dataset: Path,
    truth: list[bytes],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    our_threads: OurThreads,
) -> None:
    with http_store(dataset) as url:
        for reader_number in range(2):
            with ShardReader(url, cache_dir=tmp_path / "cache") as reader:
                assert tokens(reader, len(truth)) == truth
                size = sum(entry.bytes for entry in reader.manifest.shards["train"])
                assert reader.bytes_fetched == (0 if reader_number else size)
                assert reader.bytes_verified >= size
    assert not our_threads()
    with pytest.raises(DatasetError, match=r"manifest\.json: not read from http"):
        ShardReader(url, cache_dir=tmp_path / "cache")
    assert "attempt 1 of 8" in caplog.text
    assert "Cannot connect" in caplog.text


def test_the_default_cache_is_in_xdg_cache_home(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    with ShardReader(f"troubled://{dataset}") as reader:
        next(reader)
    assert list((tmp_path / "home" / "thdpack").glob("*.arrow"))


def test_a_local_dataset_is_cached_only_on_request(
    dataset: Path, tmp_path: Path, truth: list[bytes]
) -> None:
    for url in (str(dataset), f"file://{dataset}"):
        with ShardReader(url) as reader:
            assert tokens(reader, 50) == truth[:50]
            assert reader.bytes_fetched == 0
    with ShardReader(dataset, cache_dir=tmp_path / "cache") as reader:
        assert tokens(reader, 50) == truth[:50]
        assert reader.bytes_fetched > 0


@pytest.mark.parametrize(
    "trouble",
    [
        {"errors": 5},
        {"short_reads": 5},
        {"flipped_bits": 5},
        {"stalls": 2},
        {"errors": 2, "short_reads": 2, "flipped_bits": 2, "stalls": 1},
    ],
)
def test_a_faulty_store_loses_no_data(
    dataset: Path,
    truth: list[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    our_threads: OurThreads,
    trouble: dict[str, int],
) -> None:
    monkeypatch.setattr(pipeline.storage.retries, "STALL_SECONDS", 0.2)
    Trouble.stall_seconds = 100.0  # longer than the test, so the read must time out
    with ShardReader(f"troubled://{dataset}", cache_dir=tmp_path / "cache", prefetch=2) as reader:
        for kind, count in trouble.items():
            setattr(Trouble, kind, count)
        assert tokens(reader, len(truth)) == truth
    assert all(getattr(Trouble, kind) == 0 for kind in trouble)
    Trouble.over.set()
    await_end(our_threads)
    assert_cache_is_sound(tmp_path / "cache")


def await_end(our_threads: OurThreads) -> None:
    """Wait for threads that still read from the store after their reader was closed."""
    for thread in our_threads():
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("trouble", "cause"),
    [
        ("errors", "ConnectionResetError: the store hung up"),
        ("flipped_bits", "the store sent bytes with xxh3_128"),
        ("short_reads", "100 bytes"),
    ],
)
def test_the_error_for_a_store_that_keeps_failing_names_shard_and_cause(
    dataset: Path, tmp_path: Path, trouble: str, cause: str
) -> None:
    with ShardReader(f"troubled://{dataset}", cache_dir=tmp_path / "cache", prefetch=0) as reader:
        setattr(Trouble, trouble, 10**6)
        with pytest.raises(DatasetError) as raised:
            next(reader)
        said = str(raised.value)
        assert said.startswith("train/")
        assert f"troubled://{dataset}" in said
        assert cause in said
        assert raised.value.__cause__ is not None
        Trouble.reset()
        assert next(reader).position == 0  # when the store works again, the reader does too
    assert_cache_is_sound(tmp_path / "cache")


def test_a_failed_prefetch_is_retried_when_the_shard_is_needed(
    dataset: Path, truth: list[bytes], tmp_path: Path
) -> None:
    with ShardReader(f"troubled://{dataset}", cache_dir=tmp_path / "cache", prefetch=4) as reader:
        shard = reader._split._order.epoch(0).window_shards(1)[0]
        Trouble.only = reader._split._shards.entry(shard).name
        Trouble.errors = 10**6
        found = tokens(reader, 1)
        while not reader._split._loader._wanted[shard].done():  # until the prefetch gives up
            time.sleep(0.01)
        assert Trouble.errors == 10**6 - pipeline.storage.retries.ATTEMPTS
        Trouble.reset()
        assert found + tokens(reader, len(truth) - 1) == truth


def test_a_shard_with_the_same_wrong_content_twice_is_not_fetched_again(
    dataset: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for entry in read_manifest(dataset).shards["train"]:
        flip(dataset / entry.name)
    with (
        ShardReader(f"troubled://{dataset}", cache_dir=tmp_path / "cache", prefetch=0) as reader,
        pytest.raises(DatasetError, match="twice, with the same wrong content") as raised,
    ):
        next(reader)
    assert "restore the file from a copy, or build the dataset again" in str(raised.value)
    assert len([path for path in Trouble.opened if path.endswith(".arrow")]) == 2
    assert len(caplog.records) == 1


def test_a_missing_shard_is_an_error_without_retries(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.storage.retries, "FIRST_PAUSE", 60)
    for entry in read_manifest(dataset).shards["train"]:
        (dataset / entry.name).unlink()
    with (
        ShardReader(f"troubled://{dataset}", cache_dir=tmp_path / "cache") as reader,
        pytest.raises(DatasetError, match="No such file or directory: the dataset is damaged"),
    ):
        next(reader)
    (dataset / "manifest.json").unlink()
    with pytest.raises(ManifestError, match="not a dataset"):
        ShardReader(f"troubled://{dataset}", cache_dir=tmp_path / "cache")


def test_close_does_not_wait_for_a_stalled_store(dataset: Path, tmp_path: Path) -> None:
    Trouble.stall_seconds = 100.0
    reader = ShardReader(f"troubled://{dataset}", cache_dir=tmp_path / "cache", prefetch=2)
    next(reader)
    Trouble.stalls = 100
    reader.seek(len(reader) // 2)

    def close_in_a_stall() -> None:
        while Trouble.stalls == 100:
            time.sleep(0.005)
        reader.close()

    closing = threading.Thread(target=close_in_a_stall)
    closing.start()
    began = time.monotonic()
    with pytest.raises(ValueError, match="closed"):
        tokens(reader, 100)
    closing.join()
    assert time.monotonic() - began < Trouble.stall_seconds / 2
    Trouble.reset()


def test_shards_are_prefetched(dataset: Path, tmp_path: Path) -> None:
    for prefetch in (0, 3):
        with ShardReader(
            f"troubled://{dataset}", cache_dir=tmp_path / f"cache{prefetch}", prefetch=prefetch
        ) as reader:
            next(reader)
            deadline = time.monotonic() + (0.2 if prefetch == 0 else 20)
            while (
                time.monotonic() < deadline
                and len(list((tmp_path / f"cache{prefetch}").glob("*.arrow"))) < 4 + 3
            ):
                time.sleep(0.01)
            assert len(list((tmp_path / f"cache{prefetch}").glob("*.arrow"))) == (
                4 + prefetch if prefetch else 1
            )


def test_bench_reader_measures_throughput_and_latency(
    dataset: Path,
    run: Run,
    run_process: Run,
    tmp_path: Path,
) -> None:
    done = run_process("bench-reader", dataset, "--seconds", "0.2")
    assert done.returncode == 0, done.stderr
    assert "M tokens/s" in done.stdout
    done = run(
        "bench-reader",
        f"file://{dataset}",
        "--seconds",
        "0.2",
        "--cache-dir",
        tmp_path / "cache",
        "--log-json",
        "--world-size",
        "2",
        "--rank",
        "1",
    )
    told = json.loads(done.stdout)
    total = sum(entry.bytes for entry in read_manifest(dataset).shards["train"])
    assert told["bytes_fetched"] == total
    assert told["fetch_seconds"] > 0
    assert told["tokens"] > 0
    assert told["latency"] == sorted(told["latency"])
    done = run("bench-reader", dataset, "--rank", "2")
    assert (done.returncode, done.stderr) == (
        2,
        "thdpack bench-reader: --rank is 2, expected less than --world-size, which is 1\n",
    )
    assert run("bench-reader", tmp_path / "nowhere").returncode == 1
