"""Program that trains several runs, one after another, in the same ranks.

The argument is a JSON list of command lines: `torchrun -m tests.gpu.several_runs '[["esm2-8m"]]'`.
"""

from __future__ import annotations

import json
import sys

from benchmarks.training.ablation.steps import forget
from trainer.config import parse
from trainer.distributed.topology import process_group
from trainer.train import train


def main() -> None:
    with process_group() as topology:
        for arguments in json.loads(sys.argv[1]):
            train(parse(arguments), topology)
            forget(topology.device)


if __name__ == "__main__":
    main()
