"""AdamW on fp32 masters. On a GPU, parameters that have masters are updated by our kernel, which
also writes the parameters. Otherwise torch's fused AdamW updates the masters.

Measurements on an H200 are in docs/decisions/0005-trainer.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from trainer.config import OptimizerOptions
from trainer.distributed.fsdp import local
from trainer.distributed.row_shards import RowShards
from trainer.precision import is_quantized

MOMENTS: Final = ("exp_avg", "exp_avg_sq")


class AdamW:
    """AdamW step. A step that is skipped, and the scale of the gradients, are known on the device
    only.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        masters: Mapping[str, Tensor],
        options: OptimizerOptions,
        *,
        shards: RowShards,
        in_place: bool,
    ) -> None:
        """Args:
        parameters: parameters by name, whole or sharded by FSDP2.
        masters: fp32 values that the steps update, by the same names. A parameter may be its own
            master.
        shards: rows of the parameters that this rank updates.
        in_place: True if the parameters are the masters, and `backward` writes the gradients into
            their own `grad`.
        """
        self._parameters, self._masters = list(parameters.values()), dict(masters)
        self._options, self._shards, self._in_place = options, shards, in_place
        device = self._parameters[0].device
        decayed, others = (
            [m for m in self._masters.values() if (m.ndim >= 2) is matrix]
            for matrix in (True, False)
        )
        self._torch = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": options.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=torch.zeros((), device=device),
            betas=(options.beta1, options.beta2),
            eps=options.epsilon,
            fused=True,
        )
        for master in self._masters.values():
            moments = {name: torch.zeros_like(master, requires_grad=False) for name in MOMENTS}
            self._torch.state[master] = {"step": torch.zeros((), device=device), **moments}
        self._kernel: Any = None

    def state(self, name: str) -> tuple[Tensor, Tensor]:
        """Return the first and second moments of a parameter, float32, sharded like its master."""
        state = self._torch.state[self._masters[name]]
        return state[MOMENTS[0]], state[MOMENTS[1]]

    def restored(self, applied: int) -> None:
        """Set the number of applied steps."""
        for master in self._masters.values():
            self._torch.state[master]["step"].fill_(applied)

    def step_with_kernel(
        self, grads: Sequence[Tensor], *, rate: Tensor, scale: Tensor, skip: Tensor, applied: Tensor
    ) -> None:
        """Run one step on masters, and write the parameters that are not FP8; see `FusedAdamW`."""
        self._kernel = self._kernel or self._make_kernel()
        self._kernel.step(grads, rate=rate, scale=scale, skip=skip, applied=applied)

    def step_with_torch(
        self, grads: Sequence[Tensor], *, rate: Tensor, divisor: Tensor, skip: Tensor
    ) -> None:
        """Run one step on masters.

        Args:
            grads: gradients, which the step divides by `divisor`.
            rate: learning rate, scalar on the device.
            divisor: scalar on the device.
            skip: bool[] on the device, true to skip the step.
        """
        for group in self._torch.param_groups:
            group["lr"].copy_(rate)
        if not self._in_place:
            for master, grad in zip(self._masters.values(), grads, strict=True):
                master.grad = torch.empty_like(master)
                local(master.grad).copy_(grad)
        # torch's fused step reads these two attributes, but torch's class does not declare them.
        self._torch.grad_scale = divisor.float()  # type: ignore[attr-defined]  # see above
        self._torch.found_inf = skip.float()  # type: ignore[attr-defined]  # see above
        self._torch.step()
        self._torch.zero_grad(set_to_none=True)

    def locate_gradients(self, grads: Callable[[], Sequence[Tensor]]) -> None:
        """Prepare a step on the host; see `Optimizer.locate_gradients`.

        Args:
            grads: function that returns the gradients of the next step.
        """
        for group in self._torch.param_groups:
            group["capturable"] = (
                True  # set only now, because with this setting torch warns about uncaptured steps
            )
        if self._kernel:
            self._kernel.locate(grads())

    def _make_kernel(self) -> Any:
        """Create the kernel at the first step, because FSDP2 may move sharded parameters until the
        first forward pass.
        """
        from trainer.kernels.adamw import FusedAdamW

        options = self._options
        return FusedAdamW(
            [
                None if is_quantized(parameter) else self._shards.own(local(parameter.data))
                for parameter in self._parameters
            ],
            [local(master) for master in self._masters.values()],
            [(local(first), local(second)) for first, second in map(self.state, self._masters)],
            decays=[
                options.weight_decay if master.ndim >= 2 else 0.0
                for master in self._masters.values()
            ],
            beta1=options.beta1,
            beta2=options.beta2,
            epsilon=options.epsilon,
        )
