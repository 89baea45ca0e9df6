"""Find the windows of a record among all parts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_OPEN_PARTS: Final = 64


class WindowIndex:
    """The N windows of all parts, sorted by record and by their place in the record.

    record:   int64[N], record of each window.
    residues: int64[N], number of residues that each window owns.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._open: OrderedDict[int, pa.ipc.RecordBatchFileReader] = OrderedDict()
        columns: list[tuple[NDArray[Any], ...]] = [(np.zeros(0, dtype=np.int64),) * 6]
        for part in range(len(paths)):
            file = self._file(part)
            for number in range(file.num_record_batches):
                batch = file.get_batch(number)
                rows = batch.num_rows
                columns.append(
                    (
                        batch.column("record").to_numpy(),
                        batch.column("first").to_numpy(),
                        batch.column("residues").to_numpy(),
                        np.full(rows, part, dtype=np.int32),
                        np.full(rows, number, dtype=np.int32),
                        np.arange(rows, dtype=np.int32),
                    )
                )
        record, first, residues, *place = (
            np.concatenate(each) for each in zip(*columns, strict=True)
        )
        order = np.lexsort((first, record))
        self.record, self.residues = record[order], residues[order].astype(np.int64)
        self._part, self._batch, self._row = (column[order] for column in place)

    def find(self, records: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the windows of each record begin and end in this index, int64[M] each."""
        return (
            np.searchsorted(self.record, records, side="left"),
            np.searchsorted(self.record, records, side="right"),
        )

    def batches(
        self, windows: NDArray[np.int64]
    ) -> list[tuple[pa.RecordBatch, NDArray[np.int64], NDArray[np.int64]]]:
        """Return the record batches that hold some windows.

        Args:
            windows: int64[M], places of windows in this index.
        Returns:
            For each record batch: the batch, int64[K], which of the M windows it holds, and
            int64[K], their rows in the batch.
        """
        part, number = self._part[windows], self._batch[windows]
        order = np.lexsort((number, part))
        edges = np.flatnonzero(np.diff(part[order]) | np.diff(number[order])) + 1
        found = []
        for chosen in np.split(order, edges) if windows.size else ():
            batch = self._file(int(part[chosen[0]])).get_batch(int(number[chosen[0]]))
            found.append((batch, chosen, self._row[windows[chosen]].astype(np.int64)))
        return found

    def _file(self, part: int) -> pa.ipc.RecordBatchFileReader:
        """Return the memory-mapped file of a part. The files used last stay open."""
        if part in self._open:
            self._open.move_to_end(part)
            return self._open[part]
        while len(self._open) >= _OPEN_PARTS:
            self._open.popitem(last=False)
        file = pa.ipc.open_file(pa.memory_map(str(self._paths[part])))
        self._open[part] = file
        return file
