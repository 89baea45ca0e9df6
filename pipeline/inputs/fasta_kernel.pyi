"""See fasta_kernel.pyx."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

DONE: Final = 0
FULL: Final = 1
"""The arrays are full. Use them, then continue at the returned position."""
ODD: Final = 2
"""The record at the returned position needs `pipeline.inputs.residues`."""
BINARY: Final = 3
"""The byte at the returned position is a control character."""

def parse(
    text: NDArray[np.uint8] | memoryview,
    begin: int,
    letter_classes: NDArray[np.uint8],
    unk: int,
    tokens: NDArray[np.uint8],
    ends: NDArray[np.int64],
    ids: NDArray[np.uint8],
    id_ends: NDArray[np.int64],
    offset: NDArray[np.int64],
    unknown: NDArray[np.int64],
    first_record: int,
) -> tuple[int, int, int]:
    """Parse whole records from `begin` to the end of `text` into the arrays of a RecordBlock.

    Args:
        text: uint8[n], FASTA that ends where a record ends.
        begin: position of a `>` that starts a line.
        letter_classes: uint8[256] of `pipeline.inputs.residues.letter_classes`.
        unk: token id of unknown letters.
        tokens, ids: uint8[n] at least.
        ends, id_ends, offset, unknown: int64, filled from index `first_record`.
        first_record: number of records that the arrays hold already.
    Returns:
        (state, position, records in the arrays); records before `position` are complete.
    """
