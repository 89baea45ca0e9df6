"""The reader: tokens/s beside other loaders of the same packed rows, opening and resuming a dataset of 10,000 shards, memory.

    thdpack preprocess swissprot.fasta --out data/swissprot
    python -m benchmarks.reader data/swissprot
    python -m benchmarks.reader data/swissprot --fasta swissprot.fasta --peers litdata litdata-tokens datasets datasets-streaming mosaicml online

Peers need `pip install torch litdata datasets mosaicml-streaming transformers` in an environment of their own. In each round
every loader gets the same time, one after the other; medians of rounds, and of the ratios within a round. Every loader is one
process without workers, shuffles, has its files in the page cache, and has each row's tokens copied into one buffer.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import tyro
import xxhash

from pipeline.reader import ShardReader
from schemas.manifest import Manifest
from schemas.vocabulary import ESM2

Peer = Literal["litdata", "litdata-tokens", "datasets", "datasets-streaming", "mosaicml", "online"]
Rows = Iterator[tuple[Any, int]]
"""(tokens of a row, how many of them are real), endlessly or for an epoch."""


@dataclass(frozen=True, kw_only=True)
class Options:
    dataset: Annotated[Path, tyro.conf.Positional]
    """A dataset of thdpack's; everything else is made of it."""
    peers: tuple[Peer, ...] = ()
    """Loaders to measure beside ours."""
    fasta: Path | None = None
    """FASTA that `online` tokenizes, packs and collates."""
    rounds: int = 5
    """Rounds to take medians of."""
    seconds: float = 1.0
    """Seconds for each loader in a round."""
    folder: Path = Path(tempfile.gettempdir())
    """Where the peers' copies are written and removed."""
    shards: int = 10_000
    """Shards of the dataset, all hard links to one, that is opened and resumed."""
    buckets: int = 4_000
    """Buckets in each of them."""


def ours(options: Options) -> Rows:
    with ShardReader(options.dataset) as reader:
        for bucket in reader:
            yield bucket.input_ids, bucket.num_tokens


def stored_rows(dataset: Path) -> Iterator[dict[str, Any]]:
    """Each bucket of the train split as arrays, in stored order."""
    with ShardReader(dataset, prefetch=0) as reader:
        for number in range(len(reader)):
            bucket = reader[number]
            yield {"input_ids": np.array(bucket.input_ids), "cu_seqlens": np.array(bucket.cu_seqlens), "num_tokens": bucket.num_tokens}


def litdata(options: Options, folder: Path) -> Callable[[], Rows]:
    """litdata with its default item loader: rows of tokens and cu_seqlens."""
    from litdata import StreamingDataset

    _litdata_write(folder, list(stored_rows(options.dataset)))
    rows = StreamingDataset(str(folder), shuffle=True, seed=0)

    def once() -> Rows:
        for row in rows:
            yield row["input_ids"].numpy(), int(row["num_tokens"])

    return once


def litdata_tokens(options: Options, folder: Path) -> Callable[[], Rows]:
    """litdata with its faster loader for language models: tokens in blocks of the capacity, without cu_seqlens."""
    from litdata import StreamingDataset, TokensLoader

    capacity = Manifest.from_json((options.dataset / "manifest.json").read_bytes(), where="").capacity

    _litdata_write(folder, [row["input_ids"] for row in stored_rows(options.dataset)], TokensLoader(block_size=capacity))
    rows = StreamingDataset(str(folder), item_loader=TokensLoader(block_size=capacity), shuffle=True, seed=0)

    def once() -> Rows:
        for row in rows:
            yield row.numpy(), capacity

    return once


def _litdata_write(folder: Path, rows: list[Any], item_loader: Any = None) -> None:
    """Write rows with litdata's own writer: its `optimize` starts processes and deletes $TMPDIR/data."""
    from litdata.streaming.cache import Cache

    cache = Cache(str(folder), chunk_bytes="64MB", item_loader=item_loader)
    for i, row in enumerate(rows):
        cache[i] = _as_tensor(row) if item_loader else {name: _as_tensor(value) for name, value in row.items()}
    cache.done()
    cache.merge()


def _as_tensor(value: Any) -> Any:
    import torch

    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def hugging_face(options: Options, folder: Path) -> Callable[[], Rows]:
    """datasets, map-style: rows looked up in the order of a permutation."""
    table = _hugging_face_table(options, folder).with_format("numpy")
    order = np.random.default_rng(0).permutation(len(table)).tolist()

    def once() -> Rows:
        for i in order:
            row = table[i]
            yield row["input_ids"], int(row["num_tokens"])

    return once


def hugging_face_streaming(options: Options, folder: Path) -> Callable[[], Rows]:
    """datasets as a stream with a shuffle buffer of 1,000 rows."""
    stream = _hugging_face_table(options, folder).to_iterable_dataset(num_shards=4).shuffle(seed=0, buffer_size=1000).with_format("numpy")

    def once() -> Rows:
        for row in stream:
            yield row["input_ids"], int(row["num_tokens"])

    return once


def _hugging_face_table(options: Options, folder: Path) -> Any:
    from datasets import load_dataset

    manifest = Manifest.from_json((options.dataset / "manifest.json").read_bytes(), where="")
    files = [str(options.dataset / entry.name) for entry in manifest.shards["train"]]
    return load_dataset("arrow", data_files=files, split="train", cache_dir=str(folder)).select_columns(["input_ids", "cu_seqlens", "num_tokens"])


def mosaicml(options: Options, folder: Path) -> Callable[[], Rows]:
    """mosaicml-streaming: MDS shards of arrays, its default shuffle."""
    from streaming import MDSWriter, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    columns = {"input_ids": "ndarray", "cu_seqlens": "ndarray", "num_tokens": "int"}
    with MDSWriter(out=str(folder), columns=columns, size_limit="64mb") as writer:
        for row in stored_rows(options.dataset):
            writer.write(row)

    clean_stale_shared_memory()
    rows = StreamingDataset(local=str(folder), shuffle=True, batch_size=1)

    def once() -> Rows:
        for row in rows:
            yield row["input_ids"], int(row["num_tokens"])

    return once


def online(options: Options, folder: Path) -> Callable[[], Rows]:
    """What training recipes do at every step: tokenize with the Hugging Face tokenizer, pack next-fit, collate."""
    from Bio.SeqIO.FastaIO import SimpleFastaParser
    from transformers import EsmTokenizer

    assert options.fasta is not None, "online needs --fasta"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(ESM2.tokens))
    tokenizer = EsmTokenizer(str(folder / "vocab.txt"))
    manifest = Manifest.from_json((options.dataset / "manifest.json").read_bytes(), where="")

    def collated(packed: list[list[int]]) -> np.ndarray[Any, Any]:
        tokens = np.full(manifest.capacity, ESM2.pad, dtype=np.uint8)
        ends = np.cumsum([len(ids) for ids in packed])
        tokens[: ends[-1]] = np.concatenate([np.array(ids, dtype=np.uint8) for ids in packed])
        np.full(manifest.slots + 1, manifest.capacity, dtype=np.int32)[1 : ends.size + 1] = ends
        return tokens

    def once() -> Rows:
        packed: list[list[int]] = []
        assert options.fasta is not None
        with options.fasta.open() as file:
            for _, residues in SimpleFastaParser(file):
                ids = tokenizer(residues, truncation=True, max_length=manifest.max_seq_len)["input_ids"]
                if sum(map(len, packed)) + len(ids) > manifest.capacity:
                    yield collated(packed), sum(map(len, packed))
                    packed = []
                packed.append(ids)

    return once


PEERS: dict[Peer, Callable[[Options, Path], Callable[[], Rows]]] = {
    "litdata": litdata,
    "litdata-tokens": litdata_tokens,
    "datasets": hugging_face,
    "datasets-streaming": hugging_face_streaming,
    "mosaicml": mosaicml,
    "online": online,
}


def speed(rows: Callable[[], Rows], seconds: float, buffer: np.ndarray[Any, Any]) -> float:
    """Tokens/s of a loader, from its construction on, each row copied into `buffer`; epochs follow one another."""
    tokens = 0
    started = time.perf_counter()
    while True:
        for row, count in rows():
            buffer[:] = row
            tokens += count
            if time.perf_counter() - started > seconds:
                return tokens / (time.perf_counter() - started)


def compare(options: Options) -> None:
    """Print a table of all loaders, measured by turns."""
    work = Path(tempfile.mkdtemp(dir=options.folder, prefix="thdpack-reader-"))
    buffer = np.empty(Manifest.from_json((options.dataset / "manifest.json").read_bytes(), where="").capacity, dtype=np.uint8)
    loaders: dict[str, Callable[[], Rows]] = {"thdpack": lambda: ours(options)}
    try:
        for peer in options.peers:
            loaders[peer] = PEERS[peer](options, work / peer)
        for rows in loaders.values():  # warm up
            speed(rows, options.seconds / 2, buffer)
        measured: dict[str, list[float]] = {name: [] for name in loaders}
        for _ in range(options.rounds):
            for name, rows in loaders.items():
                measured[name].append(speed(rows, options.seconds, buffer))
        for name, speeds in measured.items():
            ratio = statistics.median(mine / other for mine, other in zip(measured["thdpack"], speeds, strict=True))
            spread = f"{min(speeds) / 1e6:,.2f} to {max(speeds) / 1e6:,.2f}"
            print(f"{name:>20}  {statistics.median(speeds) / 1e6:10,.2f} M tokens/s ({spread}); ours is {ratio:,.2f} ×")
    finally:
        shutil.rmtree(work, ignore_errors=True)


FRESH = """
import json, sys, time
started = time.perf_counter()
from pipeline.reader import ShardReader
imported = time.perf_counter()
reader = ShardReader(sys.argv[1])
next(reader)
first = time.perf_counter()
other = ShardReader(sys.argv[1])
state = {**other.state_dict(), "position": 10**9}
opened = time.perf_counter()
other.load_state_dict(state)
bucket = next(other)
resumed = time.perf_counter()
other.close()
assert bucket.position == 10**9
for i, bucket in zip(range(int(sys.argv[2])), reader):
    pass
anonymous = [int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")][0] * 1024
print(json.dumps([imported - started, first - imported, resumed - opened, anonymous, len(reader)]))
"""


def many_shards(options: Options) -> None:
    """Open, resume and read a dataset of many shards, in fresh processes."""
    work = Path(tempfile.mkdtemp(dir=options.dataset.absolute().parent, prefix="thdpack-many-"))
    try:
        manifest = linked(options, work)
        runs = []
        for _ in range(options.rounds + 1):
            command = [sys.executable, "-c", FRESH, str(work), str(20 * options.buckets)]
            runs.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        figures = [statistics.median(values) for values in zip(*runs[1:], strict=True)]
        size = (work / "manifest.json").stat().st_size
        print(f"{len(manifest.shards['train']):,} shards, {figures[4]:,.0f} buckets, manifest of {size / 1e6:.1f} MB; fresh processes:")
        print(f"  import pipeline.reader        {figures[0]:.3f} s")
        print(f"  open to first bucket          {figures[1]:.3f} s")
        print(f"  resume at 10⁹, first bucket   {figures[2]:.3f} s")
        print(f"  RssAnon after 20 shards' worth {figures[3] / 1e6:.0f} MB")
    finally:
        shutil.rmtree(work)


def linked(options: Options, out: Path) -> Manifest:
    """A dataset of `shards` hard links to one shard of `buckets` buckets, made of the dataset's own."""
    manifest = Manifest.from_json((options.dataset / "manifest.json").read_bytes(), where=str(options.dataset))
    tables = [pa.ipc.open_file(options.dataset / entry.name).read_all() for entry in manifest.shards["train"]]
    table = pa.concat_tables(list(islice(tables * -(-options.buckets // sum(t.num_rows for t in tables)), None))).slice(0, options.buckets)
    (out / "train").mkdir()
    first = out / "train" / "0.arrow"
    with pa.ipc.new_file(first, table.schema) as writer:
        writer.write_table(table.combine_chunks(), max_chunksize=64)
    digest, size = xxhash.xxh3_128_hexdigest(first.read_bytes()), first.stat().st_size
    tokens = int(np.sum(table.column("num_tokens").to_numpy()))
    entry = replace(manifest.shards["train"][0], bytes=size, buckets=options.buckets, tokens=tokens, xxh3_128=digest)
    entries = tuple(replace(entry, name=f"train/{i}.arrow") for i in range(options.shards))
    for other in entries[1:]:
        os.link(first, out / other.name)
    many = replace(manifest, shards={"train": entries, "valid": ()})
    (out / "manifest.json").write_text(many.to_json())
    return many


def main(options: Options) -> None:
    compare(options)
    many_shards(options)


if __name__ == "__main__":
    main(tyro.cli(Options))
