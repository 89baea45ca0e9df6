"""Score mutants by the probabilities of letters at the places of their mutations.

The score of a mutant is the sum over its mutations of log p(new letter) - log p(wild-type letter).
p is the model's prediction at the place of the mutation:

- wild-type marginals: one pass over the wild type, in which nothing is masked;
- masked marginals: a pass over the wild type in which the place is masked, for each place.

A wild type that is longer than --max-seq-len is cut into windows. The prediction at a place comes
from the window that owns it (see `trainer.inference.windows`).

Source: Meier et al., Language models enable zero-shot prediction of the effects of mutations on
protein function, NeurIPS 2021.

Suffixes of shapes: T = tokens of a row, S = slots, L = residues of the wild type.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from schemas.vocabulary import ESM2
from trainer.feed import Row
from trainer.inference.rows import PackedRow
from trainer.inference.windows import Window, one_residue_each, sequence_windows
from trainer.model.esm2 import VOCABULARY, Esm2
from trainer.scores.likelihood import log_probabilities, masked_logits
from trainer.scores.mutation_table import Substitution
from trainer.scores.wild_type import tokens_of

LOG_PROBABILITIES: Final = "log_probabilities"
"""Name of the results of `predict` and `predict_masked`."""


def predict(model: Esm2, row: Row, owned: Tensor) -> Mapping[str, Tensor]:
    """Return log-probabilities of all tokens in a row, float32[T, 33]; see `RowFunction`."""
    logits_TV = model(row.input_ids.int(), row.sequences)
    return {LOG_PROBABILITIES: log_probabilities(logits_TV)}


def predict_masked(model: Esm2, row: Row, owned: Tensor) -> Mapping[str, Tensor]:
    """Return log-probabilities at the residue that each window owns, which is masked,
    float32[S, 33]; see `RowFunction`.
    """
    logits_SV, _ = masked_logits(model, row, owned)
    return {LOG_PROBABILITIES: log_probabilities(logits_SV)}


def wild_type_windows(
    wild_type: str, masked: Collection[int] | None, *, longest: int, overlap: int
) -> list[Window]:
    """Return the windows of the wild type to run the model on.

    Args:
        masked: places to mask. There is one window for each of them, and it owns only this place.
            None: the windows own all residues, and nothing is masked.
        longest, overlap: see `windows_of`.
    """
    windows = list(
        sequence_windows(tokens_of(wild_type), record=0, start=0, longest=longest, overlap=overlap)
    )
    if masked is None:
        return windows
    copies = one_residue_each(windows, piece=0, pieces=1)
    return [copy for copy in copies if copy.start + copy.own_begin in masked]


def collected(
    found: Iterable[tuple[PackedRow, NDArray[np.float32]]], residues: int, *, masked: bool
) -> NDArray[np.float32]:
    """Return the log-probabilities at each residue of the wild type, float32[L, 33]. Residues that
    no row owns have zeros.

    Args:
        found: rows of windows of the wild type, each with its log-probabilities: float32[T, 33]
            (`predict`), or float32[S, 33] (`predict_masked`).
        residues: L.
        masked: True for results of `predict_masked`.
    """
    result = np.zeros((residues, VOCABULARY), dtype=np.float32)
    for row, values in found:
        owned = row.owned.reshape(-1, 2).tolist()
        for slot, (window, (begin, end)) in enumerate(zip(row.windows, owned, strict=False)):
            first = window.start + window.own_begin
            of_window = values[slot : slot + 1] if masked else values[begin:end]
            result[first : first + end - begin] = of_window
    return result


def mutant_scores(
    log_p: NDArray[np.float32], mutants: Sequence[Sequence[Substitution]]
) -> NDArray[np.float64]:
    """Return the score of each mutant, in nats, float64[N].

    Args:
        log_p: float32[L, 33]; see `collected`.
    """
    ids = ESM2.letters
    flat = [
        (number, place, ids[old], ids[new])
        for number, mutant in enumerate(mutants)
        for old, place, new in mutant
    ]
    number, place, old, new = np.array(flat, dtype=np.int64).reshape(-1, 4).T
    wide = log_p.astype(np.float64)
    scores = np.zeros(len(mutants))
    np.add.at(scores, number, wide[place, new] - wide[place, old])
    return scores
