"""Measure the time to score an assay of 198 residues, all 3,762 single substitutions.

    python -m benchmarks.training.score --preset esm2-650m --precision bf16 --marginals wild-type

The model has random weights and is already on the device. Two kinds of lines are printed:

- thdpack: the work of `thdpack score --mutations` after loading the model: read the table, recover
  the wild type, run the model, score the mutants, write the table. `first` is the first call,
  which also compiles kernels; `seconds` is the median of the later calls.
- transformers: a plain loop on the same weights and device, without reading and writing: one
  forward pass (wild-type), or one for each masked place, one at a time (masked).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.training.embed import random_model
from schemas.models import ESM2_MODELS
from schemas.vocabulary import ESM2
from trainer.config.score_options import ScoreOptions
from trainer.distributed.topology import process_group
from trainer.inference.load_model import load_weights
from trainer.inference.prepare import resolved_compute
from trainer.scores.score_table import places_to_mask, predictions, read_checked, write_scores

LETTERS = "ACDEFGHIKLMNPQRSTVWY"
RESIDUES = 198


def write_assay(path: Path) -> str:
    """Write all single substitutions of a random sequence. Return the sequence."""
    draw = np.random.default_rng(0)
    wild_type = "".join(draw.choice(list(LETTERS), RESIDUES))
    rows = [
        f"{old}{place + 1}{new},{wild_type[:place]}{new}{wild_type[place + 1 :]},{draw.normal()}\n"
        for place, old in enumerate(wild_type)
        for new in LETTERS
        if new != old
    ]
    path.write_text("mutant,mutated_sequence,DMS_score\n" + "".join(rows))
    return wild_type


def timed(work: Callable[[], object], rounds: int) -> dict[str, float]:
    seconds = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return {"first": round(seconds[0], 4), "seconds": round(statistics.median(seconds[1:]), 4)}


def ours(options: ScoreOptions, rounds: int) -> dict[str, float]:
    with process_group() as topology:
        compute = resolved_compute(options, topology)
        weights = load_weights(options.model, topology)
        model = weights.on_device(compute, topology, fp8=options.precision == "fp8")

        def work() -> None:
            table, wild_type = read_checked(options)
            masked = places_to_mask(options, table)
            log_p = predictions(options, topology, compute, model, wild_type, masked)
            write_scores(options, table, log_p)

        return timed(work, rounds)


def theirs(options: ScoreOptions, wild_type: str, rounds: int) -> dict[str, float]:
    from transformers import EsmForMaskedLM

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind = torch.float32 if options.precision == "fp32" or device.type == "cpu" else torch.bfloat16
    model = EsmForMaskedLM.from_pretrained(options.model, dtype=kind).to(device).eval()
    ids = torch.tensor([[ESM2.cls, *(ESM2.letters[a] for a in wild_type), ESM2.eos]], device=device)

    @torch.inference_mode()
    def work() -> None:
        mask = torch.ones_like(ids)
        if options.marginals == "wild-type":
            model(input_ids=ids, attention_mask=mask).logits.float().log_softmax(-1).cpu()
            return
        for place in range(1, ids.shape[1] - 1):
            masked = ids.clone()
            masked[0, place] = ESM2.id("<mask>")
            logits = model(input_ids=masked, attention_mask=mask).logits[0, place]
            logits.float().log_softmax(-1).cpu()

    return timed(work, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="esm2-650m", choices=ESM2_MODELS)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--marginals", default="wild-type", choices=("wild-type", "masked"))
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        random_model(asked.preset, place / "model")
        wild_type = write_assay(place / "assay.csv")
        options = ScoreOptions(
            model=str(place / "model"),
            out=str(place / "scored.csv"),
            mutations=str(place / "assay.csv"),
            overwrite=True,  # each round writes the same file
            precision=asked.precision,
            marginals=asked.marginals,
        )
        shown = {"preset": asked.preset, "marginals": asked.marginals}
        print({"what": "thdpack", **shown, **ours(options, asked.rounds)}, flush=True)
        print({"what": "transformers", **shown, **theirs(options, wild_type, asked.rounds)})


if __name__ == "__main__":
    main()
