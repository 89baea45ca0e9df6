"""AdamW on fp32 masters (fp32 copies of the parameters). Steps whose loss or gradient is not finite
are skipped. The update itself divides gradients by the number of predicted tokens, clips them and
skips steps, without another pass over memory. The host does not wait for the GPU.

| parameters | masters | AdamW |
|---|---|---|
| fp32 | the parameters themselves | torch's fused AdamW reads scale and skip flag on the device |
| bf16 (backend te) | fp32 | our kernel updates masters and parameters in one pass |
| FP8 (--quantized-init) | fp32 | our kernel updates masters, which are then quantized to FP8 |

Measurements on an H200 are in docs/decisions/0005-trainer.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from schemas.text.phrases import plural
from trainer.config import AUTO, OptimizerOptions, TrainOptions
from trainer.config.options import PUBLISHED_WARMUP
from trainer.distributed.fsdp import local
from trainer.distributed.gradients import Gradients
from trainer.distributed.row_shards import RowShards
from trainer.model.esm2 import Esm2
from trainer.precision import is_quantized

MOMENTS: Final = ("exp_avg", "exp_avg_sq")


class Optimizer:
    """Optimizer of the parameters of a model.

    applied: int64[] on the device, number of steps that were not skipped.
    bad: int64[] on the device, number of steps skipped in a row up to now.
    """

    def __init__(
        self,
        model: Esm2,
        options: OptimizerOptions,
        masters: Mapping[str, Tensor],
        *,
        gradients: Gradients | None = None,
        shards: RowShards | None = None,
    ) -> None:
        """Args:
        masters: fp32 values, by name, of the parameters that are not fp32. FSDP2 shards each master
            like its parameter.
        gradients: gradients of `model.named_weights()`; None if they need no reduction over ranks.
        shards: rows of the parameters that this optimizer updates; None for all rows.
        """
        self._options = options
        self._parameters = dict(model.named_weights())
        self._shards = shards or RowShards()
        self.gradients = gradients or Gradients(list(self._parameters.values()))
        self._masters = {name: self._master(name, masters) for name in self._parameters}
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
            moments = {name: torch.zeros_like(master, requires_grad=False) for name in MOMENTS}
            self._adam.state[master] = {
                "step": torch.zeros((), device=self.applied.device),
                **moments,
            }
        self._kernel: Any = None

    def _master(self, name: str, masters: Mapping[str, Tensor]) -> Tensor:
        """Return the tensor that AdamW updates: this rank's rows of a master, or of a parameter
        without a master.
        """
        parameter = self._parameters[name]
        master = masters.get(name, parameter)
        if not self._shards.divides(parameter):
            return master
        return self._shards.own(master.detach()).clone()  # a copy, to free the other rows

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
                None if is_quantized(parameter) else self._shards.own(local(parameter.data))
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
    def step(
        self, rate: Tensor, *, loss_sum: Tensor, count: Tensor, gradient_square: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Divide the gradients of a summed loss by the count, clip them, and apply them. Skip the
        step if the loss or the gradient norm is not finite.

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
                self.gradients.own(),
                rate=rate,
                scale=clip / count,
                skip=~finite,
                applied=self.applied,
            )
            self._quantize()
        else:
            self._step_with_torch(rate, divisor=count / clip, skip=~finite)
        self._shards.gather(parameter.data for parameter in self._parameters.values())
        self.gradients.clear()
        self.applied += finite
        self.bad.copy_(torch.where(finite, 0, self.bad + 1))
        return loss, norm

    def locate_gradients(self) -> None:
        """Prepare `step` on the host. Call this before capturing `step` in a CUDA graph."""
        for group in self._adam.param_groups:
            group["capturable"] = (
                True  # set only now, because with this setting torch warns about uncaptured steps
            )
        if self._kernel:
            self._kernel.locate(self.gradients.own())

    def _step_with_torch(self, rate: Tensor, *, divisor: Tensor, skip: Tensor) -> None:
        for group in self._adam.param_groups:
            group["lr"].copy_(rate)
        if self._has_masters or not self.gradients.in_place:
            for master, grad in zip(self._masters.values(), self.gradients.own(), strict=True):
                master.grad = torch.empty_like(master)
                local(master.grad).copy_(grad)
        # torch's fused step reads these two attributes, but torch's class does not declare them.
        self._adam.grad_scale = divisor.float()  # type: ignore[attr-defined]  # see above
        self._adam.found_inf = skip.float()  # type: ignore[attr-defined]  # see above
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        self._publish()

    def _publish(self) -> None:
        """Copy each master into its parameter, unless the parameter itself is the master."""
        copies = [
            (self._shards.own(local(parameter.data)), local(self._masters[name]))
            for name, parameter in self._parameters.items()
            if self._masters[name] is not parameter and not is_quantized(parameter)
        ]
        if copies:
            targets, sources = zip(*copies, strict=True)
            torch._foreach_copy_(list(targets), list(sources))
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
            state = self._adam.state[master]
            tensors = {"model": master.detach(), **{key: state[key] for key in MOMENTS}}
            for kind, own in tensors.items():
                yield f"{kind}.{name}", self._shards.distributed(own, self._parameters[name])

    @torch.no_grad()
    def restored(self, applied: int) -> None:
        """Continue from the values written into the tensors of `named_tensors`: copy them into the
        parameters, and set the number of applied steps.
        """
        self.applied.fill_(applied)
        for master in self._masters.values():
            self._adam.state[master]["step"].fill_(applied)
        self._publish()
        self._shards.gather(parameter.data for parameter in self._parameters.values())


def with_warmup(options: TrainOptions) -> tuple[TrainOptions, str]:
    """Return the options with `--warmup-steps auto` resolved, and a note for the user. The note is
    "" if the user chose the warm-up, or if `auto` is the warm-up of the published runs.
    """
    optimizer = options.optimizer
    if optimizer.warmup_steps != AUTO:
        return options, ""
    steps = optimizer.warmup
    warmup = (
        f"warm-up of {plural(steps, 'step')} instead of {PUBLISHED_WARMUP:,}"
        if steps
        else "no warm-up"
    )
    note = (
        f"{warmup}, because the run has {plural(optimizer.steps, 'step')}; --warmup-steps overrides"
    )
    options = replace(options, optimizer=replace(optimizer, warmup_steps=steps))
    return options, note if steps < PUBLISHED_WARMUP else ""


def learning_rate(step: int, options: OptimizerOptions) -> float:
    """Return the learning rate of optimizer step `step`, counted from 0. Because this is a pure
    function, checkpoints need no scheduler state.

    In the warm-up the rate rises linearly, and reaches the peak at step `warmup`. All schedules
    later decay to final_fraction of the peak:

    | schedule | the decay begins | the decay ends |
    |---|---|---|
    | linear, cosine | after the warm-up | at step number `steps * decay_until` |
    | wsd | at step number `steps * (1 - decay_fraction)` | at step number `steps` |

    wsd (warm-up, stable, decay) decays linearly. Source: Hu et al., MiniCPM, 2024.
    """
    if step < options.warmup:
        return options.learning_rate * (step + 1) / (options.warmup + 1)
    if options.schedule == "wsd":
        begin, end = options.steps * (1 - options.decay_fraction), float(options.steps)
    else:
        begin, end = float(options.warmup), options.steps * options.decay_until
    done = min(max((step - begin) / max(end - begin, 1.0), 0.0), 1.0)
    left = 0.5 * (1 + math.cos(math.pi * done)) if options.schedule == "cosine" else 1 - done
    return options.learning_rate * (options.final_fraction + (1 - options.final_fraction) * left)
