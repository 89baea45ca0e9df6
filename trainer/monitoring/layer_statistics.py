"""Statistics of activations, gradients and weights inside the layers, every N steps.

Transformer Engine's instruments (nvdlfw_inspect) compute them.

    OUT/statistics/config.yaml            which statistics of which layers; written if missing
    OUT/statistics/statistics.jsonl       {"step", "layer", "tensor", "statistic", "value"} per line
                                          over all ranks; rank 0 writes it
    OUT/statistics/nvdlfw_inspect_logs/   messages of the instruments, one file per rank

Use it to examine a run whose loss misbehaves in a low precision. A measured step takes several
times as long: each statistic is one more pass over a tensor, and the host waits for it. Other steps
cost almost nothing. With --recompute, activations that are computed again count twice.
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
"""Name of a number in nvdlfw_inspect: layer, tensor, statistic."""
_HEADER: Final = """\
# Which statistics --tensor-statistics takes of which layers. A resumed run uses this file as it is;
# if it is removed, it is written again.
# activation: input of a matrix product; gradient: gradient of its output.
# Other statistics: LogTensorStats and Log*TensorStats of Transformer Engine.
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
        """Name the layers of the model, and continue after `step`.

        Lines of later steps, written before a crash, are removed.
        """
        import nvdlfw_inspect.api as inspect

        inspect.infer_and_assign_layer_names(model)
        inspect.initialize_training_step(step + 1)
        if self._topology.is_main:
            self._file = open_json_lines(self._folder / "statistics.jsonl", step)

    def step(self) -> None:
        """Collect and write the statistics of a step. To be called by all ranks after each step."""
        import nvdlfw_inspect.api as inspect

        inspect.step()
        if self._file is not None:
            self._file.flush()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Collect nothing inside this context: validation has other activations than the next
        step."""
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
    """Collect statistics of the layers of a model that is built inside this context.

    Call `begin` with the model, `step` after each step, and enter `paused` for everything that is
    not a step.

    Args:
        options: with `auto` resolved.
    Raises:
        ValueError: --tensor-statistics does not go together with other options, its package is
            missing, or its configuration cannot be read.
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
    """Refuse --tensor-statistics where it cannot work.

    Raises:
        ValueError: the options do not go together, or nvdlfw_inspect is not installed; says what to
            do.
    """
    if options.compute.backend != "te":
        raise ValueError(
            "--tensor-statistics measures Transformer Engine's layers, and --backend "
            f"{options.compute.backend} has none: leave it out"
        )
    if options.compute.cuda_graph:
        raise ValueError(
            "--tensor-statistics and --cuda-graph do not go together: a graph replays kernels "
            "without calling the instruments; leave one out"
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
    ) as error:  # such errors come from a file that a user has changed
        raise ValueError(
            f"{config}: {error}; correct the file, or remove it to have it written again"
        ) from error


def configuration(options: TrainOptions) -> str:
    """Return the content of config.yaml.

    It takes statistics of all layers; of layers in a low precision also how well the numbers fit
    their format.
    """
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
    """Return tensor → statistics of its rounding. underflows%: share of its numbers that become
    0."""
    if options.compute.precision == "nvfp4":
        return dict.fromkeys(_TENSORS, ("underflows%", "mse"))
    scales = ("scale_inv_min", "scale_inv_max")
    overflows = ("overflows%",) if options.compute.precision == "fp8-delayed" else ()
    found = dict.fromkeys(_TENSORS, ("underflows%", *overflows, *scales))
    if options.compute.quantized_init:
        # the weights exist in FP8 only, so there is nothing to compare them with
        found["weight"] = scales
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
