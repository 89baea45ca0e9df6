"""Measure speed and error of one transformer layer in several implementations ("rungs"), from plain
torch to Transformer Engine (TE) in FP8.

    python -m benchmarks.training.te_layer --json te_layer.json

The layer is pre-norm with biases, tanh GELU and residuals, without dropout or mask: each token
attends to all tokens of its own sequence. A pass is one forward and one backward computation,
without an optimizer step. A block is several passes that are timed together.

1. Compare the outputs and gradients of each rung with those of plain torch in fp32. All rungs get
   the same weights, the same input and the same gradient of the output.
   - An error is ‖difference‖ / ‖reference‖. The layer computes y = x + f(x). For two errors,
     ‖reference‖ is the norm of only the part that f contributes. This part is y − x for the error
     of y. For the error of the gradient of x, it is the gradient of x minus the gradient of y.
   - The gradient error is the largest error among the gradients of the input and of all parameters.
   - A bf16 rung fails if an error is more than twice the error of plain torch in bf16. An FP8 rung
     fails if an error is above FP8_LIMITS.
2. In each of several rounds, time one block of each rung, with CUDA events on a GPU. The result of
   a rung is the median over the rounds of the mean time of a pass.

trainer/monitoring/flops.py defines model FLOPs. If a rung fails, the other rungs are still measured
and the exit code is 1. The benchmark takes about a minute.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Final

import torch
import tyro
from torch import Tensor, nn

from benchmarks.training.te_layer_rungs import LADDER, Options, Plain, plain_name
from schemas.models import ModelOptions
from trainer.config import ComputeOptions, Precision
from trainer.monitoring.flops import model_flops
from trainer.precision import autocast

FP8_LIMITS: Final = (0.25, 0.5)
"""Largest output error and largest gradient error of a correct FP8 rung. In a pass, FP8 gradients
are rounded to two bits of mantissa several times."""
SETTLING: Final = 4
"""Number of passes of each rung. The results of the last pass are compared. With delayed scaling, a
pass takes its FP8 scales from earlier passes, so the scales of the first pass are arbitrary."""


class Problem:
    """Weights, input, and gradient of the output, bit-identical for all rungs."""

    def __init__(self, options: Options, device: torch.device) -> None:
        torch.manual_seed(0)
        self.device = device
        size = (options.batch, options.length, options.hidden)
        self.x, self.gradient = (torch.randn(size, device=device).bfloat16() for _ in range(2))
        with torch.device("meta"):
            shapes = {
                name: parameter.shape for name, parameter in Plain(options).named_parameters()
            }
        # random biases and norm weights show whether a rung omits or swaps parameters
        spread = {
            name: 1 / math.sqrt(shape[1]) if len(shape) > 1 else 0.1
            for name, shape in shapes.items()
        }
        weights = {
            name: spread[name] * torch.randn(shape, device=device)
            + ("norm" in name and "weight" in name)
            for name, shape in shapes.items()
        }
        self.weights = {name: weight.bfloat16() for name, weight in weights.items()}

    def pass_of(self, layer: nn.Module, number: Precision) -> Callable[[], dict[str, Tensor]]:
        """Copy the weights into a layer, and return a function that runs one pass.

        That function runs forward and backward, and returns the output and all gradients, by name.
        """
        dtype = torch.float32 if number == "fp32" else torch.bfloat16
        parameters = {
            plain_name(name): parameter
            for name, parameter in layer.to(self.device, dtype).named_parameters()
        }
        for name in parameters.keys() | self.weights.keys():
            parameters[name].data.copy_(self.weights[name])
        x, gradient = self.x.to(dtype, copy=True).requires_grad_(), self.gradient.to(dtype)
        compute = ComputeOptions(backend="te", precision=number)

        def once() -> dict[str, Tensor]:
            layer.zero_grad(set_to_none=True)
            x.grad = None
            with autocast(compute, self.device, sharded=False):
                y = layer(x)
            y.backward(gradient)
            return {
                "output": y.detach(),
                "input": x.grad,
                **{name: parameter.grad for name, parameter in parameters.items()},
            }

        return once

    def errors(self, found: dict[str, Tensor], reference: dict[str, Tensor]) -> tuple[float, float]:
        """Return the error of the output, and the largest error of a gradient.

        The layer computes y = x + f(x). The errors of the output and of the gradient of the input
        are relative to the part that f contributes: the reference output minus x, and the reference
        gradient of x minus the gradient of y.
        """
        past = {"output": self.x.float(), "input": self.gradient.float()}
        relative = {
            name: float((found[name] - r).norm() / (r - past.get(name, 0.0)).norm())
            for name, r in reference.items()
        }
        return relative.pop("output"), max(
            math.inf if math.isnan(error) else error for error in relative.values()
        )


@dataclass
class Rung:
    """Results of a rung.

    blocks_ms: for each timed block of passes, the mean time of a pass, in ms
    failure: reason why results are missing or wrong; empty if the results are correct
    """

    name: str
    output_error: float = math.nan
    gradient_error: float = math.nan
    blocks_ms: list[float] = field(default_factory=list)
    failure: str = ""

    @property
    def ms(self) -> float:
        return statistics.median(self.blocks_ms) if self.blocks_ms else math.nan

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Record any exception as the failure of this rung, so that the other rungs still run."""
        try:
            yield
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"


def block_ms(once: Callable[[], object], steps: int, device: torch.device) -> float:
    """Time a block of `steps` passes. Return the mean time of a pass in ms.

    An extra pass runs first, so that the device is busy while the host launches the timed passes.
    """
    begin, end = (
        torch.cuda.Event(enable_timing=True) if device.type == "cuda" else None for _ in range(2)
    )
    once()
    started = time.perf_counter()
    if begin:
        begin.record()
    for _ in range(steps):
        once()
    if begin and end:
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / steps
    return 1e3 * (time.perf_counter() - started) / steps


def climbed(options: Options, device: torch.device) -> list[Rung]:
    """Compare all rungs with the reference, then time them."""
    problem = Problem(options, device)
    reference = problem.pass_of(Plain(options), "fp32")()
    rungs, passes = [Rung(name) for name in LADDER], {}
    limits = {"bf16": (math.inf, math.inf)}  # the first rung, plain torch, sets this limit below
    for rung, (build, number) in zip(rungs, LADDER.values(), strict=True):
        with rung.noting():
            once = problem.pass_of(build(options), number)
            for _ in range(SETTLING):
                found = once()
            errors = rung.output_error, rung.gradient_error = problem.errors(found, reference)
            passes[rung.name] = once
            limit = limits.get(number, FP8_LIMITS)
            if not (errors[0] <= limit[0] and errors[1] <= limit[1]):
                rung.failure = (
                    "errors of output and gradients are {:.1e} and {:.1e}, "
                    "expected at most {:.1e} and {:.1e}"
                ).format(*errors, *limit)
            if rung is rungs[0]:
                limits["bf16"] = (2 * errors[0], 2 * errors[1])
    for _ in range(options.rounds):
        for rung in rungs:
            if once := passes.pop(rung.name, None):
                with rung.noting():
                    rung.blocks_ms.append(block_ms(once, options.steps, device))
                    passes[rung.name] = once
    return rungs


def main(options: Options) -> int:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    where = f"{name}, torch {torch.__version__}"
    model = ModelOptions(
        layers=1, hidden_size=options.hidden, heads=options.heads, ffn_size=options.ffn
    )
    flops = model_flops(
        model,
        tokens=options.batch * options.length,
        squares=options.batch * options.length**2,
        predicted=0,
    )
    rungs = climbed(options, device)
    print(
        f"{where}; {options.batch} × {options.length:,} tokens, hidden {options.hidden:,}, "
        f"feed-forward {options.ffn:,}, {options.heads} heads\n"
    )
    print(
        "| rung | ms | model TFLOP | TFLOP/s | × plain | output error | gradient error | fault |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for rung in rungs:
        speed = f"{flops / rung.ms / 1e9:.0f} | {rungs[0].ms / rung.ms:.2f}"
        figures = f"{rung.ms:.2f} | {flops / 1e12:.2f} | {speed}"
        errors = f"{rung.output_error:.1e} | {rung.gradient_error:.1e}"
        failure = rung.failure.partition("\n")[0][:150]
        print(f"| {rung.name} | {figures} | {errors} | {failure} |")
    if options.json is not None:
        shape = {name: value for name, value in asdict(options).items() if name != "json"}
        found = [
            {**asdict(rung), "ms": rung.ms}
            if rung.blocks_ms
            else {"name": rung.name, "failure": rung.failure}
            for rung in rungs
        ]
        options.json.write_text(
            json.dumps({"device": where, **shape, "flops": flops, "rungs": found}, indent=1)
        )
    for rung in rungs:
        if rung.failure:
            print(f"{rung.name} failed: {rung.failure}", file=sys.stderr)
    return int(any(rung.failure for rung in rungs))


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))
