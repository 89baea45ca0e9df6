"""See sequence_kernel.pyx."""

import numpy as np
from numpy.typing import NDArray

def find_ends(
    ids: NDArray[np.uint8],
    begin: NDArray[np.int64],
    last: NDArray[np.int64],
    eos: int,
    end: NDArray[np.int64],
) -> None:
    """Find the last `eos` in each of N sequences. The index of this `eos` is the index after the
    sequence's last residue.

    Args:
        ids: uint8[T], token ids.
        begin: int64[N], index of each sequence's first residue.
        last: int64[N], index after each sequence and its padding. The caller must ensure
            0 <= begin < last <= T.
        eos: id of <eos>.
        end: int64[N], the output: index of the last `eos`, or `begin` if there is no `eos`.
    """

def measure_sequences(
    ids: NDArray[np.uint8],
    begin: NDArray[np.int64],
    end: NDArray[np.int64],
    unk: int,
    high: NDArray[np.uint64],
    low: NDArray[np.uint64],
    unknown: NDArray[np.int64],
) -> None:
    """Hash N sequences, and count their unknown letters. The last three arguments are outputs.

    Args:
        ids: uint8[T], token ids.
        begin, end: int64[N], index of each sequence's first residue, and the index after its last
            residue. The caller must ensure 0 <= begin <= end <= T and begin < T.
        unk: id of <unk>.
        high, low: uint64[N], halves of the xxh3_128 of each sequence's residues.
        unknown: int64[N], number of `unk` tokens in each sequence.
    """
