"""Checkpoints whose files were changed at random. The hashes reveal every change. If a hash was
changed to match its file, loading returns values or raises one of our errors."""

from __future__ import annotations

import json
import os
import pickle
import random
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import xxhash
from torch import Tensor

from pipeline.reader import ShardReader
from schemas.errors import CheckpointError, ThdpackError
from schemas.models import ModelOptions
from tests.helpers.data.hostile import SEED, damaged, mutated
from trainer.checkpoints.checkpoint import Checkpoints
from trainer.checkpoints.file_hashes import HASHES, damage, hash_file, read_hashes, write_hashes
from trainer.checkpoints.run_lock import RunLock
from trainer.checkpoints.run_state import STATE, BestValidation, RunState, read_state
from trainer.config import ComputeOptions, DataOptions, TrainOptions
from trainer.distributed.topology import Topology, process_group
from trainer.model.initialize import build, fill
from trainer.optimizer import Optimizer
from trainer.readers.open_readers import open_readers
from trainer.start.resume_options import changes, resumed

LONG = "THDPACK_LONG" in os.environ
TEXTS = 12_000 if LONG else 300
"""Number of changed versions to try, for each of state.json and hashes.json."""
FILES = 12_000 if LONG else 100
"""Number of changed versions of each file to try. The original hash must reveal every change."""
FORGED = 12_000 if LONG else 50
"""Number of changed versions of each file to try with a hash that matches the change."""
NAME = Checkpoints.name(8)
DISTCP, METADATA = "__0_0.distcp", ".metadata"


@pytest.fixture(scope="module")
def topology() -> Iterator[Topology]:
    with process_group() as topology:
        yield topology


@pytest.fixture(scope="module")
def options(many_shards: Path) -> TrainOptions:
    return TrainOptions(
        model=ModelOptions(layers=1, hidden_size=8, heads=2, ffn_size=8),
        data=DataOptions(data=(str(many_shards),), prefetch=0, buckets_per_step=4),
        compute=ComputeOptions(backend="torch", precision="fp32"),
    )


@pytest.fixture(scope="module")
def optimizer(options: TrainOptions, topology: Topology) -> Optimizer:
    model = build(options.model, options.compute)
    return Optimizer(model, options.optimizer, fill(model, {}, seed=0, topology=topology))


@pytest.fixture(scope="module")
def tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """Return only the embedding and its Adam moments. Tests of all tensors take 8 times as long."""
    return dict(islice(optimizer.named_tensors(), 3))


@pytest.fixture
def checkpoints(
    tmp_path: Path, topology: Topology, options: TrainOptions, tensors: dict[str, Tensor]
) -> Checkpoints:
    """Write one checkpoint."""
    with ShardReader(options.data.data[0], prefetch=0) as reader:
        position = reader.state_dict()
    best = BestValidation(loss=2.75, checkpoint=NAME)
    state = RunState(
        step=8, tokens=1000, applied=7, best=best, sound=True, reader=position, options=options
    )
    found = Checkpoints(tmp_path, topology, RunLock(tmp_path / "lock"), keep_last=1)
    found.save(state, tensors)
    found.wait()
    return found


@pytest.fixture
def folder(checkpoints: Checkpoints, tmp_path: Path) -> Path:
    return tmp_path / NAME


def texts(content: bytes, rng: random.Random) -> Iterator[bytes]:
    """Yield changed versions: JSON with one changed value and randomly damaged bytes alternate."""
    raw = json.loads(content)
    for number in range(TEXTS):
        yield damaged(content, rng) if number % 2 else json.dumps(mutated(raw, rng)).encode()


def test_a_changed_state_is_read_or_raises_a_checkpoint_error(
    folder: Path, options: TrainOptions, optimizer: Optimizer, topology: Topology
) -> None:
    """Use each accepted state as a resumed run does: its options, step count and position."""
    refused = 0
    for text in texts((folder / STATE).read_bytes(), random.Random(SEED)):
        (folder / STATE).write_bytes(text)
        try:
            state = read_state(folder)
        except CheckpointError as error:
            refused += 1
            assert STATE in str(error)
            continue
        assert msgspec.json.decode(state.to_json(), type=RunState) == state
        optimizer.restored(state.applied)
        # a changed state that does not fit this run raises ValueError or one of our errors
        with (
            ExitStack() as stack,
            suppress(ValueError, ThdpackError),
        ):
            readers, found, _ = open_readers(
                resumed(options, state.options), topology, stack, state
            )
            assert isinstance(changes(found, state.options), str)
            readers.train.load_state_dict(state.reader)
            next(readers.train)
    assert refused > TEXTS // 2


def test_a_state_of_version_1_is_read(folder: Path) -> None:
    now = read_state(folder)
    raw = json.loads((folder / STATE).read_bytes())
    raw["version"] = 1
    raw["options"]["compute"]["cuda_graph"] = False
    raw["options"]["data"]["data"] = raw["options"]["data"]["data"][0]
    (folder / STATE).write_text(json.dumps(raw))
    before = read_state(folder)
    assert before.options.compute.cuda_graph == "off"
    assert before.options.data == now.options.data
    assert before.version == now.version


@pytest.mark.parametrize(
    "name",
    [
        "step",
        "tokens",
        "applied",
        "data.tokens_per_step",
        "optimizer.steps",
        "compute.gather_ahead",
        "output.keep_last",
    ],
)
def test_a_number_that_is_larger_than_int64_is_refused(folder: Path, name: str) -> None:
    """Such numbers would fail later: `applied` becomes an int64 tensor, and `steps` a float."""
    raw = json.loads((folder / STATE).read_bytes())
    section, _, option = name.rpartition(".")
    place = raw["options"][section] if section else raw
    place[option] = 10**400
    (folder / STATE).write_text(json.dumps(raw))
    with pytest.raises(
        CheckpointError, match=rf"at `\$\.{f'options.{section}' if section else name}`"
    ):
        read_state(folder)


def test_changed_hashes_are_refused(folder: Path, topology: Topology) -> None:
    honest = read_hashes(folder)
    content = (folder / HASHES).read_bytes()
    for text in texts(content, random.Random(SEED)):
        (folder / HASHES).write_bytes(text)
        if not damage(folder, topology):
            assert read_hashes(folder) == honest  # the change only added whitespace


def test_forged_hashes_are_compared_with_the_files(folder: Path, topology: Topology) -> None:
    honest = read_hashes(folder)
    files = json.loads((folder / HASHES).read_bytes())["files"]
    rng = random.Random(SEED)
    for _ in range(TEXTS):
        (folder / HASHES).write_text(signed(mutated(files, rng)))
        if not damage(folder, topology):
            assert read_hashes(folder).items() <= honest.items()


def signed(files: Any) -> str:
    canonical = json.dumps([1, files], sort_keys=True, separators=(",", ":"))
    return json.dumps(
        {"version": 1, "files": files, "digest": xxhash.xxh3_128_hexdigest(canonical.encode())}
    )


@pytest.mark.parametrize("name", [DISTCP, METADATA, STATE])
def test_every_change_of_a_file_is_found_by_its_hash(
    folder: Path, topology: Topology, name: str
) -> None:
    content = (folder / name).read_bytes()
    rng = random.Random(SEED)
    for _ in range(FILES):
        (folder / name).write_bytes(damaged(content, rng))
        assert f"{name} " in damage(folder, topology)
    (folder / name).write_bytes(content)
    assert damage(folder, topology) == ""


@pytest.mark.parametrize("name", [DISTCP, METADATA])
def test_a_changed_file_with_a_forged_hash_is_loaded_or_raises_a_checkpoint_error(
    folder: Path, checkpoints: Checkpoints, tensors: dict[str, Tensor], name: str
) -> None:
    content = (folder / name).read_bytes()
    rng = random.Random(SEED)
    wanted = {key: torch.zeros_like(tensor) for key, tensor in tensors.items()}
    refused = 0
    with bounded_memory(2 << 30):
        for _ in range(FORGED):
            (folder / name).write_bytes(damaged(content, rng))
            write_hashes(
                folder,
                {path.name: hash_file(path) for path in folder.iterdir() if path.name != HASHES},
            )
            try:
                checkpoints.load(NAME, wanted, optional={})
            except CheckpointError:
                refused += 1
    assert refused > FORGED // 4


@pytest.mark.parametrize("part", ["state_dict_metadata", "storage_meta"])
def test_incomplete_metadata_raises_a_checkpoint_error(
    folder: Path, checkpoints: Checkpoints, tensors: dict[str, Tensor], part: str
) -> None:
    metadata = pickle.loads((folder / METADATA).read_bytes())
    delattr(metadata, part)
    (folder / METADATA).write_bytes(pickle.dumps(metadata))
    with pytest.raises(CheckpointError, match=r"\.metadata cannot be read: AttributeError"):
        checkpoints.load(NAME, tensors, optional={})


@contextmanager
def bounded_memory(more: int) -> Iterator[None]:
    """Limit the address space to `more` bytes above its present size.

    A changed file may contain a huge size. The process must not allocate that much memory.
    """
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
