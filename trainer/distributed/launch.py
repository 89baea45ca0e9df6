"""Read the environment variables by which torchrun tells a process its rank.

Other launchers set other variables. If one of them has started several processes without torchrun,
each would train alone, so that is an error.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from schemas.errors import OptionError

_OTHER_LAUNCHERS: Final = {
    "SLURM_STEP_NUM_TASKS": "srun",
    "OMPI_COMM_WORLD_SIZE": "mpirun",
    "PMI_SIZE": "mpirun",
}
"""For each variable with a number of processes, the launcher that sets it."""
_NEEDED: Final = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_REMEDY: Final = (
    "start ranks with torchrun: torchrun --nproc-per-node GPUS -m thdpack train … "
    "(deploy/slurm/train.sbatch does so on Slurm)"
)


def check_launch(command: str) -> None:
    """Check the variables of the launcher; print an error and exit with 2 if they are wrong.

    Args:
        command: name of the command, with which the error begins.
    """
    try:
        rank_and_world_size()
    except OptionError as error:
        print(f"{command}: {error}", file=sys.stderr)
        raise SystemExit(2) from error


def rank_and_world_size() -> tuple[int, int]:
    """Return this process's rank, and the number of ranks: 0 and 1 without a launcher.

    Raises:
        OptionError: the variables of torchrun are incomplete or no numbers, or another launcher has
            started several processes.
    """
    found = {name: os.environ[name] for name in ("RANK", "WORLD_SIZE") if name in os.environ}
    wrong = next((name for name, text in found.items() if not text.isdecimal()), None)
    if wrong is not None:
        raise OptionError(f"{wrong} is {found[wrong]!r}, expected a number: {_REMEDY}")
    rank, world_size = int(found.get("RANK", 0)), int(found.get("WORLD_SIZE", 1))
    if world_size > 1:
        missing = [name for name in _NEEDED if name not in os.environ]
        if missing:
            raise OptionError(f"WORLD_SIZE is {world_size}, but {missing[0]} is not set: {_REMEDY}")
        if rank >= world_size:
            raise OptionError(f"RANK is {rank}, but WORLD_SIZE is {world_size}: {_REMEDY}")
    elif "WORLD_SIZE" not in found:
        for name, launcher in _OTHER_LAUNCHERS.items():
            if os.environ.get(name, "1").isdecimal() and int(os.environ.get(name, "1")) > 1:
                raise OptionError(
                    f"{launcher} has started {os.environ[name]} processes, and each of them would "
                    f"run alone: {_REMEDY}"
                )
    return rank, world_size
