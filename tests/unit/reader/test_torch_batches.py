"""Batches of `ShardDataset`, masked tokens, and refused options."""

from __future__ import annotations

import pickle
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

import pipeline.reader
import thdpack
from pipeline.reader import MaskTokens, ShardDataset, ShardReader, hugging_face
from schemas.errors import DatasetError, StateError
from schemas.shard import Bucket
from schemas.vocabulary import ESM2
from tests.helpers.data.many_shards import CAPACITY
from trainer.masking import IGNORED, Masker

PACKED = partial(hugging_face, attn_implementation="flash_attention_2")


@pytest.fixture(scope="module")
def buckets(many_shards: Path) -> list[Bucket]:
    with ShardReader(many_shards, prefetch=0) as reader:
        return list(islice(reader, 2 * len(reader)))


def test_every_public_name_can_be_imported() -> None:
    for module in (pipeline.reader, thdpack):
        assert {"ShardReader", "ShardDataset", *module.__all__} == set(dir(module)) - {"MaskTokens"}
        for name in dir(module):
            assert getattr(module, name) is not None
    assert thdpack.ShardDataset is ShardDataset


def test_a_dataset_that_masks_tokens_can_be_sent_to_a_new_process(many_shards: Path) -> None:
    """Python 3.14 pickles the dataset for the workers of a DataLoader, as `spawn` always did."""
    assert ESM2.letters  # a cached property, which pickle would refuse
    source = ShardDataset(many_shards, transform=MaskTokens(layout=PACKED))
    sent = pickle.loads(pickle.dumps(source))
    for batch, expected in zip(islice(sent, 2), islice(source, 2), strict=True):
        assert torch.equal(batch["input_ids"], expected["input_ids"])
        assert torch.equal(batch["labels"], expected["labels"])


def test_a_batch_has_the_fields_of_its_bucket_as_tensors(
    many_shards: Path, buckets: list[Bucket]
) -> None:
    for batch, bucket in zip(islice(ShardDataset(many_shards), 3), buckets, strict=False):
        ids, cu_seqlens = batch.pop("input_ids"), batch.pop("cu_seqlens")
        assert (ids.dtype, cu_seqlens.dtype) == (torch.uint8, torch.int32)
        assert np.array_equal(ids.numpy(), bucket.input_ids)
        assert np.array_equal(cu_seqlens.numpy(), bucket.cu_seqlens)
        ids.fill_(0)  # the tensor is a copy: the shard is mapped read-only
        assert batch == {name: getattr(bucket, name) for name in batch}
        assert set(batch) == {"max_seqlen", "num_seqs", "num_tokens", "position", "epoch"}


def test_masked_packed_rows_are_those_of_the_trainer(buckets: list[Bucket]) -> None:
    count = len(buckets) // 2
    masker = Masker(ESM2, seed=7, probability=0.15, epoch_buckets=count, device=torch.device("cpu"))
    mask = MaskTokens(layout=PACKED, seed=7)
    for bucket in (buckets[0], buckets[3], buckets[count + 3]):
        row = mask(bucket)
        expected = masker(
            torch.tensor(bucket.input_ids), torch.tensor([bucket.position], dtype=torch.int64)
        )
        assert row["input_ids"].dtype == row["labels"].dtype == np.int64
        assert row["input_ids"].shape == row["labels"].shape == (1, CAPACITY)
        assert row["input_ids"][0].tolist() == expected.input_ids.tolist()
        labels = torch.full((CAPACITY,), IGNORED)
        real = expected.labels != IGNORED
        labels[expected.index[real]] = expected.labels[real]
        assert row["labels"][0].tolist() == labels.tolist()


def test_padded_rows_are_masked_at_real_residues_only(buckets: list[Bucket]) -> None:
    mask = MaskTokens(probability=0.5)  # padded rows are the default
    before = MaskTokens(probability=0.0)
    chosen = 0
    for bucket in buckets[:20]:
        row, original = mask(bucket), before(bucket)
        assert set(row) == {"input_ids", "attention_mask", "labels"}
        assert (original["labels"] == IGNORED).all()
        predicted = row["labels"] != IGNORED
        assert (row["labels"][predicted] == original["input_ids"][predicted]).all()
        assert (row["input_ids"][~predicted] == original["input_ids"][~predicted]).all()
        assert not np.isin(row["labels"], [ESM2.pad, ESM2.cls, ESM2.eos]).any()
        chosen += int(predicted.sum())
    residues = sum(bucket.num_tokens - 2 * bucket.num_seqs for bucket in buckets[:20])
    assert 0.45 < chosen / residues < 0.55


def test_invalid_options_are_refused(many_shards: Path) -> None:
    with pytest.raises(ValueError, match="epochs is 0, expected at least 1"):
        ShardDataset(many_shards, epochs=0)
    with pytest.raises(ValueError, match="rank and world_size together"):
        ShardDataset(many_shards, rank=1)
    with pytest.raises(ValueError, match="rank is 2 and world_size is 2"):
        ShardDataset(many_shards, rank=2, world_size=2)
    with pytest.raises(TypeError, match=r"no argument shuffle: the order is always shuffled"):
        ShardDataset(many_shards, shuffle=True)  # type: ignore[call-arg]
    with pytest.raises(DatasetError):
        ShardDataset(many_shards / "absent")
    with pytest.raises(ValueError, match="batches is -1"):
        ShardDataset(many_shards).state_after(-1)
    with pytest.raises(ValueError, match=r"probability is 1.5"):
        MaskTokens(probability=1.5)
    with pytest.raises(ValueError, match="seed is -1"):
        MaskTokens(seed=-1)


def test_a_state_of_other_data_is_refused(many_shards: Path) -> None:
    state = ShardDataset(many_shards, seed=1).state_dict()
    with pytest.raises(StateError, match="another seed"):
        ShardDataset(many_shards).load_state_dict(state)
    with pytest.raises(StateError, match="another split"):
        ShardDataset(many_shards, "valid", seed=1).load_state_dict(state)


def test_context_parallel_ranks_get_the_same_buckets(many_shards: Path) -> None:
    def positions(rank: int) -> list[int]:
        dataset = ShardDataset(many_shards, rank=rank, world_size=4, context_parallel=2)
        assert dataset.state_after(3)["position"] == 6
        return [batch["position"] for batch in islice(dataset, 3)]

    assert [positions(rank) for rank in range(4)] == [[0, 2, 4], [0, 2, 4], [1, 3, 5], [1, 3, 5]]
