"""The GPUs of a planned training run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

GPU_GIB: Final = {"H200": 139.8, "H100": 79.2}
"""Memory that torch can allocate on a GPU of each kind, in GiB."""
MEASURED: Final = "H200"
"""Kind of GPU on which times were measured. Plans use these times for all kinds."""
PEAK_TB_S: Final = {"H200": 4.8, "H100": 3.35}
"""Peak memory bandwidth of an SXM GPU of each kind, in TB/s, from NVIDIA's data sheets. Peak
compute is the same for both kinds."""
_GPUS_PER_NODE: Final = 8
"""Largest number of GPUs of a node, if the user does not say how many nodes there are."""
_INSTEAD: Final = (
    "For a CPU or another GPU, run `thdpack train` with --dry-run, which checks the run, and on a "
    "CPU also its memory. After its first steps, the run itself prints how long it will take"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """A number of GPUs of one kind, divided evenly among nodes. The kind is a key of GPU_GIB."""

    number: int
    gpu: str
    nodes: int

    @property
    def gpus_per_node(self) -> int:
        return self.number // self.nodes

    @staticmethod
    def parse(text: str) -> Cluster:
        """Return the cluster that a text names.

        `8xH200` is a number of GPUs and their kind. These GPUs are on the smallest number of nodes
        that share them evenly, with at most eight GPUs each. `4x2xH200` has four nodes with two
        GPUs each.

        Raises:
            ValueError: the text has another form, or the kind of GPU is not in GPU_GIB. If the
                text has the right parts in another form, the message has the correct spelling.
        """
        found = re.fullmatch(
            r"(?:([1-9][0-9]*)\s*[x×]\s*)?([1-9][0-9]*)\s*[x×]\s*([A-Za-z][A-Za-z0-9]*)", text
        )
        if not found:
            meant = _meant(text)
            raise ValueError(
                f"--gpus is {text!r}: write {meant}"
                if meant
                else f"--gpus is {text!r}, expected a number and a kind, such as 8xH200, or nodes, "
                f"GPUs per node and a kind, such as 4x2xH200. {_INSTEAD}"
            )
        number, gpu = int(found[2]), found[3].upper()
        if gpu not in GPU_GIB:
            raise ValueError(
                f"--gpus {text}: {gpu} is unknown; there are plans for {' and '.join(GPU_GIB)}. "
                f"{_INSTEAD}"
            )
        if found[1]:
            nodes = int(found[1])
            return Cluster(number=nodes * number, gpu=gpu, nodes=nodes)
        return Cluster(number=number, gpu=gpu, nodes=_fewest_nodes(number))


def _fewest_nodes(number: int) -> int:
    """Return the smallest number of nodes that share GPUs evenly, with at most eight GPUs each."""
    return next(
        nodes for nodes in range(-(-number // _GPUS_PER_NODE), number + 1) if number % nodes == 0
    )


def _meant(text: str) -> str:
    """Return the correct spelling of a text such as `H100:8`, which has the parts of a cluster in
    another order or with other separators; "" for any other text.
    """
    kind = re.search("|".join(GPU_GIB), text, re.IGNORECASE)
    if not kind:
        return ""
    rest = f"{text[: kind.start()]} {text[kind.end() :]}"
    numbers = re.findall(r"[0-9]+", rest)
    if len(numbers) not in (1, 2) or "0" in numbers or re.search(r"[^0-9\s:x×*,/-]", rest, re.I):
        return ""
    return "x".join([*numbers, kind[0].upper()])
