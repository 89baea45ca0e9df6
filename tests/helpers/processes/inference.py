"""Run `thdpack embed` in forked ranks, and compute embeddings with transformers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow.ipc
import pyarrow.parquet as pq
import torch

from schemas.models import ModelOptions
from schemas.vocabulary import ESM2
from tests.helpers.data.corpus import as_read
from tests.helpers.models import esm
from tests.helpers.processes.ranks import Job

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import EsmForMaskedLM

TINY: Final = ModelOptions(layers=2, hidden_size=32, heads=4, ffn_size=64)
EMBED: Final = """
import sys
import trainer.inference.sizes as sizes
from trainer.embed import main
sizes._UNIT_TOKENS = {unit_tokens}
main(sys.argv[1:])
"""


def embed(*words: object, ranks: int = 1, unit_tokens: int = 1 << 20) -> str:
    """Run `thdpack embed` to its end, check that it succeeds, and return what it printed."""
    return started(*words, ranks=ranks, unit_tokens=unit_tokens).finish()


def started(*words: object, ranks: int = 1, unit_tokens: int = 1 << 20, before: str = "") -> Job:
    """Start `thdpack embed`.

    Args:
        unit_tokens: maximum size of a unit of work.
        before: Python source code to run first.
    """
    program = before + EMBED.format(unit_tokens=unit_tokens)
    return Job(program, [str(word) for word in words], ranks=ranks)


def rows(out: Path) -> list[dict[str, Any]]:
    """Return the rows of all output files, sorted by ordinal."""
    found = []
    for path in out.iterdir():
        if path.suffix == ".parquet":
            found += pq.read_table(path).to_pylist()
        elif path.suffix == ".arrow":
            found += pyarrow.ipc.open_file(str(path)).read_all().to_pylist()
    return sorted(found, key=lambda row: row["ordinal"])


def saved_model(folder: Path, shape: ModelOptions = TINY, *, seed: int = 0) -> EsmForMaskedLM:
    """Save a random model, and return it."""
    torch.manual_seed(seed)
    model = esm(shape)
    model.save_pretrained(folder)
    return model


def token_ids(residues: str) -> list[int]:
    return [ESM2.unk if letter == "?" else ESM2.id(letter) for letter in as_read(residues)]


def hidden_states(model: EsmForMaskedLM, residues: str) -> list[NDArray[np.float32]]:
    """Return the hidden states of one sequence after each layer: float32[L + 2, D] each."""
    ids = torch.tensor([[ESM2.cls, *token_ids(residues), ESM2.eos]])
    with torch.no_grad():
        found = model(ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
    return [each[0].numpy() for each in found.hidden_states]


def windowed(
    model: EsmForMaskedLM, residues: str, *, layer: int, longest: int, overlap: int
) -> NDArray[np.float32]:
    """Return the hidden states of a long sequence's residues, float32[L, D]. Each is that of the
    window in which the residue is farthest from the ends; see `trainer.inference.windows`.
    """
    size, step = longest - 2, longest - 2 - overlap
    begins = list(range(0, len(residues) - size, step))
    begins = [*begins, len(residues) - size]
    states = [hidden_states(model, residues[b : b + size])[layer][1:-1] for b in begins]
    rows = []
    for residue in range(len(residues)):
        depths = [
            min(
                residue - b if b else len(residues),
                b + size - 1 - residue if b + size < len(residues) else len(residues),
            )
            if b <= residue < b + size
            else -1
            for b in begins
        ]
        best = max(number for number, depth in enumerate(depths) if depth == max(depths))
        rows.append(states[best][residue - begins[best]])
    return np.array(rows)


def close(found: Any, expected: NDArray[Any], limit: float = 1e-4) -> None:
    """Check that a vector or matrix differs from another by less than `limit`, relatively."""
    error = np.linalg.norm(np.array(found) - expected) / np.linalg.norm(expected)
    assert error < limit, error
