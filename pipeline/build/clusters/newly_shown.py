"""Count the cluster members and the residues that are new in each variant (`--sample-clusters`).

A member is a kept record in a cluster. A member or a residue is new in a variant if no earlier
variant holds it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipeline.build.arrays.sequence_hashes import shuffle_keys, variant_seed, window_starts
from pipeline.build.clusters.drawn_records import DrawnRecords
from pipeline.build.options import DatasetOptions
from schemas.records import STATUS_CODES, Status

_FAR = 1 << 60
"""Start that stands for a window that does not exist. It is far from all residues."""


@dataclass(frozen=True, slots=True)
class NewlyShown:
    """Number of new members, and of new residues of kept records, in a variant."""

    members: int = 0
    residues: int = 0


def newly_shown(
    drawn: DrawnRecords,
    residues: NDArray[np.int64],
    hashes: NDArray[np.void],
    ordinals: NDArray[np.int64],
    options: DatasetOptions,
    variants: int,
) -> list[NewlyShown]:
    """Return the counts of the first `variants` variants, for the N records of a partition.

    Args:
        residues: int64[N], number of residues of each record.
        hashes: HASH[N], hash of each record.
        ordinals: int64[N], number of each record among all input records.
    """
    most = options.longest_piece
    visible = residues if options.long == "split" else np.minimum(residues, most)
    windowed = (residues > most) & (options.long == "crop")
    windows = _Windows(np.flatnonzero(windowed), residues, hashes, ordinals, options)
    shown, found = np.zeros(residues.size, dtype=np.bool_), []
    for variant in range(variants):
        present = drawn.status_in(variant) == STATUS_CODES.index(Status.KEPT)
        new = present & ~shown
        shown |= present
        count = int(visible[new & ~windowed].sum()) + windows.new_residues(variant, present)
        found.append(NewlyShown(int(np.count_nonzero(new[drawn.row])), count))
    return found


class _Windows:
    """The windows of L long records in the variants so far (--long crop)."""

    def __init__(
        self,
        row: NDArray[np.int64],
        residues: NDArray[np.int64],
        hashes: NDArray[np.void],
        ordinals: NDArray[np.int64],
        options: DatasetOptions,
    ) -> None:
        """Select the long records.

        Args:
            row: int64[L], indices of the long records. `newly_shown` explains the other arguments.
        """
        self._row = row
        self._residues, self._hashes, self._ordinals = residues[row], hashes[row], ordinals[row]
        self._options = options
        self._starts: list[NDArray[np.int64]] = []

    def new_residues(self, variant: int, present: NDArray[np.bool_]) -> int:
        """Return the number of residues that are in windows of this variant, but in no earlier one.

        Call this for the variants 0, 1, 2, … in order. All windows have the same size. Therefore
        only the nearest earlier window on each side matters.

        Args:
            present: bool[N], mask of the records in the variant.
        """
        if not self._row.size:
            return 0
        seed, most = variant_seed(self._options.seed, variant), self._options.longest_piece
        keys = shuffle_keys(self._hashes, self._ordinals, np.zeros_like(self._ordinals), seed)
        begin = window_starts(keys, self._residues, most)
        left, right = np.full(begin.size, -_FAR), np.full(begin.size, _FAR)
        for earlier in self._starts:
            left = np.where(earlier <= begin, np.maximum(left, earlier), left)
            right = np.where(earlier > begin, np.minimum(right, earlier), right)
        new = np.minimum(right, begin + most) - np.maximum(left + most, begin)
        here = present[self._row]
        self._starts.append(np.where(here, begin, _FAR))
        return int(np.maximum(new, 0)[here].sum())
