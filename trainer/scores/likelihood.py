"""Compute the log-likelihood of residues.

- One pass: the model sees the whole window, and nothing is masked. One forward pass gives the
  probability of each residue. The model sees the residue itself, so the number is not a likelihood
  in the strict sense, but it is cheap.
- Masked: each residue is replaced by <mask> in turn, in a copy of the window of its own. A window
  of L residues needs L copies. The sum over the residues is the exact pseudo-log-likelihood.

Source of the pseudo-log-likelihood: Salazar et al., Masked Language Model Scoring, ACL 2020.

Suffixes of shapes: T = tokens of a row, M = tokens to score, S = slots, V = vocabulary (padded).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from schemas.vocabulary import ESM2
from trainer.feed import Row
from trainer.inference.packed_model import RowFunction
from trainer.inference.parts import Result
from trainer.inference.pooling import sums
from trainer.model.esm2 import VOCABULARY, Esm2


def likelihood_results(*, masked: bool) -> list[Result]:
    """Return the columns of log-likelihood and perplexity."""
    prefix = "masked_" if masked else ""
    return [
        Result(name=f"{prefix}log_likelihood", join="sum", size=0, dtype=torch.float64),
        Result(name=f"{prefix}perplexity", join="exp_mean", size=0, dtype=torch.float64),
    ]


def likelihood(*, masked: bool) -> RowFunction:
    """Return the function that computes the columns of `likelihood_results`.

    With `masked`, each window must own one residue, which the function masks.
    """
    return _masked if masked else _one_pass


def log_probabilities(logits_MV: Tensor) -> Tensor:
    """Return the log-probability of each of the 33 tokens, float32[M, 33].

    Args:
        logits_MV: float32[M, V], logits of `Esm2`.
    """
    return logits_MV[:, :VOCABULARY].float().log_softmax(1)


def _one_pass(model: Esm2, row: Row, owned: Tensor) -> Mapping[str, Tensor]:
    # All logits are computed, because nearly every token of a row is an owned residue.
    logits_TV = model(row.input_ids.int(), row.sequences)
    own_T = log_probabilities(logits_TV).gather(1, row.input_ids.long()[:, None])[:, 0]
    total_S = sums(own_T.double(), owned)
    counts_S = (owned[1::2] - owned[::2]).clamp(min=1)
    # the exponential is taken when windows are joined (`exp_mean`)
    return {"log_likelihood": total_S, "perplexity": -total_S / counts_S}


def _masked(model: Esm2, row: Row, owned: Tensor) -> Mapping[str, Tensor]:
    logits_SV, labels_S = masked_logits(model, row, owned)
    own_S = log_probabilities(logits_SV).gather(1, labels_S[:, None])[:, 0].double()
    return {"masked_log_likelihood": own_S, "masked_perplexity": -own_S}


def masked_logits(model: Esm2, row: Row, owned: Tensor) -> tuple[Tensor, Tensor]:
    """Mask the residue that each window owns, and predict it.

    Args:
        owned: int64[2 × slots]; see `PackedRow`.
    Returns:
        float32[S, V], logits at the masked residues, and int64[S], their token ids. Rows of slots
        without a window have no meaning.
    """
    places_S = owned[::2]
    # A slot without a window has the place T. The additional token takes its mask.
    ids = F.pad(row.input_ids, (0, 1))
    labels_S = ids.long()[places_S]
    ids_T = ids.index_fill(0, places_S, ESM2.id("<mask>"))[:-1]
    last = row.input_ids.numel() - 1
    logits_SV: Tensor = model(ids_T.int(), row.sequences, places_S.clamp(max=last))
    return logits_SV, labels_S
