"""Convert buckets to the arguments of other libraries, and merge several buckets into one THD row.

THD (total tokens × heads × head dimension) is the layout of packed sequences. The functions use
only numpy, and copy little. To convert an array to torch, use `torch.from_numpy`. For `input_ids`,
which is read-only, use `torch.tensor`.

A tail piece is a part of the padding at the end of a bucket. Kernels treat it like a sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from schemas.shard import Bucket
from schemas.vocabulary import ESM2

_PADDED: Final = ("sdpa", "eager", "flex_attention")
"""Attention implementations of transformers that get padded rows."""


def _refuse_others(bucket: object) -> None:
    """Refuse an object that is not a bucket.

    Raises:
        TypeError: the object is not a bucket.
    """
    if not isinstance(bucket, Bucket):
        raise TypeError(
            f"bucket is a {type(bucket).__name__}, expected a Bucket, which next(reader) returns"
        )


def merge(buckets: Sequence[Bucket]) -> Bucket:
    """Merge k buckets into one THD row of k × capacity tokens.

    Returns:
        A bucket with input_ids uint8[k × capacity] and cu_seqlens int32[k × slots + 1]. Both shapes
        are static. cu_seqlens holds the offsets of the sequences and tail pieces, bucket after
        bucket, and then repeats k × capacity. `position` and `epoch` are those of the first bucket.
    Raises:
        ValueError: the list is empty, or the buckets differ in shape.
    """
    if not buckets:
        raise ValueError("the list of buckets is empty")
    if len({(b.input_ids.size, b.cu_seqlens.size, b.max_seqlen) for b in buckets}) != 1:
        raise ValueError(
            "expected buckets of one shape, got "
            f"{[(b.input_ids.size, b.cu_seqlens.size, b.max_seqlen) for b in buckets]}"
        )
    capacity, slots = buckets[0].input_ids.size, buckets[0].cu_seqlens.size - 1
    cu_seqlens = np.full(len(buckets) * slots + 1, len(buckets) * capacity, dtype=np.int32)
    end = 0
    for i, bucket in enumerate(buckets):
        pieces = int(np.searchsorted(bucket.cu_seqlens, capacity))
        cu_seqlens[end : end + pieces + 1] = bucket.cu_seqlens[: pieces + 1] + i * capacity
        end += pieces
    return Bucket(
        input_ids=np.concatenate([bucket.input_ids for bucket in buckets]),
        cu_seqlens=cu_seqlens,
        max_seqlen=buckets[0].max_seqlen,
        num_seqs=sum(bucket.num_seqs for bucket in buckets),
        num_tokens=sum(bucket.num_tokens for bucket in buckets),
        position=buckets[0].position,
        epoch=buckets[0].epoch,
    )


def position_ids(bucket: Bucket) -> NDArray[np.int64]:
    """Return the index of each token in its sequence or tail piece, int64[capacity], from 0."""
    _refuse_others(bucket)
    lengths = np.diff(bucket.cu_seqlens)
    return np.arange(bucket.input_ids.size, dtype=np.int64) - np.repeat(
        bucket.cu_seqlens[:-1].astype(np.int64), lengths
    )


def flash_attention(bucket: Bucket) -> dict[str, Any]:
    """Return the arguments of flash-attn's `flash_attn_varlen_func`."""
    _refuse_others(bucket)
    return {
        "cu_seqlens_q": bucket.cu_seqlens,
        "cu_seqlens_k": bucket.cu_seqlens,
        "max_seqlen_q": bucket.max_seqlen,
        "max_seqlen_k": bucket.max_seqlen,
    }


def transformer_engine(bucket: Bucket) -> dict[str, Any]:
    """Return the arguments of Transformer Engine's `TransformerLayer` and `DotProductAttention`.

    The arguments are for `qkv_format="thd"`.
    """
    _refuse_others(bucket)
    return {
        "cu_seqlens_q": bucket.cu_seqlens,
        "cu_seqlens_kv": bucket.cu_seqlens,
        "max_seqlen_q": bucket.max_seqlen,
        "max_seqlen_kv": bucket.max_seqlen,
    }


def hugging_face(bucket: Bucket, attn_implementation: str = "sdpa") -> dict[str, Any]:
    """Return the arguments of a model of the library transformers.

    The arguments depend on the model's attention implementation. Only flash attention supports
    packed rows. With other implementations, such as the default sdpa, packed sequences would attend
    to each other, and the result therefore has padded rows. A mask of tokens × tokens would not
    help, because ESM-2's embedding layer needs a mask with one value per token.

    Args:
        attn_implementation: attention implementation of the model, such as "sdpa", "eager" or
            "flash_attention_2".
    Returns:
        With flash attention, a batch of one row: input_ids and position_ids int64[1, capacity],
        cu_seq_lens_q and cu_seq_lens_k int32[slots + 1], max_length_q and max_length_k. ESM-2's
        token dropout then counts mask tokens in the whole row instead of in each sequence. With
        other implementations, the result of `bshd`.
    Raises:
        ValueError: transformers has no such attention implementation.
    """
    if "flash" not in attn_implementation:
        if attn_implementation not in _PADDED:
            raise ValueError(
                f"attn_implementation is {attn_implementation!r}, expected {', '.join(_PADDED)} or "
                "flash_attention_2"
            )
        return bshd(bucket)
    return {
        "input_ids": bucket.input_ids.astype(np.int64)[None],
        "position_ids": position_ids(bucket)[None],
        "cu_seq_lens_q": bucket.cu_seqlens,
        "cu_seq_lens_k": bucket.cu_seqlens,
        "max_length_q": bucket.max_seqlen,
        "max_length_k": bucket.max_seqlen,
    }


def bshd(bucket: Bucket, *, pad: int = ESM2.pad) -> dict[str, Any]:
    """Return the real sequences as padded rows, for models that do not support packing.

    Returns:
        input_ids int64[num_seqs, max_seqlen]; attention_mask int64[num_seqs, max_seqlen], 1 at real
        tokens.
    """
    _refuse_others(bucket)
    begins, lengths = bucket.cu_seqlens[:-1], np.diff(bucket.cu_seqlens)
    real = (lengths > 0) & (bucket.input_ids[np.minimum(begins, bucket.input_ids.size - 1)] != pad)
    begins, lengths = begins[real], lengths[real]
    columns = np.arange(bucket.max_seqlen)
    inside = columns < lengths[:, None]
    ids = np.full(inside.shape, pad, dtype=np.int64)
    ids[inside] = bucket.input_ids[(begins[:, None] + columns)[inside]]
    return {"input_ids": ids, "attention_mask": (ids != pad).astype(np.int64)}
