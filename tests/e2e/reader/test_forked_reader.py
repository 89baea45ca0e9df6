"""A reader belongs to the process that opened it; a forked process must not iterate over it.

Each check runs in a new process, which has not loaded Ray. If a process that has loaded Ray forks,
the fork may crash in Ray's libraries.
"""

from __future__ import annotations

import multiprocessing
import pickle
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from pipeline.reader import Mixture, ShardReader
from tests.helpers.processes.forks import in_a_fork
from tests.helpers.processes.ranks import Job

Open = Callable[[Path], ShardReader | Mixture]
READERS: dict[str, Open] = {
    "reader": ShardReader,
    "no threads": lambda path: ShardReader(path, prefetch=0),
    "mixture": lambda path: Mixture([(path, 1.0)], buckets_per_step=4),
}
CHECK = """
import sys
from pathlib import Path
from tests.e2e.reader import test_forked_reader
getattr(test_forked_reader, sys.argv[1])(Path(sys.argv[2]), *sys.argv[3:])
"""


class Positions(IterableDataset[int]):
    """Dataset with a common mistake: the reader is opened before DataLoader forks its workers."""

    def __init__(self, reader: ShardReader | Mixture) -> None:
        self.reader = reader

    def __iter__(self) -> Iterator[int]:
        return (bucket.position for bucket in self.reader)


class ByNumber(Dataset[int]):
    def __init__(self, reader: ShardReader) -> None:
        self.reader = reader

    def __len__(self) -> int:
        return len(self.reader)

    def __getitem__(self, number: int) -> int:
        return int(self.reader[number].input_ids.astype(int).sum())


def in_its_own_process(check: Callable[..., None], dataset: Path, *arguments: str) -> None:
    Job(CHECK, [check.__name__, str(dataset), *arguments]).finish()


def workers_refuse(dataset: Path) -> None:
    with ShardReader(dataset) as reader:
        next(reader)
        loader = DataLoader(
            Positions(reader), batch_size=None, num_workers=2, multiprocessing_context="fork"
        )
        positions = iter(loader)
        with pytest.raises(RuntimeError, match="opened in another process"):
            next(positions)
        # Kill the failed workers, because torch would wait at least 5 s for them. First
        # disable torch's SIGCHLD handler, because it would raise an error for each killed worker.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for worker in multiprocessing.active_children():
            worker.kill()
        assert next(reader).position == 1  # this process can still read


def a_fork_refuses(dataset: Path, kind: str, begun: str) -> None:
    with READERS[kind](dataset) as reader:
        for _ in range(int(begun)):
            next(reader)
        for use in (
            lambda: next(reader),
            lambda: next(iter(reader)),
            lambda: next(reader.batches(1)),
            lambda: reader.seek(7),
        ):
            assert in_a_fork(use).startswith(
                "ForkedReaderError: this reader was opened in another process"
            )
        assert next(reader).position == int(begun)


def a_loop_ends_in_forks(dataset: Path) -> None:
    def read_on(reader: ShardReader) -> None:
        for _ in range(20):
            next(reader)

    with ShardReader(dataset) as reader:
        for number, _ in zip(range(40), reader, strict=False):
            if number % 4 == 0:
                said = in_a_fork(lambda: read_on(reader))
                assert said.startswith("ForkedReaderError: "), said
                assert in_a_fork(reader.close) == ""


def loaders_refuse(dataset: Path) -> None:
    with ShardReader(dataset) as reader:
        for options in (
            {"batch_size": None},
            {"batch_size": 2, "collate_fn": list},
            {"batch_size": None, "shuffle": True},
        ):
            with pytest.raises(TypeError, match="iterate over the reader itself"):
                next(iter(DataLoader(reader, **options)))  # type: ignore[arg-type]
        subset = torch.utils.data.Subset(reader, range(4))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="iterate over the reader itself"):
            subset[0]
        assert reader[3].position == -1
    with Mixture([(dataset, 1)]) as mixture:
        with pytest.raises(TypeError, match="iterate over the reader itself"):
            next(iter(DataLoader(mixture)))  # type: ignore[arg-type]
        assert mixture  # a mixture is true, although it has no length
        with pytest.raises(TypeError, match="a Mixture has no length"):
            len(mixture)


class OpenedInWorkers(IterableDataset[int]):
    """Dataset whose reader is opened in each worker. If `counted` is true, a worker is a rank."""

    def __init__(self, dataset: Path, counted: bool) -> None:
        self.dataset, self.counted = dataset, counted

    def __iter__(self) -> Iterator[int]:
        worker = torch.utils.data.get_worker_info()
        assert worker is not None
        ranks = {"rank": worker.id, "world_size": worker.num_workers} if self.counted else {}
        with ShardReader(self.dataset, prefetch=0, **ranks) as reader:
            for _ in range(4):
                yield next(reader).position


def workers_count_as_ranks(dataset: Path) -> None:
    def loader(counted: bool, workers: int) -> DataLoader[int]:
        source = OpenedInWorkers(dataset, counted)
        return DataLoader(
            source, batch_size=None, num_workers=workers, multiprocessing_context="fork"
        )

    assert sorted(loader(True, 2)) == list(range(8))
    assert list(loader(False, 1)) == list(range(4))
    positions = iter(loader(False, 2))
    with pytest.raises(TypeError, match=r"one of 2 workers .* the same buckets"):
        next(positions)
    for worker in multiprocessing.active_children():
        worker.kill()


def workers_read_by_number(dataset: Path) -> None:
    with ShardReader(dataset) as reader:
        expected = [ByNumber(reader)[number] for number in range(40)]
        subset = torch.utils.data.Subset(ByNumber(reader), range(40))
        loader = DataLoader(subset, batch_size=None, num_workers=2, multiprocessing_context="fork")
        assert list(loader) == expected


def test_workers_of_a_data_loader_cannot_use_a_reader_opened_before_the_fork(
    many_shards: Path,
) -> None:
    in_its_own_process(workers_refuse, many_shards)


def test_a_data_loader_cannot_take_a_reader_as_its_dataset(many_shards: Path) -> None:
    in_its_own_process(loaders_refuse, many_shards)


def test_data_loader_workers_that_open_their_own_readers_must_count_as_ranks(
    many_shards: Path,
) -> None:
    in_its_own_process(workers_count_as_ranks, many_shards)


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("begun", ["0", "3"])
def test_a_fork_cannot_read_or_seek(many_shards: Path, kind: str, begun: str) -> None:
    in_its_own_process(a_fork_refuses, many_shards, kind, begun)


def test_a_read_loop_in_a_fork_raises_an_error_and_does_not_hang(many_shards: Path) -> None:
    """Fork while the reader's threads run and hold locks."""
    in_its_own_process(a_loop_ends_in_forks, many_shards)


def test_workers_of_a_data_loader_read_buckets_by_number(many_shards: Path) -> None:
    in_its_own_process(workers_read_by_number, many_shards)


def test_a_reader_cannot_be_pickled(many_shards: Path) -> None:
    with (
        ShardReader(many_shards) as reader,
        pytest.raises(TypeError, match="open it in that process"),
    ):
        pickle.dumps(reader)
