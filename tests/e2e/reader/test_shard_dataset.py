"""`ShardDataset` in DataLoaders with workers: order, resume, other numbers of workers and ranks.

Each check runs in a new process. See test_forked_reader.py.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from pipeline.reader import ShardDataset, ShardReader, bshd
from schemas.errors import StateError
from tests.helpers.processes.ranks import Job

CHECK = """
import sys
from pathlib import Path
from tests.e2e.reader import test_shard_dataset
getattr(test_shard_dataset, sys.argv[1])(Path(sys.argv[2]))
"""
TOPOLOGIES = [(1, 0), (1, 2), (2, 3)]
"""Numbers of ranks and of workers. A loader with workers takes 0.15 s of CPU."""


def run(check: Callable[[Path], None], dataset: Path, *, ranks: int = 1) -> str:
    return Job(CHECK, [check.__name__, str(dataset)], ranks=ranks).finish()


def position_and_tokens(bucket: Any) -> dict[str, int]:
    """Return few values for each bucket, because sending a bucket to this process takes longer."""
    tokens = bucket.input_ids.astype(int)
    return {"position": bucket.position, "sum": int((tokens * range(1, tokens.size + 1)).sum())}


def of_reader(
    dataset: Path, rank: int, ranks: int, start: int, end: int | None, **options: Any
) -> Iterator[dict[str, int]]:
    with ShardReader(dataset, rank=rank, world_size=ranks, prefetch=0, **options) as reader:
        reader.seek(start)
        for bucket in reader if end is None else reader.until(end):
            yield position_and_tokens(bucket)


def opened(dataset: Path, rank: int, ranks: int, epochs: int | None = None) -> ShardDataset:
    return ShardDataset(
        dataset,
        rank=rank,
        world_size=ranks,
        epochs=epochs,
        transform=position_and_tokens,
        prefetch=0,
    )


def loader_of(
    source: ShardDataset, workers: int, *, snapshots: int = 1, context: str = "fork"
) -> StatefulDataLoader[dict[str, int]]:
    return StatefulDataLoader(
        source,
        batch_size=None,
        num_workers=workers,
        snapshot_every_n_steps=snapshots,
        multiprocessing_context=context if workers else None,
    )


def order_is_that_of_the_reader(dataset: Path) -> None:
    with ShardReader(dataset) as reader:
        buckets = len(reader)
        identity = reader.state_dict()
    for ranks, workers in (*TOPOLOGIES, (1, 1), (3, 2)):
        for start in (0, buckets - 7):
            for rank in range(ranks):
                source = opened(dataset, rank, ranks)
                source.load_state_dict({**identity, "position": start})
                loader = DataLoader(
                    source,
                    batch_size=None,
                    num_workers=workers,
                    multiprocessing_context="fork" if workers else None,
                )
                expected = islice(of_reader(dataset, rank, ranks, start, None), 20)
                assert list(islice(loader, 20)) == list(expected), (ranks, workers, start, rank)


def passes_end_with_an_epoch(dataset: Path) -> None:
    with ShardReader(dataset, split="valid") as reader:
        buckets = len(reader)
    assert buckets % 4 in (1, 2, 3)  # some ranks and workers get one bucket less
    for ranks, workers in TOPOLOGIES:
        union = []
        for rank in range(ranks):
            source = ShardDataset(
                dataset,
                "valid",
                epochs=3,
                rank=rank,
                world_size=ranks,
                transform=position_and_tokens,
            )
            expected = list(of_reader(dataset, rank, ranks, 0, 3 * buckets, split="valid"))
            loader = loader_of(source, workers)
            assert list(loader) == expected
            assert list(loader) == expected  # each pass begins at position 0
            union += expected
        assert sorted(bucket["position"] for bucket in union) == list(range(3 * buckets))


def resumed_is_uninterrupted(dataset: Path) -> None:
    for ranks, workers in TOPOLOGIES:
        rank = ranks - 1
        expected = list(islice(of_reader(dataset, rank, ranks, 0, None), 16))
        for cut, snapshots in ((0, 1), (3, 1), (5, 3)):
            loader = loader_of(opened(dataset, rank, ranks), workers, snapshots=snapshots)
            begun = list(islice(loader, cut)) if cut else []
            state = loader.state_dict()
            again = loader_of(opened(dataset, rank, ranks), workers, snapshots=snapshots)
            again.load_state_dict(state)
            assert begun + list(islice(again, 16 - cut)) == expected, (ranks, workers, cut)


def finite_passes_resume(dataset: Path) -> None:
    with ShardReader(dataset, split="valid") as reader:
        buckets = len(reader)
    for workers in (0, 2):
        expected = list(of_reader(dataset, 0, 1, 0, buckets, split="valid"))
        for cut in range(1, buckets + 1):
            source = partial(ShardDataset, dataset, "valid", transform=position_and_tokens)
            loader = loader_of(source(epochs=1), workers)
            passing = iter(loader)
            begun = [next(passing) for _ in range(cut)]
            again = loader_of(source(epochs=1), workers)
            again.load_state_dict(loader.state_dict())
            assert begun + list(again) == expected, (workers, cut)
            assert list(again) == expected  # the next pass begins at position 0


def any_numbers_of_workers_and_ranks_resume(dataset: Path) -> None:
    steps = 5
    for ranks, workers in ((2, 0), (3, 2)):
        states = []
        for rank in range(ranks):
            source = opened(dataset, rank, ranks)
            list(islice(loader_of(source, workers), steps))
            states.append(source.state_after(steps))
        assert all(state == states[0] for state in states)
        assert states[0]["position"] == steps * ranks
        for more, others in TOPOLOGIES:
            again = opened(dataset, more - 1, more)
            again.load_state_dict(states[0])
            expected = list(islice(of_reader(dataset, more - 1, more, steps * ranks, None), 4))
            assert list(islice(loader_of(again, others), 4)) == expected
            assert again.state_after(4)["position"] == steps * ranks + 4 * more
        with ShardReader(dataset) as reader:
            reader.load_state_dict(states[0])
            assert next(reader).position == steps * ranks


def other_workers_refuse_a_loaders_state(dataset: Path) -> None:
    for saved, workers in ((2, 3), (1, 2)):
        loader = loader_of(opened(dataset, 0, 1), saved)
        list(islice(loader, 3))
        state = loader.state_dict()
        again = loader_of(opened(dataset, 0, 1), workers)
        again.load_state_dict(state)
        with pytest.raises(StateError, match=rf"one of {saved} workers.*state_after"):
            next(iter(again))
        # Kill the failed workers, because torch would wait at least 5 s for them. First disable
        # torch's SIGCHLD handler, because it would raise an error for each killed worker.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for worker in multiprocessing.active_children():
            worker.kill()


def other_ranks_refuse_a_workers_state(dataset: Path) -> None:
    source = opened(dataset, 0, 2)
    state = source.state_dict()
    source.load_state_dict({**state, "workers": 1, "groups": 3})  # one worker: any number of ranks
    with pytest.raises(StateError, match=r"one of 2 workers, .* over 3 ranks, and here are 1 work"):
        source.load_state_dict({**state, "workers": 2, "groups": 3})


def spawned_workers_read_and_resume(dataset: Path) -> None:
    source = ShardDataset(dataset, transform=bshd, prefetch=0)
    state = source.state_dict()
    source.load_state_dict({**state, "position": 3})
    loader = loader_of(source, 2, context="spawn")
    with ShardReader(dataset) as reader:
        reader.seek(3)
        for batch, bucket in zip(islice(loader, 5), reader, strict=False):
            rows = bshd(bucket)
            assert batch.keys() == rows.keys()
            assert all(torch.equal(batch[name], torch.tensor(rows[name])) for name in rows)
    workers = loader.state_dict()["_snapshot"]["_worker_snapshots"]
    assert [workers[f"worker_{i}"]["dataset_state"]["position"] for i in (0, 1)] == [9, 7]


def ranks_of_torch_distributed_share_the_buckets(dataset: Path) -> None:
    source = ShardDataset(dataset, transform=position_and_tokens, prefetch=0)  # before the group
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    found = list(islice(loader_of(source, 2), 6))
    assert found == list(islice(of_reader(dataset, rank, 2, 0, None), 6))
    assert source.__getstate__()["_given"] == (rank, 2)  # for spawned workers, without the group
    torch.distributed.destroy_process_group()


def test_the_repr_shows_the_dataset_and_the_rank(many_shards: Path) -> None:
    found = repr(ShardDataset(many_shards, rank=1, world_size=2, seed=3))
    start = f"ShardDataset({str(many_shards)!r}, split='train', rank=1"
    assert found == f"{start}, world_size=2, seed=3, position=0)"


def test_a_loader_yields_the_order_of_the_reader_for_any_numbers_of_ranks_and_workers(
    many_shards: Path,
) -> None:
    run(order_is_that_of_the_reader, many_shards)


def test_a_pass_ends_with_its_last_epoch_and_the_ranks_read_each_bucket_once(
    many_shards: Path,
) -> None:
    run(passes_end_with_an_epoch, many_shards)


def test_a_resumed_loader_yields_what_an_uninterrupted_one_would(many_shards: Path) -> None:
    run(resumed_is_uninterrupted, many_shards)


def test_a_finite_pass_resumes_and_the_next_pass_is_whole(many_shards: Path) -> None:
    run(finite_passes_resume, many_shards)


def test_a_state_after_batches_fits_any_numbers_of_workers_and_ranks(many_shards: Path) -> None:
    run(any_numbers_of_workers_and_ranks_resume, many_shards)


def test_a_loaders_state_is_refused_with_another_number_of_workers(many_shards: Path) -> None:
    run(other_workers_refuse_a_loaders_state, many_shards)
    run(other_ranks_refuse_a_workers_state, many_shards)


def test_spawned_workers_read_their_share_and_save_their_state(many_shards: Path) -> None:
    run(spawned_workers_read_and_resume, many_shards)


def test_rank_and_world_size_come_from_torch_distributed(many_shards: Path) -> None:
    run(ranks_of_torch_distributed_share_the_buckets, many_shards, ranks=2)
