"""The GPUs of a planned training run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

GPU_GIB: Final = {"H200": 139.8, "H100": 79.2}
"""Memory that torch can allocate on a GPU of each kind, in GiB."""
MEASURED: Final = "H200"
"""Kind of GPU on which times were measured. Plans use its times for all kinds."""
PEAK_TB_S: Final = {"H200": 4.8, "H100": 3.35}
"""Peak memory bandwidth of an SXM GPU of each kind, in TB/s, from NVIDIA's data sheets. Peak
compute is the same for both kinds."""
_GPUS_PER_NODE: Final = 8
_INSTEAD: Final = (
    "For a CPU or another GPU, run `thdpack train` with --dry-run, which checks the run. After its "
    "first steps, the run itself prints how long it will take"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """A number of GPUs of one kind. The kind is a key of GPU_GIB."""

    number: int
    gpu: str

    @property
    def nodes(self) -> int:
        """The smallest number of nodes that share the GPUs evenly, with at most eight GPUs each."""
        return next(
            nodes
            for nodes in range(-(-self.number // _GPUS_PER_NODE), self.number + 1)
            if self.number % nodes == 0
        )

    @property
    def gpus_per_node(self) -> int:
        return self.number // self.nodes

    @staticmethod
    def parse(text: str) -> Cluster:
        """Return the cluster that a text such as `8xH200` names.

        Raises:
            ValueError: the text has another form, or the kind of GPU is not in GPU_GIB.
        """
        found = re.fullmatch(r"([1-9][0-9]*)\s*[x×]\s*([A-Za-z0-9]+)", text)
        if not found:
            raise ValueError(
                f"--gpus is {text!r}, expected a number and a kind, such as 8xH200. {_INSTEAD}"
            )
        number, gpu = int(found[1]), found[2].upper()
        if gpu not in GPU_GIB:
            raise ValueError(
                f"--gpus {text}: {gpu} is unknown; plans know {', '.join(GPU_GIB)}. {_INSTEAD}"
            )
        return Cluster(number=number, gpu=gpu)
