"""Sizes of an inference run: rows, windows and units of work."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from schemas.manifest import Manifest
from trainer.config.inference_options import InferenceOptions
from trainer.distributed.topology import Topology
from trainer.inference.rows import MULTIPLE
from trainer.inference.work_size import bucket_tokens

FASTA_LENGTH: Final = 1024
"""Default of --max-seq-len for FASTA. ESM-2 was trained with this length."""
_ROW_TOKENS: Final = {"cuda": 65_536, "cpu": 4_096}
"""Default of --row-tokens."""
_UNIT_SECONDS: Final = 10.0
"""Approximate time that a unit takes. An interruption loses at most this work."""
_FLOPS: Final = {"cuda": 5e14, "cpu": 1e11}
"""Assumed number of operations per second, to choose the size of a unit."""
_UNIT_TOKENS: Final = 16 << 20
"""Maximum size of a unit in tokens. The results of a unit must fit into memory."""


class RowSizes(NamedTuple):
    """Sizes of rows and windows.

    row_tokens: number of tokens in a row.
    longest: maximum length of a window in tokens.
    overlap: number of residues that windows share.
    """

    row_tokens: int
    longest: int
    overlap: int


def row_sizes(
    options: InferenceOptions, topology: Topology, *, own: int = FASTA_LENGTH, before: int = 0
) -> RowSizes:
    """Return the sizes of rows and windows.

    Args:
        own: default of --max-seq-len.
        before: number of tokens in a row of an interrupted run; 0 for a new run.
    Raises:
        ValueError: --max-seq-len, --overlap and --row-tokens contradict each other.
    """
    longest = options.max_seq_len or own
    default = before or max(_ROW_TOKENS[topology.device.type], longest)
    row_tokens = -(-(options.row_tokens or default) // MULTIPLE) * MULTIPLE
    if longest > row_tokens:
        raise ValueError(
            f"--row-tokens is {options.row_tokens}, expected at least {longest}, the maximum "
            "length of a sequence in tokens (--max-seq-len)"
        )
    overlap = options.overlap if options.overlap is not None else default_overlap(longest)
    if overlap >= longest - 2:
        raise ValueError(
            f"--overlap is {overlap}, expected less than {longest - 2}, the number of residues "
            "that fit into --max-seq-len"
        )
    return RowSizes(row_tokens, longest, overlap)


def default_overlap(longest: int) -> int:
    """Return the default of --overlap.

    Args:
        longest: maximum length of a window in tokens.
    """
    return min(256, (longest - 2) // 2)


def unit_sizes(
    parameters: int, topology: Topology, manifest: Manifest, sizes: RowSizes, *, per_residue: bool
) -> tuple[int, int]:
    """Return the number of buckets in a unit, and the number of units for the same buckets.

    Args:
        parameters: number of parameters of the model.
        per_residue: whether each residue has a pass of its own.
    """
    seconds = 2 * parameters / _FLOPS[topology.device.type]  # for a token
    unit_tokens = max(sizes.row_tokens, min(_UNIT_TOKENS, _UNIT_SECONDS / seconds))
    bucket = bucket_tokens(manifest, sizes.longest, per_residue=per_residue)
    pieces = math.ceil(bucket / unit_tokens) if per_residue else 1
    return max(1, int(unit_tokens / bucket)), pieces
