"""Check the space for the cache of shards, before a command reads a dataset of a store."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from pipeline.reader.cache.cache_folder import default_cache_dir
from pipeline.reader.cache.cache_space import check_cache_space
from schemas.manifest import Manifest


def check_cache(
    urls: Sequence[str],
    manifests: Sequence[Manifest],
    splits: Collection[str],
    *,
    cache_dir: str,
    cache_bytes: int,
    variants: range | None = None,
) -> None:
    """Check that the disk of the cache has space for the shards that are read through it.

    Args:
        urls: folder or URL of each dataset.
        manifests: manifest of each dataset.
        splits: splits that are read.
        cache_dir: the option --cache-dir; "" means the default folder, for remote datasets only.
        cache_bytes: the option --cache-bytes.
        variants: numbers of the variants that are read; None for all.
    Raises:
        CacheError: the free space is too small.
    """
    cached = [
        entry
        for url, manifest in zip(urls, manifests, strict=True)
        if cache_dir or ("://" in url and not url.startswith(("file://", "local://")))
        for _, split, entry in manifest.all_shards(variants)
        if split in splits
    ]
    if cached:
        folder = Path(cache_dir) if cache_dir else default_cache_dir()
        check_cache_space(folder, cache_bytes, cached)
