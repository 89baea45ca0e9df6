"""Check the records that `--long split` cut, after joining their pieces in a work file.

Each long record has its own part of the file. Tasks copy pieces to their places, in any order. A
missing piece leaves zeros (`<cls>`) in its place, so the record's hash does not match.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pipeline.build.verify.bucket_sequences import BucketSequences, hashes_and_unknown
from pipeline.build.verify.deep_job import DeepJob
from pipeline.build.verify.findings import Findings
from pipeline.build.verify.row_file import mapped, reserve, rows_at, same_hash
from schemas.records import STATUS_CODES, Status
from schemas.vocabulary import VOCABULARIES

_INT64 = np.dtype(np.int64)
_UINT8 = np.dtype(np.uint8)


class LongRecords:
    """The M records of variant 0 that are longer than `longest_piece`, so that `--long split` cut
    them.

    ordinal: int64[M], number of each record among all input records, ascending
    ends: int64[M], index after each record's last residue in `tokens`
    tokens: uint8[T], residues of all long records
    """

    def __init__(self, job: DeepJob) -> None:
        """Map the work files, which `make_room` has created."""
        self._longest = job.longest_piece
        self._unk = VOCABULARIES[job.rules.vocabulary].unk
        self.ordinal: NDArray[np.int64] = mapped(job.work / "long-ordinals", _INT64)
        self.ends: NDArray[np.int64] = mapped(job.work / "long-ends", _INT64)
        size = int(self.ends[-1]) if self.ends.size else 0
        self.tokens: NDArray[np.uint8] = mapped(job.work / "long-tokens", _UINT8)[:size]

    @staticmethod
    def make_room(job: DeepJob) -> None:
        """Create the work files.

        Raises:
            BuildError: the disk has too little space.
        """
        rows = job.rows
        kept = rows["status"] == STATUS_CODES.index(Status.KEPT)
        if job.sampled:
            kept &= rows["shard"] != 0
        ordinal = np.flatnonzero(kept & (rows["residues"] > job.longest_piece))
        ends = np.cumsum(rows["residues"][ordinal], dtype=np.int64)
        reserve(job.work / "long-tokens", int(ends[-1]) if ends.size else 0)
        ordinal.astype(np.int64).tofile(job.work / "long-ordinals")
        ends.tofile(job.work / "long-ends")

    def copy(self, sequences: BucketSequences, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """Copy pieces to their places.

        Args:
            which: int64[K], indices of pieces of long records. The caller has checked their starts
                and sizes.
        Returns:
            int64[K], index of each piece's record in `ordinal`.
        """
        record = np.searchsorted(self.ordinal, sequences.ordinal[which])
        base = np.append(0, self.ends[:-1])[record] + sequences.start[which]
        begin, end = sequences.begin[which], sequences.end[which]
        places = zip(base.tolist(), begin.tolist(), end.tolist(), strict=True)
        for to, first, after in places:
            self.tokens[to : to + after - first] = sequences.ids[first:after]
        return record

    def check(self, job: DeepJob, pieces: Sequence[NDArray[np.int64]], findings: Findings) -> None:
        """Check that each record has all its pieces once, and that the joined pieces have the hash
        and the number of unknown letters of the record's row.

        Args:
            pieces: the results of all calls of `copy`.
        """
        if not self.ordinal.size:
            return
        rows = rows_at(job.rows, self.ordinal)
        found = np.zeros(self.ordinal.size, dtype=np.int64)
        for records in pieces:
            found += np.bincount(records, minlength=found.size)
        findings.add(
            "its residues are not all in buckets exactly once",
            self.ordinal[found != -(-rows["residues"] // self._longest)],
        )
        begin = np.append(0, self.ends[:-1])
        hashes, unknown = hashes_and_unknown(self.tokens, begin, self.ends, self._unk)
        findings.add(
            "its joined pieces have another hash", self.ordinal[~same_hash(hashes, rows["hash"])]
        )
        findings.add(
            "its row has another number of unknown letters than its joined pieces",
            self.ordinal[unknown != rows["unknown"]],
        )
