"""The reader serves no token of a damaged shard."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.reader import ShardReader
from schemas.errors import DatasetError
from schemas.text.phrases import REBUILD
from tests.helpers.data.corpus import read_manifest
from tests.helpers.data.damage import DAMAGES, flip
from tests.helpers.processes.command_line import REPO
from tests.helpers.stores.reading import assert_cache_is_sound, tokens
from tests.helpers.stores.stores import Trouble


def served_before_an_error(reader: ShardReader) -> tuple[list[bytes], str]:
    """Return the tokens that a reader served before it raised an error, and the error's message.

    Also check that the next call raises the same error.
    """
    found: list[bytes] = []
    try:
        while True:
            found.append(next(reader).input_ids.tobytes())
    except DatasetError as raised:
        with pytest.raises(DatasetError) as again:
            next(reader)
        assert str(raised) == str(again.value)
        return found, str(raised)


def _numbers_of(dataset: Path, name: str) -> range:
    entries = read_manifest(dataset).shards["train"]
    place = [entry.name for entry in entries].index(name)
    first = sum(entry.buckets for entry in entries[:place])
    return range(first, first + entries[place].buckets)


@pytest.mark.parametrize("prefetch", [0, 4])
@pytest.mark.parametrize("damage", DAMAGES)
def test_no_token_of_a_damaged_shard_is_served(
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
    assert said.endswith(f"; {REBUILD}")
    assert message in said


def test_a_shard_verified_by_another_process_and_changed_since_is_refused(dataset: Path) -> None:
    program = f"""
from pipeline.reader import ShardReader
reader = ShardReader({str(dataset)!r})
print(sum(1 for _, bucket in zip(range(len(reader)), reader)))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPO, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > 100
    entry = read_manifest(dataset).shards["train"][3]
    stat = (dataset / entry.name).stat()
    flip(dataset / entry.name)
    # size and modification time stay the same
    os.utime(dataset / entry.name, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    with ShardReader(dataset) as reader:
        assert entry.name in served_before_an_error(reader)[1]


def test_a_shard_that_changed_between_two_epochs_is_refused(
    dataset: Path, truth: list[bytes]
) -> None:
    with ShardReader(dataset, prefetch=0) as reader:
        assert tokens(reader, len(reader)) == truth[: len(reader)]
        for entry in reader.manifest.shards["train"]:
            # a new file replaces the shard, but the reader's mapping of the old file stays valid
            (dataset / entry.name).rename(dataset / "kept")
            shutil.copy(dataset / "kept", dataset / entry.name)
            flip(dataset / entry.name)
        found, said = served_before_an_error(reader)
    assert found == truth[len(truth) * 2 // 3 :][: len(found)]
    assert "damaged" in said


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
