"""Map a shard into memory, verify it, and return its buckets without copying their tokens.

The reader hashes the whole file (14 GB/s) and later reads the buckets through the same mapping. The
reader therefore returns exactly the verified bytes, as long as the file does not change while it is
mapped. Such a change is not detected. When a shard is mapped for the first time, its buckets are
checked, too (see `bucket_checks`). A compressed shard is decompressed as a whole, into anonymous
memory.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from pipeline.reader.arrow_columns import numbers
from pipeline.reader.bucket_checks import first_problem
from pipeline.reader.bucket_shape import BucketShape
from pipeline.storage.file_hash import difference
from pipeline.storage.folder import Folder
from schemas.errors import DatasetError, InputError
from schemas.manifest_entries import RecordsEntry, ShardEntry
from schemas.shard import Bucket, shard_schema

_NOT_READABLE = (
    pa.ArrowException,
    OSError,
    ValueError,
    KeyError,
    IndexError,
    OverflowError,
    MemoryError,
)
"""Errors that pyarrow and numpy raise for inconsistent content of a shard."""


class DamagedShardError(DatasetError):
    """A shard is missing, or differs from the manifest."""


def no_release() -> None:
    """Do nothing. This is the `release` of a shard that is not in a cache."""


class MappedShard:
    """The buckets of one verified shard.

    The mapping stays valid as long as any of its buckets is in use. `release` does not end the
    mapping. It only unlocks the file in the cache.
    """

    def __init__(
        self,
        path: Path,
        entry: ShardEntry,
        shape: BucketShape,
        *,
        release: Callable[[], None] = no_release,
        check_buckets: bool = True,
    ) -> None:
        """Map and verify a shard.

        Args:
            release: function that is called once, when the reader no longer needs the shard.
            check_buckets: True to check the buckets, too. Pass False if the shard's buckets were
                checked before.
        Raises:
            DamagedShardError: the file is missing, differs from the manifest, or has buckets that
                break a rule.
            DatasetError: the file cannot be opened or mapped.
        """
        self.release = release
        self._shape = shape
        content = verified_mapping(path, entry)
        try:
            self._map(content, entry, path, check_buckets=check_buckets)
        except _NOT_READABLE as error:
            raise DamagedShardError(f"{path}: not a readable Arrow file: {error}") from error

    def _map(
        self, content: pa.Buffer, entry: ShardEntry, path: Path, *, check_buckets: bool
    ) -> None:
        shape = self._shape
        options = pa.ipc.IpcReadOptions(use_threads=False)  # do not start Arrow's thread pool
        reader = pa.ipc.open_file(content, options=options)
        if not reader.schema.equals(shard_schema(shape.capacity)):
            raise DamagedShardError(
                f"{path}: its schema is not the schema of shards of capacity {shape.capacity}"
            )
        batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        rows = np.cumsum([0, *(batch.num_rows for batch in batches)])
        if int(rows[-1]) != entry.buckets:
            raise DamagedShardError(
                f"{path}: {rows[-1]} buckets, the manifest says {entry.buckets}"
            )
        if check_buckets and (problem := first_problem(batches, shape)):
            raise DamagedShardError(f"{path}: {problem}")
        self._first_rows: list[int] = rows[:-1].tolist()
        self._tokens = [
            numbers(batch.column("input_ids").values, np.uint8).reshape(-1, shape.capacity)
            for batch in batches
        ]
        self._cu_seqlens = _static_cu_seqlens(
            [batch.column("cu_seqlens") for batch in batches], shape
        )
        self._records = [batch.column("record") for batch in batches]
        self._starts = [batch.column("start") for batch in batches]
        # a memoryview returns a Python int, four times faster than a numpy array
        self._num_seqs = np.concatenate(
            [numbers(batch.column("num_seqs"), np.int32) for batch in batches]
        ).data
        self._num_tokens = np.concatenate(
            [numbers(batch.column("num_tokens"), np.int32) for batch in batches]
        ).data

    def bucket(self, row: int, position: int, epoch: int) -> Bucket:
        """Return the bucket in a row, labelled with its position in the global order and its
        epoch."""
        batch = bisect_right(self._first_rows, row) - 1
        return Bucket(
            input_ids=self._tokens[batch][row - self._first_rows[batch]],
            cu_seqlens=self._cu_seqlens[row],
            max_seqlen=self._shape.max_seqlen,
            num_seqs=self._num_seqs[row],
            num_tokens=self._num_tokens[row],
            position=position,
            epoch=epoch,
        )

    def records(self, row: int) -> NDArray[np.int64]:
        """Return the record of each sequence in a row, int64[num_seqs].

        A record is given by its ordinal, which is its position in the input order.
        """
        batch = bisect_right(self._first_rows, row) - 1
        return numbers(self._records[batch][row - self._first_rows[batch]].values, np.int64)

    def starts(self, row: int) -> NDArray[np.int32]:
        """Return the index in its record of each sequence's first residue, int32[num_seqs]."""
        batch = bisect_right(self._first_rows, row) - 1
        return numbers(self._starts[batch][row - self._first_rows[batch]].values, np.int32)


def verified_mapping(path: Path, entry: ShardEntry) -> pa.Buffer:
    """Return a shard's mapping after comparing its size and hash with the manifest.

    Raises:
        DamagedShardError: the file is missing, or differs from the manifest.
        DatasetError: the file cannot be opened or mapped, for example because the process lacks
            permission or has too many open files.
    """
    try:
        # the mapping stays valid after the file's descriptor is closed
        with pa.memory_map(str(path)) as file:
            content = file.read_buffer()
    except FileNotFoundError:
        raise DamagedShardError(f"{path}: missing") from None
    except OSError as error:
        raise DatasetError(f"{path}: cannot be mapped: {error.strerror or error}") from error
    return verified(content, entry, str(path))


def verified(content: pa.Buffer, entry: ShardEntry | RecordsEntry, name: str) -> pa.Buffer:
    """Return a file's content after comparing its size and hash with the manifest.

    Args:
        name: name of the file, for the message.
    Raises:
        DamagedShardError: the content differs.
    """
    problem = difference(name, content.size, xxhash.xxh3_128_hexdigest(content), entry)
    if problem is not None:
        raise DamagedShardError(problem)
    return content


def _static_cu_seqlens(columns: list[pa.ListArray], shape: BucketShape) -> NDArray[np.int32]:
    """Return cu_seqlens of all buckets, int32[buckets, slots + 1], read-only.

    The capacity is repeated to fill each row. The size of the array is 1.6 % of the shard's size
    with buckets of 16,384 tokens, and 13 % with buckets of 1,024 tokens.
    """
    lengths = np.concatenate([np.diff(numbers(column.offsets, np.int32)) for column in columns])
    rows = np.full((lengths.size, shape.slots + 1), shape.capacity, dtype=np.int32)
    rows[np.arange(shape.slots + 1) < lengths[:, None]] = np.concatenate(
        [numbers(column.values, np.int32) for column in columns]
    )
    rows.flags.writeable = False
    return rows


def checked_content(folder: Folder, entry: ShardEntry | RecordsEntry) -> pa.Buffer:
    """Return a file's content.

    Raises:
        DamagedShardError: the file is missing, or its size or hash is wrong.
        DatasetError: the file cannot be read.
    """
    path = folder.where(entry.name)
    try:
        return verified(folder.buffer(entry.name), entry, path)
    except FileNotFoundError:
        raise DamagedShardError(f"{path}: missing") from None
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read: {error.strerror or error}") from error
    except InputError as error:
        raise DatasetError(str(error)) from error
