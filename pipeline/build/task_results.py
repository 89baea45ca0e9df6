"""What the marker of each kind of task may say of its result: types, and names that are the task's own."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, NotRequired, TypedDict

import msgspec

from pipeline.build.signed_json import RecordsName, ShardName, WorkName
from pipeline.build.tasks import HashTask, MapTask, ReduceTask, RestTask, Task
from schemas.untrusted_json import Count, Hash, LargeCount, decoded

_Spill = tuple[WorkName, Count, Hash]


class _Mapped(TypedDict):
    spills: Annotated[list[_Spill], msgspec.Meta(min_length=1, max_length=1)]
    records: Count
    residues: Count
    unknown: Count
    pieces: list[Hash]


class _Hashed(TypedDict):
    pieces: list[Hash]


class _Shard(TypedDict):
    name: ShardName
    bytes: Count
    buckets: Count
    tokens: Count
    xxh3_128: Hash


class _Records(TypedDict):
    name: RecordsName
    bytes: Count
    rows: Count
    xxh3_128: Hash


class _Shards(TypedDict):
    train: list[_Shard]
    valid: list[_Shard]


class _Statistics(TypedDict):
    capacity: Count
    longest: Count
    buckets: Count
    sequences: Count
    tokens: Count
    cost_sum: LargeCount
    cost_square_sum: LargeCount
    cost_max: Count
    seqs_max: Count
    pieces_max: Count
    counts: dict[Literal["length", "fill", "cost", "sequences"], list[Count]]


class _SplitStatistics(TypedDict):
    train: _Statistics
    valid: _Statistics


class _Packed(TypedDict):
    spills: Annotated[list[_Spill], msgspec.Meta(max_length=1)]
    records: _Records
    shards: _Shards
    statistics: _SplitStatistics
    token_counts: Annotated[list[Count], msgspec.Meta(min_length=256, max_length=256)]
    status: NotRequired[dict[Literal["kept", "invalid", "too_short", "too_long", "duplicate"], Count]]
    residues_in: NotRequired[Count]
    cropped_copies: NotRequired[Count]


_RESULTS: Final = {MapTask: _Mapped, HashTask: _Hashed, ReduceTask: _Packed, RestTask: _Packed}


def result_of(task: Task, noted: msgspec.Raw) -> dict[str, Any] | None:
    """A task's result as its marker says it; None if such a task leaves no such result."""
    try:
        result: dict[str, Any] = dict(decoded(bytes(noted), _RESULTS[type(task)]))
    except ValueError:
        return None
    return result if _own(task, result) else None


def _own(task: Task, result: dict[str, Any]) -> bool:
    """Whether the files of a result are called as this task calls its own."""
    spills = {name for name, _, _ in result.get("spills", ())}
    if isinstance(task, MapTask):
        return spills == {task.spill}
    if not isinstance(task, ReduceTask | RestTask):
        return True
    entries = [*result["shards"]["train"], *result["shards"]["valid"], result["records"]]
    ours = all(entry["name"].partition("/")[2].startswith(f"{task.job.build}-") for entry in entries)
    sides = all(entry["name"].startswith(f"{split}/") for split, shards in result["shards"].items() for entry in shards)
    return ours and sides and spills <= {task.rest}
