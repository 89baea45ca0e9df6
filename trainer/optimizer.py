"""AdamW on fp32 masters (fp32 copies of the parameters). Normalisation, clipping and skipping of
bad steps need no additional pass over memory, and the host does not wait for them.

| parameters | masters | AdamW |
|---|---|---|
| fp32 | the parameters themselves | torch's fused AdamW, scale and skip as device tensors |
| bf16 (backend te) | fp32 | our kernel updates masters and parameters in one pass |
| FP8 (--quantized-init) | fp32 | our kernel; then parameters are quantized from the masters |

Measurements on an H200 are in docs/decisions/0005-trainer.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainer.config import OptimizerOptions
from trainer.distributed.topology import local
from trainer.model.esm2 import Esm2
from trainer.precision import is_quantized


class Optimizer:
    """Optimizer of the parameters of a model.

    applied: int64[] on the device, number of steps that were not skipped.
    bad: int64[] on the device, number of steps skipped in a row.
    """

    def __init__(
        self, model: Esm2, options: OptimizerOptions, masters: Mapping[str, Tensor]
    ) -> None:
        """Args:
        masters: fp32 values, by name, of the parameters that are not fp32. Each is sharded like
            its parameter.
        """
        self._options = options
        self._parameters = dict(model.named_weights())
        self._masters = {
            name: masters.get(name, parameter) for name, parameter in self._parameters.items()
        }
        self._has_masters = bool(masters)  # either all parameters have masters, or none do
        self._quantized: list[tuple[Any, Tensor]] = [
            (parameter, self._masters[name].detach())
            for name, parameter in self._parameters.items()
            if is_quantized(parameter)
        ]
        self.applied = torch.zeros((), dtype=torch.int64, device=model.inv_freq.device)
        self.bad = torch.zeros_like(self.applied)
        decayed, others = (
            [m for m in self._masters.values() if (m.ndim >= 2) is matrix]
            for matrix in (True, False)
        )
        self._adam = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": options.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=torch.zeros((), device=self.applied.device),
            betas=(options.beta1, options.beta2),
            eps=options.epsilon,
            fused=True,
        )
        for master in self._masters.values():
            moments = {
                name: torch.zeros_like(master, requires_grad=False)
                for name in ("exp_avg", "exp_avg_sq")
            }
            self._adam.state[master] = {
                "step": torch.zeros((), device=self.applied.device),
                **moments,
            }
        self._sums: list[Tensor] = []
        self._kernel: Any = None

    def _make_kernel(self) -> Any:
        """Create the kernel at the first step, because FSDP2 may move sharded parameters until the
        first forward pass.
        """
        from trainer.kernels.adamw import FusedAdamW

        options, states = (
            self._options,
            [self._adam.state[master] for master in self._masters.values()],
        )
        return FusedAdamW(
            [
                None if is_quantized(parameter) else local(parameter.data)
                for parameter in self._parameters.values()
            ],
            [local(master) for master in self._masters.values()],
            [(local(state["exp_avg"]), local(state["exp_avg_sq"])) for state in states],
            decays=[
                options.weight_decay if master.ndim >= 2 else 0.0
                for master in self._masters.values()
            ],
            beta1=options.beta1,
            beta2=options.beta2,
            epsilon=options.epsilon,
        )

    @torch.no_grad()
    def accumulate(self) -> None:
        """Add the gradients of one micro-batch to those of earlier micro-batches.

        For fp32 gradients nothing needs doing: `backward` adds to them. bf16 gradients are added to
        fp32 sums, because a sum in bf16 would round small contributions away.
        """
        if not self._has_masters:
            return
        grads = self._parameter_gradients()
        if not self._sums:
            self._sums = [torch.zeros_like(grad, dtype=torch.float32) for grad in grads]
        torch._foreach_add_(self._sums, grads)
        self._forget_gradients()

    def gradient_square(self) -> Tensor:
        """Return the sum of squares of this rank's gradients of the summed loss, float32[]."""
        return (
            torch.stack(torch._foreach_norm(self._gradients(), dtype=torch.float32)).square().sum()
        )

    @torch.no_grad()
    def step(
        self, rate: Tensor, *, loss_sum: Tensor, count: Tensor, gradient_square: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Apply the gradients of a summed loss, divided by the count and clipped. Skip the step if
        the loss or the gradient norm is not finite.

        Args:
            rate: learning rate, float64[] on the device.
            loss_sum: loss summed over the predicted tokens of the global batch.
            count: number of predicted tokens in the global batch.
            gradient_square: sum of squares of the gradients of `loss_sum`.
        Returns:
            Mean loss, and gradient norm of the mean loss before clipping.
        """
        count = count.clamp_min(1.0)
        loss, norm = loss_sum / count, gradient_square.sqrt() / count
        finite = torch.isfinite(loss) & torch.isfinite(norm)
        clip = (self._options.clip_norm / (norm + 1e-6)).clamp_max(1.0)
        if self._has_masters and self.applied.is_cuda:
            self._kernel = self._kernel or self._make_kernel()
            self._kernel.step(
                self._gradients(), rate=rate, scale=clip / count, skip=~finite, applied=self.applied
            )
            self._quantize()
        else:
            self._step_with_torch(rate, divisor=count / clip, skip=~finite)
        if self._sums:
            torch._foreach_zero_(self._sums)
        self._forget_gradients()
        self.applied += finite
        self.bad.copy_(torch.where(finite, 0, self.bad + 1))
        return loss, norm

    def locate_gradients(self) -> None:
        """Do the host's part of `step`. Call this before capturing `step` in a CUDA graph."""
        for group in self._adam.param_groups:
            group["capturable"] = (
                True  # not set earlier, because torch warns if a step then runs uncaptured
            )
        if self._kernel:
            self._kernel.locate(self._gradients())

    def _gradients(self) -> list[Tensor]:
        """Return this rank's gradients of all parameters."""
        return self._sums or self._parameter_gradients()

    def _parameter_gradients(self) -> list[Tensor]:
        return [_gradient(parameter) for parameter in self._parameters.values()]

    def _forget_gradients(self) -> None:
        for parameter in self._parameters.values():
            parameter.grad = None

    def _step_with_torch(self, rate: Tensor, *, divisor: Tensor, skip: Tensor) -> None:
        for group in self._adam.param_groups:
            group["lr"].copy_(rate)
        if self._has_masters:
            for master, grad in zip(self._masters.values(), self._gradients(), strict=True):
                master.grad = torch.empty_like(master)
                local(master.grad).copy_(grad)
        # torch's fused step reads these two attributes, but torch's class does not declare them.
        self._adam.grad_scale = divisor.float()  # type: ignore[attr-defined]  # see above
        self._adam.found_inf = skip.float()  # type: ignore[attr-defined]  # see above
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        self._publish()

    def _publish(self) -> None:
        """Copy masters into the parameters that are not their own masters."""
        if self._has_masters:
            plain = {
                name: parameter
                for name, parameter in self._parameters.items()
                if not is_quantized(parameter)
            }
            torch._foreach_copy_(
                [local(parameter.data) for parameter in plain.values()],
                [local(self._masters[name]) for name in plain],
            )
            self._quantize()

    def _quantize(self) -> None:
        """Quantize the masters into the FP8 parameters. This happens even after a skipped step,
        because only the device knows that the step was skipped.
        """
        for parameter, master in self._quantized:
            parameter.quantize_(master)

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield masters and Adam's moments, fp32, as `model.*`, `exp_avg.*` and `exp_avg_sq.*`.

        After writing to these tensors, call `restored`.
        """
        for name, master in self._masters.items():
            yield f"model.{name}", master.detach()
            for moment in ("exp_avg", "exp_avg_sq"):
                yield f"{moment}.{name}", self._adam.state[master][moment]

    @torch.no_grad()
    def restored(self, applied: int) -> None:
        """Continue from the values written into the tensors of `named_tensors`: copy them into the
        parameters, and set the number of applied steps.
        """
        self.applied.fill_(applied)
        for master in self._masters.values():
            self._adam.state[master]["step"].fill_(applied)
        self._publish()


def _gradient(parameter: nn.Parameter) -> Tensor:
    """Return this rank's shard of a parameter's gradient."""
    assert parameter.grad is not None
    return local(parameter.grad)


def learning_rate(step: int, options: OptimizerOptions) -> float:
    """Return the learning rate of optimizer step `step`, counted from 0: a pure function, so that
    checkpoints need no scheduler state.

    The warm-up rises linearly and reaches the peak at step warmup_steps. All schedules then fall to
    final_fraction of the peak:

    | schedule | the fall begins | the fall ends |
    |---|---|---|
    | linear, cosine | after the warm-up | at step number `steps * decay_until` |
    | wsd | at step number `steps * (1 - decay_fraction)` | at the last step |

    wsd (warm-up, stable, decay) falls linearly. Source: Hu et al., MiniCPM, 2024.
    """
    if step < options.warmup_steps:
        return options.learning_rate * (step + 1) / (options.warmup_steps + 1)
    if options.schedule == "wsd":
        begin, end = options.steps * (1 - options.decay_fraction), float(options.steps)
    else:
        begin, end = float(options.warmup_steps), options.steps * options.decay_until
    done = min(max((step - begin) / max(end - begin, 1.0), 0.0), 1.0)
    left = 0.5 * (1 + math.cos(math.pi * done)) if options.schedule == "cosine" else 1 - done
    return options.learning_rate * (options.final_fraction + (1 - options.final_fraction) * left)
