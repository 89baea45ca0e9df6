"""Read a FASTA file that `--exclude` names."""

from __future__ import annotations

from contextlib import closing

import numpy as np

from pipeline.build.exclusion.entries import SEPARATOR, SequenceEntries
from pipeline.build.exclusion.suffix_order import suffix_order
from pipeline.inputs.composition.block_tokens import refuse_other_tokens
from pipeline.inputs.formats.fasta_records import read_fasta
from pipeline.inputs.source import Allowed, Source
from schemas.vocabulary import ESM2


def fasta_entries(
    source: Source, allowed: Allowed, *, searched: bool
) -> tuple[SequenceEntries, int]:
    """Return the distinct sequences of a FASTA file, and the number of its records with residues.

    Letters become tokens as in the inputs of a build. Records without residues are left out.

    Args:
        allowed: kinds of sequences that are not refused, in addition to unaligned proteins.
        searched: True if thdpack itself searches the sequences, which needs their sorted suffixes
            (`order`); False if only MMseqs2 searches them.
    Raises:
        InputError: the file cannot be read, breaks a rule of FASTA, or holds nucleotides or an
            alignment.
    """
    smallest_id: dict[bytes, bytes] = {}
    count = 0
    with closing(read_fasta(source, ESM2, 0, source.bytes, lambda _: None)) as blocks:
        for block, _ in blocks:
            if len(block):
                refuse_other_tokens(source, block, allowed, first=not count, judged=False)
            tokens, ids = block.tokens.tobytes(), block.ids.tobytes()
            begin = id_begin = 0
            for end, id_end in zip(block.ends.tolist(), block.id_ends.tolist(), strict=True):
                sequence, name = tokens[begin:end], ids[id_begin:id_end]
                begin, id_begin = end, id_end
                if sequence:
                    count += 1
                    smallest_id[sequence] = min(name, smallest_id.get(sequence, name))
    found = sorted((len(sequence), name, sequence) for sequence, name in smallest_id.items())
    lengths = np.array([length for length, _, _ in found], dtype=np.int64)
    text = np.frombuffer(b"".join(s + bytes([SEPARATOR]) for _, _, s in found), dtype=np.uint8)
    entries = SequenceEntries(
        ids=np.frombuffer(b"".join(name for _, name, _ in found), dtype=np.uint8),
        id_edges=np.cumsum([0, *(len(name) for _, name, _ in found)], dtype=np.int64),
        text=text,
        starts=np.concatenate(([0], np.cumsum(lengths + 1))),
        order=suffix_order(text) if searched and text.size else np.empty(0, dtype=np.int64),
    )
    return entries, count
