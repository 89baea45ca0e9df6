"""Write ten copies of a FASTA file into one file.

In all copies but the first, about 2 % of the residues are replaced by random residues.

python -m benchmarks.offline.corpus swissprot.fasta swissprot_x10.fasta
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

LETTERS = np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY", dtype=np.uint8)


def residue_positions(text: np.ndarray) -> np.ndarray:
    """Return int64[number of residues], the index of each residue in `text`.

    text: uint8[N], content of a FASTA file
    """
    ends = np.flatnonzero(text == ord("\n"))
    begins = np.concatenate(([0], ends[:-1] + 1))
    header = text[begins] == ord(">")
    marks = np.zeros(text.size + 1, dtype=np.int8)
    np.add.at(marks, begins[header], 1)
    np.add.at(marks, ends[header], -1)
    inside = np.cumsum(marks[:-1], dtype=np.int8) > 0
    return np.flatnonzero(~inside & (text != ord("\n")))


def main(source: Path, target: Path) -> None:
    text = np.fromfile(source, dtype=np.uint8)
    positions = residue_positions(text)
    rng = np.random.default_rng(0)
    with target.open("wb") as file:
        file.write(text)
        for _ in range(9):
            copy = text.copy()
            chosen = positions[rng.integers(0, positions.size, positions.size // 50)]
            copy[chosen] = LETTERS[rng.integers(0, LETTERS.size, chosen.size)]
            file.write(copy)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
