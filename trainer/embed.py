"""Compute embeddings of sequences with a trained model, in one process or in those of torchrun.

    thdpack embed runs/first data/uniref50 --out embeddings
    torchrun --nproc-per-node 8 -m thdpack embed weights/esm2-650m proteins.fasta --out embeddings

The output has one row for each record, in Parquet or Arrow files (see `inference.join.assemble`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import get_args

from trainer.config.inference_options import EmbedOptions, parse_embed
from trainer.distributed.run_command import run_command
from trainer.distributed.topology import Topology
from trainer.inference.load_model import Weights
from trainer.inference.parts import Result
from trainer.inference.pooling import DTYPES, Pooling, embedder
from trainer.inference.prepare import Work
from trainer.inference.run_units import run_units


def embed(options: EmbedOptions, topology: Topology) -> None:
    """Compute the embeddings of each record, and write them to OUT.

    Raises:
        ValueError, ThdpackError: options, model or data cannot be used.
    """
    run_units(options, topology, lambda weights: _work(options, weights))


def _work(options: EmbedOptions, weights: Weights) -> Work:
    shape = weights.options
    layers = layer_numbers(options.layers, shape.layers)
    kinds = pooling_kinds(options.pooling)
    dtype = DTYPES[options.dtype]
    results = [
        Result(
            name=f"{kind}_{layer}",
            join="concatenate" if kind == "residues" else "mean",
            size=shape.hidden_size,
            dtype=dtype,
        )
        for layer in layers
        for kind in kinds
    ]
    return Work(
        command="embed",
        name="embedding",
        results=results,
        function=embedder(layers, kinds, dtype),
        more={
            "layers": ",".join(map(str, layers)),
            "pooling": ",".join(kinds),
            "dtype": options.dtype,
        },
    )


def layer_numbers(text: str, layers: int) -> list[int]:
    """Return the numbers of layers that --layers names.

    Raises:
        ValueError: the text names no layer of the model.
    """
    found = []
    for word in text.split(","):
        number = layers if word.strip() == "last" else int(word) if word.strip().isdecimal() else -1
        if not 0 <= number <= layers:
            raise ValueError(
                f"--layers is {text}, expected numbers from 0 to {layers}, or last, separated by "
                "commas"
            )
        found.append(number)
    return sorted(set(found))


def pooling_kinds(text: str) -> list[Pooling]:
    """Return the kinds of embeddings that --pooling names.

    Raises:
        ValueError: the text names none, or another kind.
    """
    words = [word.strip() for word in text.split(",")]
    known: tuple[Pooling, ...] = get_args(Pooling)
    if not set(words) <= set(known):
        raise ValueError(f"--pooling is {text}, expected {', '.join(known)}, separated by commas")
    return [kind for kind in known if kind in words]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    words = sys.argv[1:] if arguments is None else arguments
    run_command(
        "thdpack embed",
        lambda: parse_embed(words),
        embed,
        place=lambda options: options.out,
    )


if __name__ == "__main__":
    main()
