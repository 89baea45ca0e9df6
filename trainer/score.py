"""Score sequences or mutants with a trained model, in one process or in those of torchrun.

    thdpack score runs/first proteins.fasta --out scores
    thdpack score runs/first --mutations assay.csv --out scored.csv
    torchrun --nproc-per-node 8 -m thdpack score weights/esm2-650m data/test --masked --out scores

`trainer.scores` has the methods.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from trainer.config.score_options import ScoreOptions, parse_score
from trainer.distributed.run_command import run_command
from trainer.distributed.topology import Topology
from trainer.inference.prepare import Work
from trainer.inference.run_units import run_units
from trainer.scores.contacts import write_contacts
from trainer.scores.likelihood import likelihood, likelihood_results
from trainer.scores.score_table import score_table


def score(options: ScoreOptions, topology: Topology) -> None:
    """Score the records of DATA or the mutants of a table, and write the scores to OUT.

    Raises:
        ValueError, ThdpackError: options, model or data cannot be used.
    """
    if options.mutations:
        score_table(options, topology)
    elif options.contacts:
        write_contacts(options, topology)
    else:
        work = Work(
            command="score",
            name="scoring",
            results=likelihood_results(masked=options.masked),
            function=likelihood(masked=options.masked),
            more={"masked": "on" if options.masked else "off", "contacts": "off"},
            per_residue=options.masked,
        )
        run_units(options, topology, lambda weights: work)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    words = sys.argv[1:] if arguments is None else arguments
    run_command(
        "thdpack score",
        lambda: parse_score(words),
        score,
        place=lambda options: options.out,
    )


if __name__ == "__main__":
    main()
