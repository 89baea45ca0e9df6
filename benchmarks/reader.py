"""Measure the reader: speed, memory, and the time to open and to resume a dataset of 10,000 shards.

    thdpack preprocess swissprot.fasta --out data/swissprot
    python -m benchmarks.reader data/swissprot
    python -m benchmarks.reader data/swissprot --generations 100
    python -m benchmarks.reader data/swissprot --fasta swissprot.fasta \\
        --peers litdata litdata-tokens datasets datasets-streaming mosaicml online

Peers are loaders of other libraries. To compare peers, run this in a separate environment with
`pip install torch litdata datasets mosaicml-streaming transformers`. In each round, the loaders run
one after the other, each for the same time. Each loader runs in one process without workers. All
but `online` shuffle the same packed rows. The benchmark copies each row's tokens into the same
buffer. Files are in the page cache.

For each loader, the benchmark prints the median speed over the rounds. It also computes thdpack's
speed divided by the loader's speed in each round, and prints the median of these ratios.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import tyro
import xxhash

from benchmarks.training.peers import Peer, Rows, peer
from pipeline.build.generations.merge_manifests import entry_of
from pipeline.reader import ShardReader
from pipeline.storage.read_manifest import generation_name, read_manifest
from schemas.manifest import GENERATIONS, MANIFEST_NAME, Manifest
from schemas.manifest_entries import GenerationEntry, VariantEntry
from schemas.text.phrases import plural


@dataclass(frozen=True, kw_only=True)
class Options:
    dataset: Annotated[Path, tyro.conf.Positional]
    """Dataset of thdpack. All peers except `online` read copies of this dataset."""
    peers: tuple[Peer, ...] = ()
    """Names of the peers to measure."""
    fasta: Path | None = None
    """FASTA file that the peer `online` tokenizes, packs and collates."""
    rounds: int = 5
    """Number of rounds."""
    seconds: float = 1.0
    """Number of seconds that each loader runs in a round."""
    folder: Path = Path(tempfile.gettempdir())
    """Folder for the peers' temporary copies of the dataset."""
    shards: int = 10_000
    """Number of shards in each variant of the dataset to open and resume. All shards of a variant
    are hard links to one file."""
    buckets: int = 4_000
    """Number of buckets in each shard of the dataset to open and resume."""
    variants: int = 1
    """Number of variants of the dataset to open and resume."""
    generations: int = 1
    """Number of generations of the dataset to open and resume. Each adds as many of its shards. The
    benchmark also opens an earlier generation, which has half of the shards."""


def ours(options: Options) -> Rows:
    with ShardReader(options.dataset) as reader:
        for bucket in reader:
            yield bucket.input_ids, bucket.num_tokens


def speed(rows: Callable[[], Rows], seconds: float, buffer: np.ndarray[Any, Any]) -> float:
    """Copy rows into `buffer` for `seconds`; return tokens/s. Opening the dataset is timed, too."""
    tokens = 0
    started = time.perf_counter()
    while True:
        for row, count in rows():
            buffer[:] = row
            tokens += count
            if time.perf_counter() - started > seconds:
                return tokens / (time.perf_counter() - started)


def compare(options: Options) -> None:
    """Measure the speed of all loaders in turn; print a line for each loader."""
    work = Path(tempfile.mkdtemp(dir=options.folder, prefix="thdpack-reader-"))
    buffer = np.empty(read_manifest(options.dataset).capacity, dtype=np.uint8)
    loaders: dict[str, Callable[[], Rows]] = {"thdpack": lambda: ours(options)}
    try:
        for name in options.peers:
            loaders[name] = peer(name, options.dataset, work / name, options.fasta)
        for rows in loaders.values():  # warm up
            speed(rows, options.seconds / 2, buffer)
        measured: dict[str, list[float]] = {name: [] for name in loaders}
        for _ in range(options.rounds):
            for name, rows in loaders.items():
                measured[name].append(speed(rows, options.seconds, buffer))
        for name, speeds in measured.items():
            ratio = statistics.median(
                mine / other for mine, other in zip(measured["thdpack"], speeds, strict=True)
            )
            spread = f"{min(speeds) / 1e6:,.2f} to {max(speeds) / 1e6:,.2f}"
            print(
                f"{name:>20}  {statistics.median(speeds) / 1e6:10,.2f} M tokens/s ({spread}); "
                f"speed of thdpack / speed of this loader: {ratio:,.2f}"
            )
    finally:
        shutil.rmtree(work, ignore_errors=True)


FRESH = """
import json, sys, time
started = time.perf_counter()
from pipeline.reader import ShardReader
imported = time.perf_counter()
reader = ShardReader(sys.argv[1], generation=sys.argv[3])
next(reader)
first = time.perf_counter()
other = ShardReader(sys.argv[1], generation=sys.argv[3])
state = {**other.state_dict(), "position": 10**9}
opened = time.perf_counter()
other.load_state_dict(state)
bucket = next(other)
resumed = time.perf_counter()
other.close()
assert bucket.position == 10**9
for i, bucket in zip(range(int(sys.argv[2])), reader):
    pass
status = [line.split() for line in open("/proc/self/status")]
anonymous = next(int(words[1]) for words in status if words[0] == "RssAnon:") * 1024
print(json.dumps([imported - started, first - imported, resumed - opened, anonymous, len(reader)]))
"""


def many_shards(options: Options) -> None:
    """In fresh processes, time how long a dataset of many shards takes to open and to resume."""
    work = Path(tempfile.mkdtemp(dir=options.dataset.absolute().parent, prefix="thdpack-many-"))
    try:
        manifest = grown(linked(options, work), options.generations, work)
        figures = measured(options, work, "latest")
        size = (work / "manifest.json").stat().st_size
        print(
            f"{manifest.variants * len(manifest.shards['train']):,} shards, "
            f"{figures[4]:,.0f} buckets, {plural(manifest.variants, 'variant')}, "
            f"{plural(manifest.generation, 'generation')}, "
            f"manifest of {size / 1e6:.1f} MB; medians over fresh processes:"
        )
        print(f"  import pipeline.reader                    {figures[0]:.3f} s")
        print(f"  open, to first bucket                     {figures[1]:.3f} s")
        print(f"  resume at position 10⁹, to first bucket   {figures[2]:.3f} s")
        print(
            f"  RssAnon after reading as many buckets as 20 shards hold: {figures[3] / 1e6:.0f} MB"
        )
        if manifest.generation > 1:
            middle = str(manifest.generation // 2)
            opened = measured(options, work, middle)[1]
            print(f"  open generation {middle}, to first bucket         {opened:.3f} s")
    finally:
        shutil.rmtree(work)


def measured(options: Options, dataset: Path, generation: str) -> list[float]:
    """Return the medians of the figures that FRESH prints, over fresh processes."""
    command = [sys.executable, "-c", FRESH, str(dataset), str(20 * options.buckets), generation]
    runs = []
    for _ in range(options.rounds + 1):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout))
    return [statistics.median(values) for values in zip(*runs[1:], strict=True)]


def grown(manifest: Manifest, generations: int, out: Path) -> Manifest:
    """Write manifests as if each of several generations had added as many shards. Return the
    last."""
    (out / GENERATIONS).mkdir()
    shards = manifest.shards["train"]
    history: tuple[GenerationEntry, ...] = ()
    for number in range(1, generations + 1):
        part = shards[: len(shards) * number // generations]
        train = replace(manifest.splits["train"], buckets=sum(entry.buckets for entry in part))
        found = replace(
            manifest,
            shards={**manifest.shards, "train": part},
            splits={**manifest.splits, "train": train},
            generation=number,
            parent=history[-1].digest if history else None,
            history=history,
        )
        name = MANIFEST_NAME if number == generations else generation_name(number)
        (out / name).write_text(found.to_json())
        history = (*history, entry_of(found))
    return found


def linked(options: Options, out: Path) -> Manifest:
    """Make a dataset. In each variant, all shards are hard links to one shard."""
    manifest = read_manifest(options.dataset)
    tables = [
        pa.ipc.open_file(options.dataset / entry.name).read_all()
        for entry in manifest.shards["train"]
    ]
    table = pa.concat_tables(tables * -(-options.buckets // sum(t.num_rows for t in tables))).slice(
        0, options.buckets
    )
    (out / "train").mkdir()
    first = out / "train" / "0.arrow"
    with pa.ipc.new_file(first, table.schema) as writer:
        writer.write_table(table.combine_chunks(), max_chunksize=64)
    digest, size = xxhash.xxh3_128_hexdigest(first.read_bytes()), first.stat().st_size
    tokens = int(np.sum(table.column("num_tokens").to_numpy()))
    entry = replace(
        manifest.shards["train"][0],
        bytes=size,
        buckets=options.buckets,
        tokens=tokens,
        xxh3_128=digest,
    )
    variants = []
    for variant in range(options.variants):
        place = f"train/v{variant}-"
        shutil.copy(first, out / f"{place}0.arrow")
        for i in range(1, options.shards):
            os.link(out / f"{place}0.arrow", out / f"{place}{i}.arrow")
        entries = (replace(entry, name=f"{place}{i}.arrow") for i in range(options.shards))
        variants.append({"train": tuple(entries), "valid": (), "test": ()})
    first.unlink()
    buckets = {"train": options.buckets * options.shards, "valid": 0, "test": 0}
    splits = {split: replace(manifest.splits[split], buckets=buckets[split]) for split in buckets}
    many = replace(
        manifest,
        shards=variants[0],
        splits=splits,
        more_variants=tuple(VariantEntry.of(splits, shards) for shards in variants[1:]),
    )
    (out / "manifest.json").write_text(many.to_json())
    return many


def main(options: Options) -> None:
    compare(options)
    many_shards(options)


if __name__ == "__main__":
    main(tyro.cli(Options))
