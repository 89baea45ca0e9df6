"""Several readers, threads and processes use one cache."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import xxhash

from pipeline.reader import ShardReader
from tests.helpers.data.corpus import read_manifest
from tests.helpers.processes.command_line import REPO
from tests.helpers.stores.reading import assert_cache_is_sound, tokens
from tests.helpers.stores.stores import Trouble


def test_a_cache_cleared_while_shards_are_fetched_loses_no_data(
    dataset: Path, truth: list[bytes], tmp_path: Path
) -> None:
    cache, url = tmp_path / "cache", f"troubled://{dataset}"
    Trouble.read_seconds = 0.005
    stop, seen = threading.Event(), set[str]()
    # Remove each .part file at most three times, because each removal makes one of the eight
    # attempts of a fetch fail.
    removals: Counter[Path] = Counter()

    def clear() -> None:
        chance = random.Random(0)
        while not (stop.wait(0.003) and seen):
            for path in list(cache.glob("*")):
                with contextlib.suppress(FileNotFoundError):
                    if path.suffix == ".arrow":
                        with path.open("rb") as file:
                            content = file.read()
                        assert xxhash.xxh3_128_hexdigest(content) == path.stem, (
                            "an unfinished file has its final name"
                        )
                        seen.add(path.stem)
                    if chance.random() < 0.1 and (path.suffix != ".part" or removals[path] < 3):
                        removals[path] += 1
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


def test_a_job_survives_kills_of_other_jobs_on_its_cache(dataset: Path, tmp_path: Path) -> None:
    """One job reads six epochs while two other jobs on its cache are killed repeatedly.

    The store fails from time to time, and shards are deleted from the cache.
    """
    cache, url = tmp_path / "cache", f"troubled://{dataset}"
    total = sum(entry.bytes for entry in read_manifest(dataset).shards["train"])
    arguments = [
        url,
        str(cache),
        str(2 * total),
    ]  # the limit is too small for three jobs, so they evict each other's shards

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
            path.unlink(missing_ok=True)
        victims[seed] = job(seed, 10**9)
    printed, errors = survivor.communicate(timeout=500)
    for victim in victims.values():
        victim.kill()
        victim.communicate()
    assert survivor.returncode == 0, errors
    assert printed.split()[1:] == truth
    # the next reader finds a valid cache and removes partial files
    with ShardReader(url, cache_dir=cache) as reader:
        assert [
            xxhash.xxh3_64_hexdigest(bucket.input_ids) for bucket in islice(reader, len(truth))
        ] == truth
    assert_cache_is_sound(cache)


def test_processes_that_share_a_cache_fetch_each_shard_only_once_in_total(
    dataset: Path, tmp_path: Path
) -> None:
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
    fetched = [int(job.communicate("go\n", timeout=500)[0]) for job in jobs]
    assert sum(fetched) == sum(entry.bytes for entry in read_manifest(dataset).shards["train"])
