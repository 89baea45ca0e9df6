"""Parts: files with the results of one unit each.

    OUT/.parts/settings.json          what the parts depend on (settings.py)
    OUT/.parts/<unit>.arrow           Arrow IPC file; a row for each window

A part appears when it is complete, so a killed process leaves no incomplete part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.storage.atomic_write import sync_files
from trainer.checkpoints.atomic_write import PARTIAL, publish
from trainer.inference.rows import PackedRow
from trainer.inference.units import Unit

PARTS: Final = ".parts"
"""Folder of the parts, inside the output folder."""
BF16: Final = {b"dtype": b"bfloat16"}
"""Metadata of columns that hold bf16 values as uint16, because Arrow has no bf16."""
_BATCH_BYTES: Final = 64 << 20
"""Approximate size of a record batch in a part."""

Join = Literal["mean", "exp_mean", "sum", "concatenate"]
"""How the values of a record's windows become the value of the record: their mean, weighted by the
number of owned residues; the exponential of this mean; their sum; or the values of all owned
residues, in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """A result of each record: a column of parts and of the output.

    size: number of values of each window or residue; 0 for a single number.
    dtype: dtype of the values.
    """

    name: str
    join: Join
    size: int
    dtype: torch.dtype

    @property
    def value_type(self) -> pa.DataType:
        """Arrow type of a single value."""
        return _ARROW[self.dtype]

    @property
    def row_type(self) -> pa.DataType:
        """Arrow type of the values of a window or residue."""
        if not self.size:
            return self.value_type
        return pa.list_(pa.field("item", self.value_type, nullable=False), self.size)

    @property
    def field(self) -> pa.Field:
        """Arrow field of the column."""
        kind = self.row_type
        if self.join == "concatenate":
            kind = pa.list_(pa.field("item", kind, nullable=False))
        return pa.field(self.name, kind, metadata=BF16 if self.dtype == torch.bfloat16 else None)

    def array(self, values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> pa.Array:
        """Return an Arrow array of N rows of values.

        Args:
            values: the values as Arrow stores them, [N] or [N, size].
            valid: bool[N], False where the values are missing; None if none are missing.
        """
        missing = None if valid is None else ~valid
        if not self.size:
            return pa.array(values, type=self.value_type, mask=missing)
        flat = pa.array(np.ascontiguousarray(values).ravel(), type=self.value_type)
        mask = None if missing is None else pa.array(missing)
        return pa.FixedSizeListArray.from_arrays(flat, type=self.row_type, mask=mask)

    def lists(
        self,
        values: NDArray[Any],
        sizes: NDArray[np.int64],
        valid: NDArray[np.bool_] | None = None,
    ) -> pa.Array:
        """Return an Arrow array of N lists of rows of values (`concatenate`).

        Args:
            values: the values of all lists, one list after another.
            sizes: int64[N], number of rows in each list.
            valid: bool[N], False where the list is missing; None if none is missing.
        """
        offsets = pa.array(np.cumsum([0, *sizes]).astype(np.int32))
        return pa.ListArray.from_arrays(
            offsets,
            self.array(values),
            type=self.field.type,
            mask=None if valid is None else pa.array(~valid),
        )


_ARROW: Final = {
    torch.float64: pa.float64(),
    torch.float32: pa.float32(),
    torch.float16: pa.float16(),
    torch.bfloat16: pa.uint16(),
}
WINDOW_COLUMNS: Final = (
    pa.field("record", pa.int64(), nullable=False),
    pa.field("first", pa.int32(), nullable=False),
    pa.field("residues", pa.int32(), nullable=False),
)
"""Columns of a part besides results: the record of a window, and the residues of the record that
the window owns: index of the first, and number."""


def as_stored(values: Tensor) -> NDArray[Any]:
    """Return the values of a tensor on the host as Arrow stores them."""
    return (values.view(torch.uint16) if values.dtype == torch.bfloat16 else values).numpy()


class Parts:
    """The parts of an output folder."""

    def __init__(self, folder: Path, results: Sequence[Result], *, merge: bool = False) -> None:
        """Args:
        folder: the folder PARTS.
        merge: merge the windows of a record; see `merged`.
        """
        self.folder, self._results, self._merge = folder, results, merge
        self._schema = pa.schema([*WINDOW_COLUMNS, *(result.field for result in results)])

    def path(self, unit: Unit) -> Path:
        return self.folder / f"{unit.number:08}.arrow"

    def missing(self, units: Sequence[Unit]) -> list[Unit]:
        """Return the units without a part."""
        found = {path.name for path in self.folder.glob("*.arrow")}
        return [unit for unit in units if self.path(unit).name not in found]

    @contextmanager
    def written(self, unit: Unit) -> Iterator[PartWriter]:
        """Yield a writer for a unit's part. The part appears when the context ends without an
        error."""
        path = self.path(unit)
        partial = path.with_name(path.name + PARTIAL)
        with pa.ipc.new_file(str(partial), self._schema) as file:
            writer = PartWriter(file, self._schema, self._results, merge=self._merge)
            yield writer
            writer.flush()
        sync_files([partial])
        publish(partial, path)


class PartWriter:
    """Writes the results of rows. Results of several rows become one record batch."""

    def __init__(
        self,
        file: pa.RecordBatchFileWriter,
        schema: pa.Schema,
        results: Sequence[Result],
        *,
        merge: bool,
    ) -> None:
        self._file, self._schema, self._results, self._merge = file, schema, results, merge
        self._held: list[list[pa.Array]] = [[] for _ in schema]
        self._bytes = 0

    def write(self, row: PackedRow, found: Mapping[str, Tensor]) -> None:
        """Write the results of a row.

        Args:
            found: result by name, on the host; see `RowFunction`.
        """
        count = len(row.windows)
        owned = row.owned[: 2 * count].reshape(-1, 2)
        columns = [
            pa.array([window.record for window in row.windows], pa.int64()),
            pa.array([window.start + window.own_begin for window in row.windows], pa.int32()),
            pa.array((owned[:, 1] - owned[:, 0]).astype(np.int32)),
        ]
        for result in self._results:
            values = as_stored(found[result.name])
            if result.join == "concatenate":
                kept = np.concatenate([values[begin:end] for begin, end in owned.tolist()])
                columns.append(result.lists(kept, owned[:, 1] - owned[:, 0]))
            else:
                columns.append(result.array(values[:count].copy()))
        for held, column in zip(self._held, columns, strict=True):
            held.append(column)
            self._bytes += column.nbytes
        if self._bytes >= _BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._held[0]:
            columns = [pa.concat_arrays(held) for held in self._held]
            columns = merged(columns, self._results) if self._merge else columns
            self._file.write_batch(pa.record_batch(columns, schema=self._schema))
        self._held, self._bytes = [[] for _ in self._schema], 0


def merged(columns: Sequence[pa.Array], results: Sequence[Result]) -> list[pa.Array]:
    """Merge windows of a record that own neighbouring residues into one row. If windows own one
    residue each, a part would otherwise have a row for each residue.

    Args:
        columns: columns of a part.
        results: single numbers in float64, which are joined as a sum or as a mean.
    """
    record, first, residues = (column.to_numpy() for column in columns[:3])
    order = np.lexsort((first, record))
    record, first, residues = record[order], first[order], residues[order]
    begins = (np.diff(record, prepend=-1) != 0) | (
        first != np.concatenate(([-1], first[:-1] + residues[:-1]))
    )
    starts = np.flatnonzero(begins)
    counts = np.add.reduceat(residues, starts, dtype=residues.dtype)
    found = [pa.array(record[starts]), pa.array(first[starts]), pa.array(counts)]
    for result, column in zip(results, columns[3:], strict=True):
        values = column.to_numpy()[order]
        if result.join == "sum":
            found.append(pa.array(np.add.reduceat(values, starts)))
        else:
            found.append(pa.array(np.add.reduceat(values * residues, starts) / counts))
    return found
