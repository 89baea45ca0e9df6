"""Errors of a cache whose disk is full, before and during a run."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.reader.cache.cache_folder import CacheFolder
from pipeline.reader.cache.cache_space import check_cache_space
from pipeline.storage.retries import CacheError
from schemas.manifest_entries import ShardEntry

HUGE = 1 << 60
"""More bytes than any disk of a test machine has."""
SHARD = ShardEntry(name="train/a.arrow", bytes=HUGE, buckets=1, tokens=1, xxh3_128="a" * 32)


def test_a_cache_whose_disk_is_too_small_is_refused_before_it_is_filled(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    with pytest.raises(CacheError, match=r"lower --cache-bytes \(now ") as raised:
        check_cache_space(folder, 2 * HUGE, [SHARD])
    assert f"needs {HUGE:,} more bytes" in str(raised.value)
    assert "--cache-dir" in str(raised.value)
    assert not folder.exists()


def test_a_cache_needs_no_space_beyond_its_limit_or_for_shards_that_it_holds(
    tmp_path: Path,
) -> None:
    check_cache_space(tmp_path, 1 << 10, [SHARD])
    assert shutil.disk_usage(tmp_path).free > 1 << 20
    other = replace(SHARD, bytes=1 << 20, xxh3_128="b" * 32)
    check_cache_space(tmp_path, HUGE, [other])
    (tmp_path / f"{SHARD.xxh3_128}.arrow").write_bytes(b"held")
    check_cache_space(tmp_path, 2 * HUGE, [SHARD, other])


def test_the_error_of_a_full_cache_disk_names_the_options_and_the_bytes(tmp_path: Path) -> None:
    folder = CacheFolder(tmp_path, 12_345, list, threading.Event())
    with (
        pytest.raises(CacheError, match=r"7,890 bytes are needed, [\d,]+ are free") as raised,
        folder.errors(needed=7_890),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert "--cache-dir" in str(raised.value)
    assert "--cache-bytes, now 12,345" in str(raised.value)
