"""Peers: loaders of other libraries, whose speed benchmarks/reader.py compares with that of our
reader.

For each peer, a function of this module writes a copy of a dataset into a folder, in the library's
own format, and returns the peer. For the peer `online`, no copy is written, because it reads FASTA.
A peer is a function without arguments. Each call yields rows of several sequences end to end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pipeline.reader import ShardReader
from pipeline.storage.read_manifest import read_manifest
from schemas.vocabulary import ESM2

Peer = Literal["litdata", "litdata-tokens", "datasets", "datasets-streaming", "mosaicml", "online"]
Rows = Iterator[tuple[Any, int]]
"""Pairs of a row's tokens and its number of real tokens. The iterator may end after an epoch."""


def stored_rows(dataset: Path) -> Iterator[dict[str, Any]]:
    """Yield each bucket of the train split as arrays, in stored order."""
    with ShardReader(dataset, prefetch=0) as reader:
        for number in range(len(reader)):
            bucket = reader[number]
            yield {
                "input_ids": np.array(bucket.input_ids),
                "cu_seqlens": np.array(bucket.cu_seqlens),
                "num_tokens": bucket.num_tokens,
            }


def litdata(dataset: Path, folder: Path) -> Callable[[], Rows]:
    """Return a loader that uses litdata's default item loader.

    Rows have tokens and cu_seqlens.
    """
    from litdata import StreamingDataset

    _litdata_write(folder, list(stored_rows(dataset)))
    rows = StreamingDataset(str(folder), shuffle=True, seed=0)

    def once() -> Rows:
        for row in rows:
            yield row["input_ids"].numpy(), int(row["num_tokens"])

    return once


def litdata_tokens(dataset: Path, folder: Path) -> Callable[[], Rows]:
    """Return a loader that uses litdata's faster item loader for language models.

    Rows are blocks of `capacity` tokens, without cu_seqlens.
    """
    from litdata import StreamingDataset, TokensLoader

    capacity = read_manifest(dataset).capacity
    _litdata_write(
        folder,
        [row["input_ids"] for row in stored_rows(dataset)],
        TokensLoader(block_size=capacity),
    )
    rows = StreamingDataset(
        str(folder), item_loader=TokensLoader(block_size=capacity), shuffle=True, seed=0
    )

    def once() -> Rows:
        for row in rows:
            yield row.numpy(), capacity

    return once


def _litdata_write(folder: Path, rows: list[Any], item_loader: Any = None) -> None:
    """Write rows through litdata's `Cache`.

    `litdata.optimize` would start processes, and would delete $TMPDIR/data.
    """
    from litdata.streaming.cache import Cache

    cache = Cache(str(folder), chunk_bytes="64MB", item_loader=item_loader)
    for i, row in enumerate(rows):
        cache[i] = (
            _as_tensor(row)
            if item_loader
            else {name: _as_tensor(value) for name, value in row.items()}
        )
    cache.done()
    cache.merge()


def _as_tensor(value: Any) -> Any:
    import torch

    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def hugging_face(dataset: Path, folder: Path) -> Callable[[], Rows]:
    """Return a loader that looks up rows of a Hugging Face dataset in a shuffled order."""
    table = _hugging_face_table(dataset, folder).with_format("numpy")
    order = np.random.default_rng(0).permutation(len(table)).tolist()

    def once() -> Rows:
        for i in order:
            row = table[i]
            yield row["input_ids"], int(row["num_tokens"])

    return once


def hugging_face_streaming(dataset: Path, folder: Path) -> Callable[[], Rows]:
    """Return a loader that streams a Hugging Face dataset, with a shuffle buffer of 1,000 rows."""
    stream = (
        _hugging_face_table(dataset, folder)
        .to_iterable_dataset(num_shards=4)
        .shuffle(seed=0, buffer_size=1000)
        .with_format("numpy")
    )

    def once() -> Rows:
        for row in stream:
            yield row["input_ids"], int(row["num_tokens"])

    return once


def _hugging_face_table(dataset: Path, folder: Path) -> Any:
    from datasets import load_dataset

    manifest = read_manifest(dataset)
    files = [str(dataset / entry.name) for entry in manifest.shards["train"]]
    return load_dataset(
        "arrow", data_files=files, split="train", cache_dir=str(folder)
    ).select_columns(["input_ids", "cu_seqlens", "num_tokens"])


def mosaicml(dataset: Path, folder: Path) -> Callable[[], Rows]:
    """Return a loader that streams MDS shards with mosaicml-streaming and its default shuffle."""
    from streaming import MDSWriter, StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    columns = {"input_ids": "ndarray", "cu_seqlens": "ndarray", "num_tokens": "int"}
    with MDSWriter(out=str(folder), columns=columns, size_limit="64mb") as writer:
        for row in stored_rows(dataset):
            writer.write(row)

    clean_stale_shared_memory()
    rows = StreamingDataset(local=str(folder), shuffle=True, batch_size=1)

    def once() -> Rows:
        for row in rows:
            yield row["input_ids"], int(row["num_tokens"])

    return once


def online(dataset: Path, folder: Path, fasta: Path | None) -> Callable[[], Rows]:
    """Return a loader that tokenizes with Hugging Face's tokenizer, packs next-fit and collates."""
    from Bio.SeqIO.FastaIO import SimpleFastaParser
    from transformers import EsmTokenizer

    assert fasta is not None, "the peer `online` needs --fasta"
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(ESM2.tokens))
    tokenizer = EsmTokenizer(str(folder / "vocab.txt"))
    manifest = read_manifest(dataset)

    def collated(packed: list[list[int]]) -> np.ndarray[Any, Any]:
        tokens = np.full(manifest.capacity, ESM2.pad, dtype=np.uint8)
        ends = np.cumsum([len(ids) for ids in packed])
        tokens[: ends[-1]] = np.concatenate([np.array(ids, dtype=np.uint8) for ids in packed])
        cu_seqlens = np.full(manifest.slots + 1, manifest.capacity, dtype=np.int32)
        cu_seqlens[1 : ends.size + 1] = ends
        return tokens

    def once() -> Rows:
        packed: list[list[int]] = []
        with fasta.open() as file:
            for _, residues in SimpleFastaParser(file):
                ids = tokenizer(residues, truncation=True, max_length=manifest.max_seq_len)[
                    "input_ids"
                ]
                if sum(map(len, packed)) + len(ids) > manifest.capacity:
                    yield collated(packed), sum(map(len, packed))
                    packed = []
                packed.append(ids)

    return once


def peer(name: Peer, dataset: Path, folder: Path, fasta: Path | None) -> Callable[[], Rows]:
    """Write the dataset in the format of the peer `name`. Return the peer's loader.

    fasta: FASTA file for the peer `online`; other peers do not use it
    """
    if name == "online":
        return online(dataset, folder, fasta)
    loaders = {
        "litdata": litdata,
        "litdata-tokens": litdata_tokens,
        "datasets": hugging_face,
        "datasets-streaming": hugging_face_streaming,
        "mosaicml": mosaicml,
    }
    return loaders[name](dataset, folder)
