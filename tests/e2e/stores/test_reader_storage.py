"""Shards that are damaged, far away, shared, or many: what the reader serves is what the manifest names, or an error that says why not."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import xxhash

import pipeline.reader.cache.cache_folder
import pipeline.storage.retries
from pipeline.reader import ShardReader
from schemas.errors import DatasetError, ManifestError
from schemas.manifest import Manifest
from tests.conftest import OurThreads
from tests.helpers.data.corpus import read_manifest
from tests.helpers.processes.command_line import REPO, Run
from tests.helpers.stores.stores import Trouble, http_store, open_in

LARGE = 1 << 30


@pytest.fixture
def dataset(many_shards: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(many_shards, tmp_path / "dataset"))


@pytest.fixture
def truth(many_shards: Path) -> list[bytes]:
    """Tokens of one and a half epochs, in order."""
    with ShardReader(many_shards, prefetch=0) as reader:
        return [bucket.input_ids.tobytes() for bucket in islice(reader, 3 * len(reader) // 2)]


@pytest.fixture(autouse=True)
def _no_trouble(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    Trouble.reset()
    monkeypatch.setattr(pipeline.storage.retries, "FIRST_PAUSE", 0.002)
    yield
    Trouble.reset()


def tokens(reader: ShardReader, count: int) -> list[bytes]:
    return [bucket.input_ids.tobytes() for bucket in islice(reader, count)]


def served_before_an_error(reader: ShardReader) -> tuple[list[bytes], str]:
    """Tokens that a reader served until it raised, and what it said; it says so again when asked again."""
    found: list[bytes] = []
    try:
        while True:
            found.append(next(reader).input_ids.tobytes())
    except DatasetError as raised:
        with pytest.raises(DatasetError) as again:
            next(reader)
        assert str(raised) == str(again.value)
        return found, str(raised)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 10)


def empty(path: Path) -> None:
    path.write_bytes(b"")


DAMAGES = {
    "flipped": (flip, "damaged"),
    "cut": (cut, "truncated"),
    "empty": (empty, "truncated"),
    "gone": (Path.unlink, "missing"),
}


@pytest.mark.parametrize("prefetch", [0, 4])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_shard_is_found_before_a_token_of_it_is_served(
    dataset: Path, truth: list[bytes], damage: str, prefetch: int
) -> None:
    spoil, message = DAMAGES[damage]
    with ShardReader(dataset, prefetch=prefetch) as reader:
        name = read_manifest(dataset).shards["train"][7].name
        numbers = _numbers_of(dataset, name)
        first = next(
            position for position in range(len(reader)) if reader.number_at(position) in numbers
        )
        spoil(dataset / name)
        found, said = served_before_an_error(reader)
    assert found == truth[:first]
    assert name in said
    assert message in said


def _numbers_of(dataset: Path, name: str) -> range:
    entries = read_manifest(dataset).shards["train"]
    place = [entry.name for entry in entries].index(name)
    first = sum(entry.buckets for entry in entries[:place])
    return range(first, first + entries[place].buckets)


def test_a_shard_that_changed_after_another_process_read_it_well_is_refused(dataset: Path) -> None:
    program = f"from pipeline.reader import ShardReader\nr = ShardReader({str(dataset)!r})\nprint(sum(1 for _, b in zip(range(len(r)), r)))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPO, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 100
    entry = read_manifest(dataset).shards["train"][3]
    stat = (dataset / entry.name).stat()
    flip(dataset / entry.name)
    os.utime(
        dataset / entry.name, ns=(stat.st_atime_ns, stat.st_mtime_ns)
    )  # nothing but its bytes tells
    with ShardReader(dataset) as reader:
        assert entry.name in served_before_an_error(reader)[1]


def test_a_shard_that_changed_between_two_epochs_is_refused(
    dataset: Path, truth: list[bytes]
) -> None:
    with ShardReader(dataset, prefetch=0) as reader:
        assert tokens(reader, len(reader)) == truth[: len(reader)]
        for entry in reader.manifest.shards["train"]:
            (dataset / entry.name).rename(
                dataset / "kept"
            )  # what is mapped stays mapped; a new file takes its place
            shutil.copy(dataset / "kept", dataset / entry.name)
            flip(dataset / entry.name)
        found, said = served_before_an_error(reader)
    assert found == truth[len(truth) * 2 // 3 :][: len(found)]
    assert "damaged" in said


def test_a_remote_dataset_is_the_same_dataset_and_its_cache_is_enough_for_the_next(
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


def test_the_default_cache_is_where_caches_are(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    with ShardReader(f"troubled://{dataset}") as reader:
        next(reader)
    assert list((tmp_path / "home" / "thdpack").glob("*.arrow"))


def test_a_local_dataset_is_cached_only_when_asked_for(
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
def test_a_store_in_trouble_costs_time_not_data(
    dataset: Path,
    truth: list[bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    our_threads: OurThreads,
    trouble: dict[str, int],
) -> None:
    monkeypatch.setattr(pipeline.storage.retries, "STALL_SECONDS", 0.2)
    Trouble.stall_seconds = 100.0  # only giving up helps
    with ShardReader(f"troubled://{dataset}", cache_dir=tmp_path / "cache", prefetch=2) as reader:
        for kind, count in trouble.items():
            setattr(Trouble, kind, count)
        assert tokens(reader, len(truth)) == truth
    assert all(getattr(Trouble, kind) == 0 for kind in trouble)
    Trouble.over.set()
    await_end(our_threads)
    assert_cache_is_sound(tmp_path / "cache")


def await_end(our_threads: OurThreads) -> None:
    """Wait for threads that a stall held up after their reader was closed."""
    for thread in our_threads():
        thread.join(60)
        assert not thread.is_alive()


def assert_cache_is_sound(cache: Path) -> None:
    for path in cache.iterdir():
        if path.suffix == ".arrow":
            assert xxhash.xxh3_128_hexdigest(path.read_bytes()) == path.stem
        else:
            assert path.name == "lock"


@pytest.mark.parametrize(
    ("trouble", "cause"),
    [
        ("errors", "ConnectionResetError: the store hung up"),
        ("flipped_bits", "the store gave bytes of xxh3_128"),
        ("short_reads", "100 bytes"),
    ],
)
def test_a_store_that_stays_in_trouble_is_named_with_shard_and_cause(
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
        assert next(reader).position == 0  # the store is well again: so are we
    assert_cache_is_sound(tmp_path / "cache")


def test_what_failed_while_it_was_prefetched_is_tried_again_when_it_is_needed(
    dataset: Path, truth: list[bytes], tmp_path: Path
) -> None:
    with ShardReader(f"troubled://{dataset}", cache_dir=tmp_path / "cache", prefetch=4) as reader:
        Trouble.only = reader._split._entries[
            reader._split._order.epoch(0).window_shards(1)[0]
        ].name
        Trouble.errors = 10**6
        found = tokens(reader, 1)
        deadline = time.monotonic() + 30
        while (
            Trouble.errors > 10**6 - pipeline.storage.retries.ATTEMPTS
            and time.monotonic() < deadline
        ):
            time.sleep(0.01)
        assert Trouble.errors == 10**6 - pipeline.storage.retries.ATTEMPTS  # the thread gives up
        Trouble.reset()
        assert found + tokens(reader, len(truth) - 1) == truth


def test_a_shard_the_store_does_not_have_fails_at_once(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.storage.retries, "FIRST_PAUSE", 60)
    for entry in read_manifest(dataset).shards["train"]:
        (dataset / entry.name).unlink()
    with (
        ShardReader(f"troubled://{dataset}", cache_dir=tmp_path / "cache") as reader,
        pytest.raises(DatasetError, match="FileNotFoundError"),
    ):
        next(reader)
    (dataset / "manifest.json").unlink()
    with pytest.raises(ManifestError, match="not a dataset"):
        ShardReader(f"troubled://{dataset}", cache_dir=tmp_path / "cache")


def test_closing_does_not_wait_for_a_store_that_stalls(dataset: Path, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty"])
def test_a_damaged_file_of_the_cache_is_fetched_again(
    dataset: Path, truth: list[bytes], tmp_path: Path, damage: str
) -> None:
    cache = tmp_path / "cache"
    with ShardReader(f"troubled://{dataset}", cache_dir=cache) as reader:
        assert tokens(reader, len(truth)) == truth
    victims = sorted(cache.glob("*.arrow"))[:3]
    for path in victims:
        DAMAGES[damage][0](path)
    Trouble.opened.clear()
    with ShardReader(f"troubled://{dataset}", cache_dir=cache) as reader:
        assert tokens(reader, len(truth)) == truth
    assert sum(path.endswith(".arrow") for path in Trouble.opened) == len(victims)
    assert_cache_is_sound(cache)


def bytes_in(cache: Path) -> int:
    sizes = {}
    with (cache / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # or files could go and come while we add up
        for path in cache.iterdir():
            with contextlib.suppress(FileNotFoundError):  # published meanwhile
                stat = path.stat()
                sizes[stat.st_ino] = stat.st_size  # a file may be seen under both its names
    return sum(sizes.values())


def uses(reader: ShardReader, epochs: int) -> list[list[str]]:
    """For each window in its order, the shards in the order in which they are opened."""
    order = reader._split._order
    found: list[list[str]] = []
    last: tuple[int, int] | None = None
    for position in range(epochs * len(reader)):
        epoch, offset = divmod(position, len(reader))
        window = epoch, order.epoch(epoch).window_at(offset)
        if window != last:
            found.append([])
            last = window
        shard = reader._split._entries[order.locate(position)[0]].xxh3_128
        if shard not in found[-1]:
            found[-1].append(shard)
    return found


def fetched_by(
    windows: list[list[str]], count: int, sizes: dict[str, int], limit: int, *, by_next_use: bool
) -> int:
    """Bytes that a cache of `limit` fetches for the first `count` windows, evicting what is used latest (Belady 1966), or longest ago, and nothing mapped."""
    flat = [shard for window in windows for shard in window]
    cached: dict[str, int] = {}  # shard → when it was last used
    fetched = now = 0
    for window in windows[:count]:
        mapped: set[str] = set()
        for shard in window:
            if shard not in cached:
                fetched += sizes[shard]
                while sum(sizes[other] for other in cached) + sizes[shard] > limit:
                    ahead = flat[now:]
                    free = [other for other in cached if other not in mapped]
                    far = {
                        other: ahead.index(other) if other in ahead else len(ahead)
                        for other in free
                    }
                    cached.pop(
                        max(free, key=lambda other: far[other] if by_next_use else -cached[other])
                    )
            cached[shard] = now
            mapped.add(shard)
            now += 1
    return fetched


def test_the_cache_keeps_its_limit_and_what_is_needed_next(
    dataset: Path, truth: list[bytes], tmp_path: Path
) -> None:
    cache, url = tmp_path / "cache", f"troubled://{dataset}"
    entries = read_manifest(dataset).shards["train"]
    sizes = {entry.xxh3_128: entry.bytes for entry in entries}
    total, largest = sum(sizes.values()), sorted(sizes.values(), reverse=True)
    with pytest.raises(
        ValueError, match=r"cache_bytes is 1000, reading troubled://.* needs (\d+)"
    ) as raised:
        ShardReader(
            url, cache_dir=cache, cache_bytes=1000, prefetch=0, world_size=4, buckets_per_step=20
        )
    needed = int(str(raised.value).partition("needs ")[2].partition(":")[0])
    assert needed == sum(
        largest[: 4 + -(-20 // min(entry.buckets for entry in entries))]
    )  # a window, and what a step may touch
    needed = sum(largest[:5])
    for limit in (needed, (needed + total) // 2, total):
        shutil.rmtree(cache, ignore_errors=True)
        most = 0
        with ShardReader(url, cache_dir=cache, cache_bytes=limit, prefetch=0) as reader:
            found = []
            for bucket in islice(reader, 3 * len(reader)):
                found.append(bucket.input_ids.tobytes())
                most = max(most, bytes_in(cache))
            fetched, windows, count = reader.bytes_fetched, uses(reader, 5), len(uses(reader, 3))
        assert found[: len(truth)] == truth
        assert most <= limit
        best = fetched_by(windows, count, sizes, limit, by_next_use=True)
        if limit < total:
            assert best < fetched_by(
                windows, count, sizes, limit, by_next_use=False
            )  # or this could not tell
        assert fetched == best


def test_a_cache_that_is_larger_than_its_limit_is_cut_down_when_it_is_opened(
    dataset: Path, truth: list[bytes], tmp_path: Path
) -> None:
    cache, url = tmp_path / "cache", f"troubled://{dataset}"
    with ShardReader(url, cache_dir=cache) as reader:
        assert tokens(reader, len(truth)) == truth
    limit = sum(
        sorted((entry.bytes for entry in read_manifest(dataset).shards["train"]), reverse=True)[:5]
    )
    assert bytes_in(cache) > limit
    with ShardReader(url, cache_dir=cache, cache_bytes=limit, prefetch=0) as reader:
        assert bytes_in(cache) <= limit
        assert tokens(reader, len(truth)) == truth


def test_files_of_others_are_evicted_first_and_rubbish_of_killed_processes_is_removed(
    dataset: Path, truth: list[bytes], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    old, rubbish = cache / f"{'0' * 32}.arrow", cache / f"{'1' * 32}.part"
    total = sum(entry.bytes for entry in read_manifest(dataset).shards["train"])
    old.write_bytes(bytes(total // 2))
    rubbish.write_bytes(bytes(1000))
    with ShardReader(
        f"troubled://{dataset}", cache_dir=cache, cache_bytes=total + 1000, prefetch=0
    ) as reader:
        assert not rubbish.exists()
        assert old.exists()
        assert tokens(reader, len(truth)) == truth
        assert reader.bytes_fetched == total  # none of ours went
    assert not old.exists()
    assert_cache_is_sound(cache)


def test_what_a_job_that_was_killed_left_makes_room_for_others(
    dataset: Path, truth: list[bytes], tmp_path: Path
) -> None:
    cache, url = tmp_path / "cache", f"troubled://{dataset}"
    entries = read_manifest(dataset).shards["train"]
    limit = sum(sorted((entry.bytes for entry in entries), reverse=True)[:5])
    fetched = []
    for rubbish in (False, True):
        shutil.rmtree(cache, ignore_errors=True)
        with ShardReader(url, cache_dir=cache, cache_bytes=limit, prefetch=0) as reader:
            if rubbish:  # of the very shards, and appearing only now
                for entry in entries:
                    (cache / f"{entry.xxh3_128}.part").write_bytes(bytes(entry.bytes))
                (cache / f"{'7' * 32}.part").write_bytes(bytes(limit))
            assert tokens(reader, len(truth)) == truth
            fetched.append(reader.bytes_fetched)
    assert fetched[0] == fetched[1]
    assert_cache_is_sound(cache)


def test_the_cache_keeps_its_limit_with_several_threads(dataset: Path, tmp_path: Path) -> None:
    cache, url = tmp_path / "cache", f"troubled://{dataset}"
    limit = sum(
        sorted((entry.bytes for entry in read_manifest(dataset).shards["train"]), reverse=True)[:8]
    )
    with ShardReader(url, cache_dir=cache, cache_bytes=limit, prefetch=3) as reader:
        for _ in islice(reader, 6 * len(reader)):
            assert bytes_in(cache) <= limit


def test_a_cache_that_is_cleared_while_shards_are_fetched_costs_time_only(
    dataset: Path, truth: list[bytes], tmp_path: Path
) -> None:
    cache, url = tmp_path / "cache", f"troubled://{dataset}"
    Trouble.read_seconds = 0.005
    stop, seen = threading.Event(), set[str]()

    def clear() -> None:
        chance = random.Random(0)
        while not (stop.wait(0.003) and seen):
            for path in list(cache.glob("*")):
                with contextlib.suppress(FileNotFoundError):
                    if path.suffix == ".arrow":
                        with path.open("rb") as file:
                            content = file.read()
                        assert xxhash.xxh3_128_hexdigest(content) == path.stem, (
                            "an unfinished file under its final name"
                        )
                        seen.add(path.stem)
                    if chance.random() < 0.1:
                        path.unlink()

    failed: list[BaseException] = []
    clearing = threading.Thread(target=lambda: _keep_error(clear, failed))
    with (
        ShardReader(url, cache_dir=cache, prefetch=2) as one,
        ShardReader(url, cache_dir=cache, prefetch=2) as two,
    ):
        clearing.start()
        both = [[], []]  # type: list[list[bytes]]
        other = threading.Thread(
            target=lambda: _keep_error(lambda: both[1].extend(tokens(two, len(truth))), failed)
        )
        other.start()
        both[0] += tokens(one, len(truth))
        other.join()
        stop.set()
        clearing.join()
    assert not failed
    assert both == [truth, truth]
    assert seen


def _keep_error(work: Callable[[], None], failed: list[BaseException]) -> None:
    try:
        work()
    except BaseException as error:
        failed.append(error)
        raise


def test_shards_are_fetched_before_they_are_needed(dataset: Path, tmp_path: Path) -> None:
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


def test_buckets_asked_for_by_number_hold_one_shard_at_a_time(
    dataset: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    with ShardReader(f"troubled://{dataset}", cache_dir=cache, prefetch=0) as reader:
        for number in range(len(reader)):
            reader[number]
            assert len(open_in(cache)) == 1


def test_a_cache_full_of_shards_in_use_is_an_error_that_says_so(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline.reader.cache.cache_folder, "ROOM_SECONDS", 0.2)
    url, cache = f"troubled://{dataset}", tmp_path / "cache"
    with (
        ShardReader(url, cache_dir=cache, prefetch=0) as one,
        ShardReader(url, seed=5, cache_dir=cache, prefetch=0, cache_bytes=LARGE) as two,
    ):
        tokens(one, 20)
        two._split._cache._folder._limit = two._split.working_set(1)  # type: ignore[union-attr] (as if both had been given what one needs)
        with pytest.raises(
            DatasetError, match=r"in use by this or other processes; raise cache_bytes \(now \d+\)"
        ):
            tokens(two, 40)
        one.close()
        assert len(tokens(two, 40)) == 40


def test_a_cache_that_cannot_be_written_is_named(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatasetError, match=r"file/cache: the cache cannot be used"):
        ShardReader(f"troubled://{dataset}", cache_dir=tmp_path / "file" / "cache")


JOB = """
import sys, random
import xxhash
import pipeline.storage.retries
pipeline.storage.retries.FIRST_PAUSE = 0.002
import tests.helpers.stores.stores
from pipeline.reader import ShardReader
url, cache, limit, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
reader = ShardReader(url, cache_dir=cache, cache_bytes=limit, prefetch=2, seed=seed)
print("started", flush=True)
chance = random.Random(seed)
for i, bucket in enumerate(reader):
    if i % 5 == 0:
        tests.helpers.stores.stores.Trouble.errors = chance.random() < 0.4
        tests.helpers.stores.stores.Trouble.short_reads = chance.random() < 0.4
    if i == int(sys.argv[5]):
        break
    if i < 2 * len(reader):
        print(xxhash.xxh3_64_hexdigest(bucket.input_ids), flush=True)
"""


def test_jobs_on_one_cache_survive_each_others_death(dataset: Path, tmp_path: Path) -> None:
    """One job reads six epochs; two others on the same cache are killed again and again, with a store that fails now and then."""
    cache, url = tmp_path / "cache", f"troubled://{dataset}"
    total = sum(entry.bytes for entry in read_manifest(dataset).shards["train"])
    arguments = [
        url,
        str(cache),
        str(2 * total),
    ]  # less than three jobs may hold: they evict each other's shards

    def job(seed: int, buckets: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", JOB, *arguments, str(seed), str(buckets)]
        return subprocess.Popen(
            command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    with ShardReader(dataset, seed=0) as reader:
        truth = [
            xxhash.xxh3_64_hexdigest(bucket.input_ids) for bucket in islice(reader, 2 * len(reader))
        ]
        survivor = job(0, 6 * len(reader))
    chance = random.Random(0)
    victims = {seed: job(seed, 10**9) for seed in (1, 2)}
    for _ in range(6):
        seed = chance.choice(list(victims))
        said = victims[seed].stdout
        assert said is not None
        assert said.readline() == "started\n", victims[seed].communicate()[1]
        for _bucket in range(chance.randrange(60)):
            assert said.readline()
        victims[seed].kill()
        victims[seed].communicate()
        for path in list(cache.glob("*.arrow"))[: chance.randrange(4)]:
            path.unlink(missing_ok=True)  # and somebody tidies up
        victims[seed] = job(seed, 10**9)
    printed, errors = survivor.communicate(timeout=60)
    for victim in victims.values():
        victim.kill()
        victim.communicate()
    assert survivor.returncode == 0, errors
    assert printed.split()[1:] == truth
    with ShardReader(
        url, cache_dir=cache
    ) as reader:  # whoever comes next finds the cache sound, and tidies up
        assert [
            xxhash.xxh3_64_hexdigest(bucket.input_ids) for bucket in islice(reader, len(truth))
        ] == truth
    assert_cache_is_sound(cache)


def test_processes_of_one_node_fetch_each_shard_once(dataset: Path, tmp_path: Path) -> None:
    program = """
import sys, tests.helpers.stores.stores
from itertools import islice
from pipeline.reader import ShardReader
tests.helpers.stores.stores.Trouble.read_seconds = 0.03
with ShardReader(sys.argv[1], cache_dir=sys.argv[2], rank=int(sys.argv[3]), world_size=4) as reader:
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in islice(reader, len(reader) // 4):
        pass
    print(reader.bytes_fetched)
"""
    commands = [
        [sys.executable, "-c", program, f"troubled://{dataset}", str(tmp_path / "cache"), str(rank)]
        for rank in range(4)
    ]
    jobs = [
        subprocess.Popen(
            command, cwd=REPO, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for command in commands
    ]
    for job in jobs:
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"
    fetched = [int(job.communicate("go\n", timeout=60)[0]) for job in jobs]
    assert sum(fetched) == sum(entry.bytes for entry in read_manifest(dataset).shards["train"])


def many_linked(dataset: Path, out: Path, shards: int) -> Manifest:
    """A dataset of many shards that are hard links to one."""
    manifest = read_manifest(dataset)
    entry = min(manifest.shards["train"], key=lambda entry: entry.buckets)
    entries = tuple(replace(entry, name=f"train/linked-{i}.arrow") for i in range(shards))
    (out / "train").mkdir(parents=True)
    for linked in entries:
        os.link(dataset / entry.name, out / linked.name)
    linked_manifest = replace(manifest, shards={"train": entries, "valid": ()})
    (out / "manifest.json").write_text(linked_manifest.to_json())
    return linked_manifest


MEASURED = """
import json, os, resource, sys
from itertools import islice
from pathlib import Path
from pipeline.reader import ShardReader
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))

def state():
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "anonymous": int(status["RssAnon"].split()[0]) * 1024,
        "files": len(os.listdir("/proc/self/fd")),
        "mappings": Path("/proc/self/maps").read_text().count(".arrow"),
    }

with ShardReader(sys.argv[1], cache_dir=sys.argv[3] or None) as reader:
    found = []
    for _ in range(int(sys.argv[2])):
        for bucket in islice(reader, len(reader)):
            pass
        found.append(state())
del bucket
found.append(state())
print(json.dumps(found))
"""


def measured(dataset: Path, epochs: int, cache: Path | str = "") -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(dataset), str(epochs), str(cache)],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("cached", [False, True])
def test_memory_files_and_mappings_are_flat_over_ten_epochs(
    dataset: Path, tmp_path: Path, cached: bool
) -> None:
    found = measured(dataset, 10, tmp_path / "cache" if cached else "")
    shards = len(read_manifest(dataset).shards["train"])
    assert found[9]["anonymous"] - found[2]["anonymous"] < 2 << 20
    assert (
        max(epoch["mappings"] for epoch in found[:10]) <= 9 < shards
    )  # a window, the prefetch, and the one whose bucket is held
    assert max(epoch["files"] for epoch in found[:10]) <= found[10]["files"] + 10
    assert found[10]["mappings"] == 0


def test_more_shards_than_a_process_may_open_need_few_files(dataset: Path, tmp_path: Path) -> None:
    many_linked(dataset, tmp_path / "many", 1500)  # the limit is 1024, see MEASURED
    found = measured(tmp_path / "many", 1)
    assert found[0]["files"] < 20
    assert found[0]["mappings"] <= 9
    assert found[1]["mappings"] == 0


def test_bench_reader_tells_what_a_store_gives(
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
    assert told["tokens"] > 0
    assert told["latency"] == sorted(told["latency"])
    done = run("bench-reader", dataset, "--rank", "2")
    assert (done.returncode, done.stderr) == (
        2,
        "thdpack: rank is 2 of 1, expected 0 ≤ rank < world_size\n",
    )
    assert run("bench-reader", tmp_path / "nowhere").returncode == 1
