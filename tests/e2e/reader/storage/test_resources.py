"""A reader needs little memory, few open files and few memory-mapped files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.reader import ShardReader
from schemas.manifest import Manifest
from tests.helpers.data.corpus import read_manifest
from tests.helpers.processes.command_line import REPO
from tests.helpers.stores.stores import open_in


def test_access_by_bucket_number_maps_one_shard_at_a_time(dataset: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with ShardReader(f"troubled://{dataset}", cache_dir=cache, prefetch=0) as reader:
        for number in range(len(reader)):
            reader[number]
            assert len(open_in(cache)) == 1


def many_linked(dataset: Path, out: Path, shards: int) -> Manifest:
    """Make a dataset of many shards, which are all hard links to one file."""
    manifest = read_manifest(dataset)
    entry = min(manifest.shards["train"], key=lambda entry: entry.buckets)
    entries = tuple(replace(entry, name=f"train/linked-{i}.arrow") for i in range(shards))
    (out / "train").mkdir(parents=True)
    for linked in entries:
        os.link(dataset / entry.name, out / linked.name)
    linked_manifest = replace(manifest, shards={"train": entries, "valid": (), "test": ()})
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
def test_memory_open_files_and_mappings_do_not_grow_over_ten_epochs(
    dataset: Path, tmp_path: Path, cached: bool
) -> None:
    found = measured(dataset, 10, tmp_path / "cache" if cached else "")
    shards = len(read_manifest(dataset).shards["train"])
    assert found[9]["anonymous"] - found[2]["anonymous"] < 2 << 20
    # at most 9 mappings: 4 shards that are shuffled together, 4 prefetched shards, and the shard of
    # the current bucket
    assert max(epoch["mappings"] for epoch in found[:10]) <= 9 < shards
    assert max(epoch["files"] for epoch in found[:10]) <= found[10]["files"] + 10
    assert found[10]["mappings"] == 0


def test_many_shards_need_few_open_files(dataset: Path, tmp_path: Path) -> None:
    many_linked(dataset, tmp_path / "many", 1500)  # MEASURED may open at most 1024 files
    found = measured(tmp_path / "many", 1)
    assert found[0]["files"] < 20
    assert found[0]["mappings"] <= 9
    assert found[1]["mappings"] == 0
