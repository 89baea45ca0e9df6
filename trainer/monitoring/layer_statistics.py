"""Statistics of activations, gradients and weights inside the layers, every N steps.

Transformer Engine computes the statistics, with the package nvdlfw_inspect.

    OUT/statistics/config.yaml            selection of layers and statistics; written if missing
    OUT/statistics/statistics.jsonl       lines of {"step", "layer", "tensor", "statistic",
                                          "value"}; each value covers all ranks; written by rank 0
    OUT/statistics/nvdlfw_inspect_logs/   log messages of nvdlfw_inspect, one file per rank

Use these statistics to examine a run whose loss does not fall as expected in low precision. A
step with statistics takes several times as long, because each statistic is one more pass over a
tensor, and the host waits for the result. Other steps take almost no additional time. With
--recompute, recomputed activations count twice.
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
"""Name of a value in nvdlfw_inspect: the layer, the tensor and the statistic."""
_HEADER: Final = """\
# Layers and statistics for --tensor-statistics. A resumed run uses this file and your changes.
# If you remove the file, the next start writes it again.
# activation: input of a matrix product. gradient: gradient of the product's output.
# For more statistics, see LogTensorStats and Log*TensorStats of Transformer Engine.
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
        """Tell nvdlfw_inspect the names of the layers and the number of the next step. Remove lines
        of steps after `step`, which an interrupted run may have written.
        """
        import nvdlfw_inspect.api as inspect

        inspect.infer_and_assign_layer_names(model)
        inspect.initialize_training_step(step + 1)
        if self._topology.is_main:
            self._file = open_json_lines(self._folder / "statistics.jsonl", step)

    def step(self) -> None:
        """Collect and write the statistics of a step. All ranks must call this after each step."""
        import nvdlfw_inspect.api as inspect

        inspect.step()
        if self._file is not None:
            self._file.flush()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Collect no statistics inside this context. Validation uses this context, because
        statistics cover training steps only."""
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

    Call `begin` with the model, and `step` after each step. Outside of training steps, run the
    model inside `paused`.

    Args:
        options: options of the run, with `auto` resolved.
    Raises:
        ValueError: config.yaml is invalid.
    """
    if not options.output.tensor_statistics:
        yield NoStatistics()
        return
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


def check_statistics(options: TrainOptions) -> None:
    """Check that --tensor-statistics can work, if it is given.

    Raises:
        ValueError: --tensor-statistics cannot be combined with another option, or nvdlfw_inspect is
            not installed. The message says what to do.
    """
    if not options.output.tensor_statistics:
        return
    if options.compute.backend != "te":
        raise ValueError(
            "--tensor-statistics needs the layers of Transformer Engine, but --backend is "
            f"{options.compute.backend}: remove --tensor-statistics, or use --backend te"
        )
    if find_spec("nvdlfw_inspect") is None:
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
    ) as error:  # nvdlfw_inspect raises these errors if a user has made the file invalid
        raise ValueError(
            f"{config}: {error}. Correct the file, or remove it: the next start writes a new one"
        ) from error


def configuration(options: TrainOptions) -> str:
    """Return the content of config.yaml.

    The file selects statistics of all layers. For layers in low precision, the file also selects
    statistics of the rounding.
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
    """Return the names of the statistics of rounding, by tensor. One of them, underflows%, is the
    share of the tensor's numbers that become 0.
    """
    if options.compute.precision == "nvfp4":
        return dict.fromkeys(_TENSORS, ("underflows%", "mse"))
    scales = ("scale_inv_min", "scale_inv_max")
    overflows = ("overflows%",) if options.compute.precision == "fp8-delayed" else ()
    found = dict.fromkeys(_TENSORS, ("underflows%", *overflows, *scales))
    if options.compute.quantized_init:
        # Underflows cannot be counted, because the weights exist in FP8 only.
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
