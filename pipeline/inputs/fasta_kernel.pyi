"""See fasta_kernel.pyx."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

DONE: Final = 0
FULL: Final = 1
"""State: the arrays are full. Empty them, then call `parse` again from the returned position."""
ODD: Final = 2
"""State: `pipeline.inputs.residues` must parse the record at the returned position."""
BINARY: Final = 3
"""State: the byte at the returned position is a control character."""

def parse(
    text: NDArray[np.uint8] | memoryview,
    begin: int,
    letter_classes: NDArray[np.uint8],
    unk: int,
    tokens: NDArray[np.uint8],
    ends: NDArray[np.int64],
    ids: NDArray[np.uint8],
    id_ends: NDArray[np.int64],
    descriptions: NDArray[np.uint8],
    description_ends: NDArray[np.int64],
    offset: NDArray[np.int64],
    unknown: NDArray[np.int64],
    first_record: int,
) -> tuple[int, int, int]:
    """Parse whole records from `begin` to the end of `text` into the arrays of a RecordBlock.

    Args:
        text: uint8[n], FASTA that ends where a record ends.
        begin: position of a `>` that starts a line.
        letter_classes: uint8[256], result of `pipeline.inputs.residues.letter_classes`.
        unk: token id of unknown letters.
        tokens, ids, descriptions: at least uint8[n], outputs.
        ends, id_ends, description_ends, offset, unknown: int64, outputs, written from index
            `first_record` on.
        first_record: number of records that are already in the arrays.
    Returns:
        state, position, and number of records in the arrays. Records before `position` are
        complete.
    """
