"""`thdpack score --contacts`: predict contacts by categorical Jacobian.

For a protein of L residues:

1. Replace each residue by each of the 20 standard letters: L × 20 mutants.
2. Run the model on each. The Jacobian J[L, 20, L, 20] has the logits of the 20 letters at all
   places, minus those of the protein itself.
3. Center J along each of its four axes, and make it symmetric: (J[i, a, j, b] + J[j, b, i, a]) / 2.
4. Take the Frobenius norm over the letters, [L, L], and set the diagonal to 0.
5. Subtract the average product correction (APC): sum of row i × sum of column j / sum of all.

The cost is 20 L + 1 passes, and 1,600 L² bytes of memory on the host for the Jacobian.

Source: Zhang, Wayment-Steele, Brixi, Wang, Kern and Ovchinnikov, Protein language models learn
evolutionary statistics of interacting sequence motifs, PNAS 2024.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pipeline.storage.atomic_write import sync_files
from schemas.text.phrases import plural
from schemas.vocabulary import ESM2
from trainer.checkpoints.atomic_write import PARTIAL, publish
from trainer.config.score_options import ScoreOptions
from trainer.distributed.agreement import all_gather, run_on_main
from trainer.distributed.topology import Topology
from trainer.feed import Row
from trainer.inference.packed_model import PackedModel
from trainer.inference.prepare import Prepared, Work
from trainer.inference.progress import InferenceProgress
from trainer.inference.rows import PackedRow, RowShape, packed_row
from trainer.inference.run_units import finish, model_of, prepared
from trainer.inference.units import Units
from trainer.inference.windows import Window
from trainer.model.esm2 import Esm2
from trainer.scores.record_names import record_names

_FIRST: Final = ESM2.id("L")
_LETTERS: Final = 20
"""The 20 standard letters have the token ids _FIRST to _FIRST + 19."""
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")
_NAME_LENGTH: Final = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class _Target:
    """A record to predict, and the file to write."""

    window: Window
    path: Path

    @property
    def residues(self) -> int:
        return self.window.tokens.size - 2

    @property
    def tokens(self) -> int:
        """Number of tokens in all passes."""
        return (_LETTERS * self.residues + 1) * self.window.tokens.size


def write_contacts(options: ScoreOptions, topology: Topology) -> None:
    """Write a contact map for each record to OUT. Files that exist are not computed again.

    Raises:
        ValueError, ThdpackError: options, model or data cannot be used.
    """
    work = Work(
        command="score",
        name="contacts",
        results=(),
        function=_logits,
        more={"masked": "off", "contacts": "on"},
    )
    with prepared(options, topology, lambda weights: work) as run:
        if run is not None:
            _write(run)


def _write(run: Prepared) -> None:
    topology = run.topology
    targets, too_long = _targets(run)
    missing: list[bool] = run_on_main(
        topology, lambda: [not target.path.exists() for target in targets]
    )
    mine = [target for target, wanted in zip(targets, missing, strict=True) if wanted]
    progress = InferenceProgress(
        name=run.work.name,
        total=sum(target.tokens for target in mine),
        ranks=topology.world_size,
        shown=topology.is_main,
    )
    with progress:
        progress.say(run.description())
        model = model_of(run)
        shape = RowShape(tokens=run.settings.row_tokens, longest=run.settings.max_seq_len)
        for target in mine[topology.rank :: topology.world_size]:
            _save(target.path, contact_map(_jacobian(model, target.window, shape)))
            progress.advance(target.tokens)
    all_gather(topology, None)  # all files exist
    run_on_main(topology, lambda: finish(run))
    if topology.is_main:
        print(f"wrote {plural(len(targets), 'contact map')} to {run.out}")
        if too_long:
            print(
                f"warning: {plural(too_long, 'record')} longer than --max-seq-len "
                f"{run.settings.max_seq_len} (with <cls> and <eos>) got no contact map"
            )


def _targets(run: Prepared) -> tuple[list[_Target], int]:
    """Return the records that fit into a window, in order, and the number of the others."""
    names = record_names(run.url, run.manifest)
    settings = run.settings
    units = Units(run.url, run.manifest, buckets=settings.unit_buckets, storage=run.storage)
    found: dict[int, _Target] = {}
    too_long: set[int] = set()
    for unit in units.all:
        for window in units.windows(unit, longest=settings.max_seq_len, overlap=settings.overlap):
            name, residues = names[window.record]
            if window.own_end - window.own_begin < residues:
                too_long.add(window.record)
                continue
            safe = _UNSAFE.sub("_", name)[:_NAME_LENGTH]
            path = run.out / f"{window.record:08}_{safe}.npy"
            found[window.record] = _Target(window=window, path=path)
    units.close()
    return [found[record] for record in sorted(found)], len(too_long)


def _logits(model: Esm2, row: Row, owned: Tensor) -> Mapping[str, Tensor]:
    """Return the logits of the 20 letters at all tokens, float32[T, 20]; see `RowFunction`."""
    logits_TV = model(row.input_ids.int(), row.sequences)
    return {"logits": logits_TV[:, _FIRST : _FIRST + _LETTERS].contiguous()}


def _jacobian(model: PackedModel, window: Window, shape: RowShape) -> NDArray[np.float32]:
    """Return the categorical Jacobian of a protein, float32[L, 20, L, 20]."""
    length = window.tokens.size
    residues = length - 2
    found = np.empty((1 + residues * _LETTERS, residues, _LETTERS), dtype=np.float32)
    first = 0
    for row in _rows(window, shape):
        logits = model.launch(row).wait()["logits"].numpy()
        count = len(row.windows)
        of_windows = logits[: count * length].reshape(count, length, _LETTERS)
        found[first : first + count] = of_windows[:, 1:-1]
        first += count
    found[1:] -= found[0]
    return found[1:].reshape(residues, _LETTERS, residues, _LETTERS)


def _rows(window: Window, shape: RowShape) -> Iterator[PackedRow]:
    """Yield rows of the protein itself and then its mutants: place by place, letter by letter."""
    count = min(shape.windows, shape.tokens // window.tokens.size)
    held = [window]
    for place in range(1, window.tokens.size - 1):
        for letter in range(_FIRST, _FIRST + _LETTERS):
            if len(held) == count:
                yield packed_row(held, shape)
                held = []
            tokens = window.tokens.copy()
            tokens[place] = letter
            held.append(replace(window, tokens=tokens))
    if held:
        yield packed_row(held, shape)


def contact_map(jacobian: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the contact map of a protein, float32[L, L]: steps 3 to 5 above. It is symmetric, with
    zeros on the diagonal.

    Args:
        jacobian: float32[L, 20, L, 20]. It is overwritten, to save memory.
    """
    values = torch.from_numpy(jacobian)
    for axis in range(4):
        values -= values.mean(axis, keepdim=True)
    # J[i, a, j, b] + J[j, b, i, a] for one i at a time
    rows = [
        (values[i] + values[:, :, i].permute(2, 0, 1)).square().sum((0, 2))
        for i in range(values.shape[0])
    ]
    norms = (torch.stack(rows).sqrt() / 2).fill_diagonal_(0)
    total = norms.sum()
    if total > 0:  # a single residue has no other
        norms = norms - norms.sum(1, keepdim=True) * norms.sum(0, keepdim=True) / total
    norms = (norms + norms.T) / 2  # rounding
    return norms.fill_diagonal_(0).numpy()


def _save(path: Path, array: NDArray[np.float32]) -> None:
    """Write an array. The file appears when it is complete."""
    partial = path.with_name(path.name + PARTIAL)
    with open(partial, "wb") as file:
        np.save(file, array)
    sync_files([partial])
    publish(partial, path)
