"""Entries of a file of `--exclude`, as arrays in a work file (an intermediate file of the build)
that tasks map into memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Final, Self

import numpy as np
import pyarrow as pa
import xxhash
from numpy.typing import NDArray

from pipeline.build.arrays.arrow_arrays import number_array
from pipeline.build.task_results import WorkFile
from pipeline.storage.folder import Folder
from schemas.errors import DamagedSpillError

SEPARATOR: Final = 0
"""Value after each entry in `SequenceEntries.text`: the token <cls>, which is not a residue."""
ENOUGH: Final = np.iinfo(np.int64).max
"""Value of `NameEntries.aligned` if no coverage has to be computed. This is so for a list of ids,
and for search results with columns of coverage, which were checked when they were read."""


class _Entries:
    """Base of dataclasses whose fields are arrays, stored as the columns of an Arrow file. The file
    has one row, so that columns may have different lengths."""

    kind: ClassVar[str]

    @classmethod
    def from_columns(cls, columns: Mapping[str, NDArray[Any]]) -> Self:
        return cls(**{name: columns[name] for name in cls.names()})

    @classmethod
    def names(cls) -> list[str]:
        return [field.name for field in fields(cls)]  # type: ignore[arg-type] # all are dataclasses

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, name) for name in self.names()}

    def content_hash(self, *more: str) -> str:
        """Return the xxh3_128 of the content and the texts `more` together."""
        found = xxhash.xxh3_128("\n".join((self.kind, *more)).encode())
        for array in self.arrays().values():
            found.update(f"\n{array.size}\n".encode())
            found.update(np.ascontiguousarray(array).view(np.uint8).data)
        return found.hexdigest()


@dataclass(frozen=True, kw_only=True)
class _Ids(_Entries):
    """E ids. Id i is ids[id_edges[i]:id_edges[i + 1]]."""

    ids: NDArray[np.uint8]
    id_edges: NDArray[np.int64]

    def id(self, entry: int) -> bytes:
        return self.ids[self.id_edges[entry] : self.id_edges[entry + 1]].tobytes()


@dataclass(frozen=True, kw_only=True)
class SequenceEntries(_Ids):
    """Distinct sequences of a FASTA file. Equal sequences have one entry, with their smallest id.

    The entries are in order of preference: shorter sequences first, then smaller ids.

    ids, id_edges: uint8[…] and int64[E + 1], ids of the entries
    text: uint8[T], tokens of all entries. SEPARATOR follows each entry.
    starts: int64[E + 1], index of each entry's first token in `text`
    order: int64[W], starts of all windows (12 consecutive tokens of one entry) in `text`, sorted by
        the text that follows; see `suffix_order`. Empty if the file is only for MMseqs2.
    """

    kind: ClassVar[str] = "sequences"

    text: NDArray[np.uint8]
    starts: NDArray[np.int64]
    order: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.starts.size - 1)

    @cached_property
    def residues(self) -> NDArray[np.int64]:
        """Number of residues of each entry, int64[E]."""
        return np.diff(self.starts) - 1


@dataclass(frozen=True, kw_only=True)
class NameEntries(_Ids):
    """Names of records to exclude, from a list of ids or from search results of BLAST or MMseqs2.

    The matches of a name are the sequences that the search results relate to it. In a list of ids,
    the only match of a name is the name itself.

    ids, id_edges: uint8[…] and int64[E + 1], ids of the matches, sorted
    hash: uint8[16 N], xxh3_128 of each name, sorted
    first: int64[N + 1], index of each name's first match in `match`
    match: int64[M], index of an id. The matches of a name are in ascending order.
    aligned: int64[M], number of the record's residues that the alignment covers, or ENOUGH
    """

    kind: ClassVar[str] = "names"

    hash: NDArray[np.uint8]
    first: NDArray[np.int64]
    match: NDArray[np.int64]
    aligned: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ListedNames(NameEntries):
    """Names in a list of ids."""

    kind: ClassVar[str] = "listed"


@dataclass(frozen=True, kw_only=True)
class OrdinalEntries(_Ids):
    """Records that a run of MMseqs2 found similar to a sequence of a file.

    ids, id_edges: uint8[…] and int64[E + 1], ids of the sequences
    ordinal: int64[N], ordinals of the records (their numbers among all input records), ascending
    match: int64[N], index of the id of each record's match
    """

    kind: ClassVar[str] = "ordinals"

    ordinal: NDArray[np.int64]
    match: NDArray[np.int64]


Entries = SequenceEntries | NameEntries | OrdinalEntries
_KINDS: Final[dict[str, type[Entries]]] = {
    kind.kind: kind for kind in (SequenceEntries, NameEntries, ListedNames, OrdinalEntries)
}


def write_entries(entries: Entries, work: Folder, name: str) -> WorkFile:
    """Write entries as a work file.

    Raises:
        BuildError: the file cannot be written.
    """
    columns = {
        field: pa.LargeListArray.from_arrays(
            number_array(np.array([0, array.size], dtype=np.int64)), number_array(array)
        )
        for field, array in entries.arrays().items()
    }
    schema = pa.schema(
        [(field, column.type) for field, column in columns.items()],
        metadata={"kind": entries.kind},
    )
    with work.written(name, durable=False) as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(list(columns.values()), schema=schema))
    return WorkFile(name=name, bytes=file.bytes, xxh3_128=file.xxh3_128)


def read_entries(work: Folder, file: WorkFile) -> Entries:
    """Map a work file into memory, and check its hash.

    Raises:
        DamagedSpillError: the file is missing or damaged.
    """
    try:
        buffer = work.buffer(file.name)
    except FileNotFoundError as error:
        raise DamagedSpillError(file.name) from error
    if xxhash.xxh3_128_hexdigest(buffer) != file.xxh3_128:
        raise DamagedSpillError(file.name)
    reader = pa.ipc.open_file(buffer)
    batch = reader.get_batch(0)
    kind = _KINDS[reader.schema.metadata[b"kind"].decode()]
    return kind.from_columns({name: _values(batch.column(name)) for name in kind.names()})


def _values(column: pa.Array) -> NDArray[Any]:
    values = column.values
    dtype = values.type.to_pandas_dtype()
    if len(values) == 0:
        return np.empty(0, dtype=dtype)
    return np.frombuffer(values.buffers()[1], dtype=dtype)[
        values.offset : values.offset + len(values)
    ]
