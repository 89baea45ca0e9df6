"""Merged buckets and adapters, compared with plain loops over sequences."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from pipeline.reader import ShardReader, hugging_face, merge
from pipeline.reader.adapters import bshd, flash_attention, position_ids, transformer_engine
from schemas.errors import DatasetError
from schemas.shard import Bucket
from schemas.vocabulary import ESM2
from tests.helpers.data.many_shards import CAPACITY, MAX_SEQ_LEN


@pytest.fixture(scope="module")
def buckets(many_shards: Path) -> list[Bucket]:
    """Return the buckets of an epoch, some of them partly filled."""
    with ShardReader(many_shards, prefetch=0) as reader:
        found = list(islice(reader, len(reader)))
    assert any(bucket.num_tokens < CAPACITY for bucket in found)
    return found


def pieces(bucket: Bucket) -> list[list[int]]:
    """Return the tokens between any two neighbours in cu_seqlens: sequences, then padding."""
    edges = bucket.cu_seqlens.tolist()
    return [
        bucket.input_ids[a:b].tolist() for a, b in zip(edges[:-1], edges[1:], strict=True) if b > a
    ]


def real(bucket: Bucket) -> list[list[int]]:
    return [piece for piece in pieces(bucket) if piece[0] != ESM2.pad]


def test_a_merged_row_has_the_sequences_of_its_buckets_in_a_static_shape(
    buckets: list[Bucket],
) -> None:
    for k in (1, 2, 5):
        batch = merge(buckets[:k])
        assert pieces(batch) == [piece for bucket in buckets[:k] for piece in pieces(bucket)]
        assert batch.input_ids.shape == (CAPACITY * k,)
        assert batch.cu_seqlens.shape == (k * (buckets[0].cu_seqlens.size - 1) + 1,)
        assert batch.cu_seqlens.dtype == np.int32
        assert batch.cu_seqlens[0] == 0
        assert batch.cu_seqlens[-1] == CAPACITY * k
        assert (np.diff(batch.cu_seqlens) >= 0).all()
        assert batch.num_seqs == sum(b.num_seqs for b in buckets[:k])
        assert batch.num_tokens == sum(b.num_tokens for b in buckets[:k])
        assert (batch.max_seqlen, batch.position) == (buckets[0].max_seqlen, buckets[0].position)


def test_buckets_of_different_shapes_do_not_merge(buckets: list[Bucket]) -> None:
    with pytest.raises(ValueError, match="one shape"):
        merge([buckets[0], merge(buckets[:2])])
    with pytest.raises(ValueError, match="list of buckets is empty"):
        merge([])


def test_position_ids_restart_with_each_sequence(buckets: list[Bucket]) -> None:
    for row in (*buckets, merge(buckets[:3])):
        assert position_ids(row).tolist() == [i for piece in pieces(row) for i in range(len(piece))]


def test_a_bshd_batch_has_each_real_sequence_as_one_padded_row(buckets: list[Bucket]) -> None:
    for row in (*buckets, merge(buckets)):
        padded = bshd(row)
        assert (
            padded["input_ids"].shape
            == padded["attention_mask"].shape
            == (row.num_seqs, row.max_seqlen)
        )
        assert [
            ids[mask == 1].tolist()
            for ids, mask in zip(padded["input_ids"], padded["attention_mask"], strict=True)
        ] == real(row)
        assert (padded["input_ids"][padded["attention_mask"] == 0] == ESM2.pad).all()


def test_adapters_use_the_argument_names_of_other_libraries(buckets: list[Bucket]) -> None:
    bucket = buckets[0]
    assert set(flash_attention(bucket)) == {
        "cu_seqlens_q",
        "cu_seqlens_k",
        "max_seqlen_q",
        "max_seqlen_k",
    }
    assert set(transformer_engine(bucket)) == {
        "cu_seqlens_q",
        "cu_seqlens_kv",
        "max_seqlen_q",
        "max_seqlen_kv",
    }
    model = hugging_face(bucket, "flash_attention_2")
    assert set(model) == {
        "input_ids",
        "position_ids",
        "cu_seq_lens_q",
        "cu_seq_lens_k",
        "max_length_q",
        "max_length_k",
    }
    assert model["input_ids"].shape == model["position_ids"].shape == (1, CAPACITY)
    assert model["input_ids"][0].tolist() == bucket.input_ids.tolist()
    for arguments in (flash_attention(bucket), transformer_engine(bucket), model):
        for name, value in arguments.items():
            if "cu_seq" in name:
                assert value is bucket.cu_seqlens
            if "max_" in name:
                assert value == bucket.max_seqlen == MAX_SEQ_LEN


@pytest.mark.parametrize("attention", ["default", "sdpa", "eager"])
def test_a_hugging_face_model_computes_the_same_logits_for_a_bucket_as_for_each_sequence(
    buckets: list[Bucket], attention: str, numerics: None
) -> None:
    torch = pytest.importorskip("torch")
    from tests.helpers.models import SMALL, esm  # lazy: imports torch and transformers

    model = esm(SMALL).double()
    model.set_attn_implementation("sdpa" if attention == "default" else attention)
    bucket = min(buckets, key=lambda bucket: bucket.num_tokens)
    arguments = hugging_face(bucket) if attention == "default" else hugging_face(bucket, attention)
    assert len(real(bucket)) > 1
    with torch.no_grad():
        found = model(**{name: torch.tensor(value) for name, value in arguments.items()}).logits
        for row, tokens in enumerate(real(bucket)):
            alone = model(input_ids=torch.tensor([tokens])).logits[0]
            # Rounding changes float64 logits by 1e-13. Attention to a neighbouring sequence
            # changes them by 1e-2.
            assert (found[row, : len(tokens)] - alone).abs().max() < 1e-9


def test_a_batch_is_k_merged_buckets_and_k_must_divide_the_buckets_of_a_step(
    many_shards: Path, buckets: list[Bucket]
) -> None:
    with ShardReader(many_shards, buckets_per_step=4) as reader:
        batches = reader.batches(2)
        for i in (0, 2, 4):
            assert pieces(next(batches)) == pieces(merge(buckets[i : i + 2]))
        assert reader.position == 4
        with pytest.raises(ValueError, match="batches of 3"):
            reader.batches(3)


def test_after_an_error_in_a_batch_a_retry_delivers_the_whole_batch(
    many_shards: Path, tmp_path: Path, buckets: list[Bucket]
) -> None:
    dataset = Path(shutil.copytree(many_shards, tmp_path / "dataset"))
    with ShardReader(dataset, buckets_per_step=4, prefetch=0) as reader:
        first = reader.number_at(0)
        entries, seen = reader.manifest.shards["train"], 0
        for entry in entries:  # hide all shards except that of the first bucket
            if not seen <= first < seen + entry.buckets:
                (dataset / entry.name).rename(dataset / f"{Path(entry.name).name}.hidden")
            seen += entry.buckets
        batches = reader.batches(4)
        for _ in range(2):
            with pytest.raises(DatasetError, match="missing"):
                next(batches)
            assert reader.position == 0
            batches = reader.batches(4)
        for entry in entries:
            hidden = dataset / f"{Path(entry.name).name}.hidden"
            if hidden.exists():
                hidden.rename(dataset / entry.name)
        for i in (0, 4, 8):
            assert pieces(next(batches)) == pieces(merge(buckets[i : i + 4]))
