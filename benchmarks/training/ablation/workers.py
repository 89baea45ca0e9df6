"""Data loading as in public recipes: DataLoader workers tokenize, pad or pack, and mask."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from pipeline.reader import ShardReader
from schemas.vocabulary import ESM2

Batch = dict[str, Tensor]
"""Tensors of one batch, by name. `Recipe` explains `columns` and `batch_tokens`.

input_ids, labels: int64[sequences, columns] if padded, int64[1, batch_tokens] if packed
counts: int64[2]: number of real tokens, Σ length²
attention_mask: int64[sequences, columns], only if padded
cu_seqlens: int32[sequences + 1], or int32[sequences + 2] if the row ends with padding; only if
    packed
"""


def sequences_of(dataset: str, buckets: int) -> list[str]:
    """Return the residues of all sequences in the first `buckets` buckets that a run would read."""
    with ShardReader(dataset, prefetch=0) as reader:
        return [
            "".join(ESM2.tokens[i] for i in bucket.input_ids[begin + 1 : end - 1].tolist())
            for bucket in itertools.islice(reader, min(buckets, len(reader)))
            for begin, end in itertools.pairwise(bucket.cu_seqlens[: bucket.num_seqs + 1].tolist())
        ]


class Texts(IterableDataset[Any]):
    """Endless stream of examples. Worker i of n uses the sequences i, i + n, i + 2 n, …"""

    def __init__(
        self, texts: list[str], examples: Callable[[Iterator[str]], Iterator[Any]]
    ) -> None:
        self._texts, self._examples = texts, examples

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        return self._examples(
            itertools.cycle(self._texts[worker.id :: worker.num_workers] if worker else self._texts)
        )


class Recipe:
    """Batches made by DataLoader workers, as in public training code."""

    def __init__(self, *, batch_tokens: int, columns: int) -> None:
        """Prepare the tokenizer and the collator.

        batch_tokens: number of token positions in a batch, padding included
        columns: number of token positions in a padded sequence; longer sequences are truncated
        """
        from transformers import DataCollatorForLanguageModeling, EsmTokenizer

        self._batch_tokens, self._columns = batch_tokens, columns
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "vocab.txt").write_text("\n".join(ESM2.tokens))
            self._tokenizer = EsmTokenizer(str(Path(folder) / "vocab.txt"))
        self._collator = DataCollatorForLanguageModeling(self._tokenizer, mlm_probability=0.15)

    def loader(
        self, texts: list[str], rows: str, *, workers: int, pinned: bool
    ) -> DataLoader[Batch]:
        """Return a loader of `padded` or `packed` batches.

        If a worker hangs, the loader raises an error after a minute.
        """
        form = {
            "num_workers": workers,
            "pin_memory": pinned,
            "timeout": 60 if workers else 0,
            "multiprocessing_context": "fork" if workers else None,
        }
        if rows == "padded":
            return DataLoader(
                Texts(texts, self._padded),
                batch_size=self._batch_tokens // self._columns,
                collate_fn=self._collated,
                **form,
            )
        return DataLoader(Texts(texts, self._packed), batch_size=None, **form)

    def _padded(self, texts: Iterator[str]) -> Iterator[Any]:
        for text in texts:
            yield self._tokenizer(
                text,
                truncation=True,
                max_length=self._columns,
                padding="max_length",
                return_special_tokens_mask=True,
            )

    def _collated(self, examples: list[Any]) -> Batch:
        batch = self._collator(examples)
        return {**batch, "counts": counted(batch["attention_mask"].sum(1))}

    def _packed(self, texts: Iterator[str]) -> Iterator[Batch]:
        """Pack next-fit: a sequence that does not fit into the row begins the next row."""
        row: list[list[int]] = []
        used = 0
        for text in texts:
            ids = self._tokenizer(text, truncation=True, max_length=self._columns)["input_ids"]
            if used + len(ids) > self._batch_tokens:
                yield self._flattened(row)
                row, used = [], 0
            row.append(ids)
            used += len(ids)

    def _flattened(self, row: list[list[int]]) -> Batch:
        """Return one row of all sequences, padded at its end."""
        lengths = torch.tensor([len(ids) for ids in row])
        used = int(lengths.sum())
        ids = torch.tensor(
            [*itertools.chain.from_iterable(row), *[ESM2.pad] * (self._batch_tokens - used)]
        )
        special = (ids == ESM2.cls) | (ids == ESM2.eos) | (ids == ESM2.pad)
        input_ids, labels = self._collator.torch_mask_tokens(
            ids[None], special_tokens_mask=special[None]
        )
        ends = torch.tensor(
            [
                0,
                *lengths.cumsum(0).tolist(),
                *([self._batch_tokens] if used < self._batch_tokens else []),
            ],
            dtype=torch.int32,
        )
        return {
            "input_ids": input_ids,
            "labels": labels,
            "cu_seqlens": ends,
            "counts": counted(lengths),
        }


def counted(lengths: Tensor) -> Tensor:
    return torch.stack([lengths.sum(), (lengths**2).sum()])
