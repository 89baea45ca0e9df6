"""Statistics of activations, gradients and weights inside the layers, every N steps, by Transformer Engine's instruments (nvdlfw_inspect).

    OUT/statistics/config.yaml        what is taken of which layers; ours if there is none, and used as it is if there is one
    OUT/statistics/statistics.jsonl   {"step", "layer", "tensor", "statistic", "value"}, a line each; of all ranks together, written by rank 0
    OUT/statistics/nvdlfw_inspect_logs/   what the instruments say of themselves, a file a rank

For looking into a run whose loss misbehaves in a low precision. A step that is looked at takes several times as long, for each statistic is one more
pass over a tensor, and the host waits for it; the others cost next to nothing. With --recompute, activations that are computed again count twice.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch.distributed as dist
from torch import Tensor, nn

from trainer import precision
from trainer.checkpoints.atomic_write import write
from trainer.config import TrainOptions
from trainer.distributed.topology import Topology
from trainer.monitoring.json_lines import open_json_lines

_TENSORS: Final = ("activation", "gradient", "weight")
_NAME: Final = re.compile(r"(?:model\.)?(.+?)_(activation|gradient|weight|output|wgrad|dgrad)_(.+)")
"""How nvdlfw_inspect names a number: layer, tensor, statistic."""
_HEADER: Final = """\
# What --tensor-statistics takes, of which layers. Change it, and the same command goes on with it; remove it, and it is written again.
# activation: what goes into a matrix product; gradient: of what comes out. Other statistics: Transformer Engine's LogTensorStats and Log*TensorStats.
"""


class NoStatistics:
    def begin(self, model: nn.Module, step: int) -> None: ...

    def step(self) -> None: ...

    def paused(self) -> AbstractContextManager[Any]:
        return nullcontext()


class LayerStatistics:
    def __init__(self, folder: Path, topology: Topology) -> None:
        self._folder, self._topology = folder, topology
        self._file: Any = None

    def begin(self, model: nn.Module, step: int) -> None:
        """Name the model's layers, and go on after `step`; lines of later steps, which were written before a crash, are dropped."""
        import nvdlfw_inspect.api as inspect

        inspect.infer_and_assign_layer_names(model)
        inspect.initialize_training_step(step + 1)
        if self._topology.is_main:
            self._file = open_json_lines(self._folder / "statistics.jsonl", step)

    def step(self) -> None:
        """To be called by all ranks after each step: what was taken is put together and written."""
        import nvdlfw_inspect.api as inspect

        inspect.step()
        if self._file is not None:
            self._file.flush()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """For validation: its activations are not the next step's."""
        from transformer_engine.debug.pytorch.debug_state import TEDebugState

        TEDebugState.debug_enabled = False
        try:
            yield
        finally:
            TEDebugState.debug_enabled = True

    def write(self, name: str, value: Tensor | float, step: int) -> None:
        if self._file is None:
            return
        found, number = _NAME.fullmatch(name), float(value)
        layer, tensor, statistic = found.groups() if found else (name, "", "")
        line = {
            "step": step,
            "layer": layer,
            "tensor": tensor,
            "statistic": statistic,
            "value": number if math.isfinite(number) else None,
        }
        self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


@contextmanager
def layer_statistics(
    options: TrainOptions, topology: Topology
) -> Iterator[LayerStatistics | NoStatistics]:
    """Something to `begin` with a model that is made in here, to `step` after each step, and to be `paused` for what is no step.

    Args:
        options: with `auto` resolved.
    Raises:
        ValueError: --tensor-statistics does not go together with other options, its package is missing, or its configuration cannot be read.
    """
    if not options.output.tensor_statistics:
        yield NoStatistics()
        return
    check(options, installed=find_spec("nvdlfw_inspect") is not None)
    import nvdlfw_inspect.api as inspect

    folder = Path(options.output.out) / "statistics"
    if topology.is_main and not (folder / "config.yaml").exists():
        folder.mkdir(parents=True, exist_ok=True)
        write(folder / "config.yaml", configuration(options))
    dist.barrier(topology.checkpoint_group)
    collected = LayerStatistics(folder, topology)
    try:
        _initialize(folder, collected)
        yield collected
    finally:
        inspect.end_debug()
        collected.close()


def check(options: TrainOptions, *, installed: bool) -> None:
    """Raises: ValueError, if the options do not go together or nvdlfw_inspect is not installed; says what to do."""
    if options.compute.backend != "te":
        raise ValueError(
            f"--tensor-statistics looks into Transformer Engine's layers, and --backend {options.compute.backend} has none: leave it out"
        )
    if options.compute.cuda_graph:
        raise ValueError(
            "--tensor-statistics and --cuda-graph do not go together: a graph replays kernels and asks nobody; leave one out"
        )
    if not installed:
        raise ValueError("--tensor-statistics needs nvdlfw_inspect: pip install nvdlfw-inspect")


def _initialize(folder: Path, collected: LayerStatistics) -> None:
    import nvdlfw_inspect.api as inspect
    import transformer_engine
    import yaml
    from nvdlfw_inspect.logging import BaseLogger

    class Lines(BaseLogger):  # type: ignore[misc]  # nvdlfw_inspect has no types
        def log_scalar(self, name: str, value: Tensor | float, iteration: int, **_: Any) -> None:
            collected.write(name, value, iteration)

    features = Path(transformer_engine.__file__).parent / "debug" / "features"
    config = folder / "config.yaml"
    try:
        inspect.initialize(
            config_file=str(config),
            feature_dirs=[str(features)],
            statistics_logger=Lines(),
            log_dir=str(folder),
        )
    except (
        AssertionError,
        TypeError,
        yaml.YAMLError,
    ) as error:  # what is raised for a file that somebody changed
        raise ValueError(
            f"{config}: {error}; mend it, or remove it to have it written again"
        ) from error


def configuration(options: TrainOptions) -> str:
    """config.yaml: statistics of all layers, and how the numbers fit their format of those that compute in a low precision."""
    low = precision.low_layers(options.compute, options.model.layers)
    sections = [
        _section(
            options, [number for number, is_low in enumerate(low) if is_low == wanted], low=wanted
        )
        for wanted in (True, False)
    ]
    return _HEADER + "".join(sections)


def _section(options: TrainOptions, layers: list[int], *, low: bool) -> str:
    if not layers:
        return ""
    pattern = rf"^model\.layers\.({'|'.join(map(str, layers))})\."
    lines = [
        f"{options.compute.precision if low else 'bf16'}:",
        "  enabled: true",
        "  layers:",
        f"    layer_name_regex_pattern: '{pattern}'",
        "  transformer_engine:",
        *_feature(
            "LogTensorStats",
            dict.fromkeys(_TENSORS, ("min", "max", "mean", "l2_norm")),
            options.output.tensor_statistics,
        ),
    ]
    if low:
        feature = (
            "LogNvfp4TensorStats" if options.compute.precision == "nvfp4" else "LogFp8TensorStats"
        )
        lines += _feature(feature, _fits(options), options.output.tensor_statistics)
    return "\n".join(lines) + "\n"


def _fits(options: TrainOptions) -> dict[str, tuple[str, ...]]:
    """Tensor → statistics of its rounding. underflows%: of its numbers, those that become 0."""
    if options.compute.precision == "nvfp4":
        return dict.fromkeys(_TENSORS, ("underflows%", "mse"))
    scales = ("scale_inv_min", "scale_inv_max")
    overflows = ("overflows%",) if options.compute.precision == "fp8-delayed" else ()
    found = dict.fromkeys(_TENSORS, ("underflows%", *overflows, *scales))
    if options.compute.quantized_init:
        found["weight"] = scales  # there is nothing to compare with
    return found


def _feature(name: str, tensors: dict[str, tuple[str, ...]], every: int) -> list[str]:
    lines = [f"    {name}:", "      enabled: true", "      tensors_struct:"]
    for tensor, wanted in tensors.items():
        lines += [
            f"        - tensor: {tensor}",
            f"          stats: [{', '.join(wanted)}]",
            f"          freq: {every}",
        ]
    return lines
