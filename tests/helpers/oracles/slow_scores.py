"""Plain loops over transformers' EsmForMaskedLM: one sequence at a time, without packing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from schemas.vocabulary import ESM2

if TYPE_CHECKING:
    from transformers import EsmForMaskedLM

LogP = Callable[[str, int | None], NDArray[np.float64]]
"""Function of a sequence and the place to mask (None: nothing). It returns the log-probabilities of
the 33 tokens at each residue, float64[L, 33]."""


def transformers_log_p(model: EsmForMaskedLM) -> LogP:
    """Return the function that runs the model on one sequence."""

    @torch.no_grad()
    def log_p(residues: str, masked: int | None = None) -> NDArray[np.float64]:
        letters = [ESM2.letters.get(letter, ESM2.unk) for letter in residues]
        if masked is not None:
            letters[masked] = ESM2.id("<mask>")
        ids = torch.tensor([[ESM2.cls, *letters, ESM2.eos]])
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        found: NDArray[np.float64] = logits[0, 1:-1].log_softmax(-1).double().numpy()
        return found

    return log_p


def window_of(place: int, length: int, *, longest: int, overlap: int) -> tuple[int, int]:
    """Return begin and end of the window that owns a residue: the one in which the residue is
    farthest from the ends at which the sequence is cut.

    Args:
        longest: maximum number of residues in a window.
    """
    if length <= longest:
        return 0, length
    begins, begin = [], 0
    while begin + longest < length:
        begins.append(begin)
        begin += longest - overlap
    begins.append(length - longest)

    def distance(begin: int) -> float:
        left = place - begin if begin else math.inf
        right = begin + longest - 1 - place if begin + longest < length else math.inf
        return min(left, right)

    best = max(begins, key=lambda begin: (distance(begin), begin))
    return best, best + longest


def slow_log_p(
    log_p: LogP, residues: str, *, masked: bool, longest: int, overlap: int
) -> NDArray[np.float64]:
    """Return the log-probabilities at each residue, float64[L, 33], each from its own window and,
    with `masked`, from a pass in which it is masked.

    Args:
        longest: maximum number of residues in a window.
    """
    found = []
    for place in range(len(residues)):
        begin, end = window_of(place, len(residues), longest=longest, overlap=overlap)
        found.append(log_p(residues[begin:end], place - begin if masked else None)[place - begin])
    return np.array(found)


def own(log_p: NDArray[np.float64], residues: str) -> NDArray[np.float64]:
    """Return the log-probability of each residue itself, float64[L]."""
    ids = [ESM2.letters.get(letter, ESM2.unk) for letter in residues]
    found: NDArray[np.float64] = log_p[np.arange(len(ids)), ids]
    return found


def mutant_score(log_p: NDArray[np.float64], mutant: str) -> float:
    """Return the sum over mutations such as A42G:L50P of log p(new) - log p(old)."""
    total = 0.0
    for word in mutant.split(":"):
        row = log_p[int(word[1:-1]) - 1]
        total += float(row[ESM2.letters[word[-1]]] - row[ESM2.letters[word[0]]])
    return total


@torch.no_grad()
def slow_contacts(model: EsmForMaskedLM, residues: str) -> NDArray[np.float64]:
    """Return contacts by categorical Jacobian: the published loop, in float64 after the logits."""
    length = len(residues)
    ids = torch.tensor([[ESM2.cls, *(ESM2.letters[letter] for letter in residues), ESM2.eos]])
    jacobian = np.zeros((length, 20, length, 20))

    def logits(tokens: torch.Tensor) -> NDArray[np.float64]:
        found: NDArray[np.float64] = model(tokens).logits[0, 1:-1, 4:24].double().numpy()
        return found

    for place in range(length):
        for letter in range(20):
            mutant = ids.clone()
            mutant[0, place + 1] = 4 + letter
            jacobian[place, letter] = logits(mutant) - logits(ids)
    for axis in range(4):
        jacobian -= jacobian.mean(axis, keepdims=True)
    jacobian = (jacobian + jacobian.transpose(2, 3, 0, 1)) / 2
    norms = np.sqrt((jacobian**2).sum((1, 3)))
    np.fill_diagonal(norms, 0)
    corrected: NDArray[np.float64] = (
        norms - norms.sum(0, keepdims=True) * norms.sum(1, keepdims=True) / norms.sum()
    )
    np.fill_diagonal(corrected, 0)
    return corrected
