"""AdamW on fp32 masters, in which normalisation, clipping and the skipping of bad steps cost no pass over memory and no wait.

It is torch's fused AdamW, which takes the scale and the verdict as device tensors. Where parameters are fp32 they are their own masters;
where they are bf16 (backend te), gradients are added up in fp32 on the masters, and the masters are copied into the parameters at the end.
Measured on an H200: docs/decisions/0005-trainer.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from trainer.config import OptimizerOptions
from trainer.model import Esm2
from trainer.parallel import local


class Optimizer:
    """Steps a model's parameters.

    applied: int64[], steps that were not skipped. bad: int64[], steps skipped in a row. Both on the device.
    """

    def __init__(self, model: Esm2, options: OptimizerOptions, masters: Mapping[str, Tensor]) -> None:
        """
        Args:
            masters: fp32 values of the parameters that are not fp32 themselves, by name, sharded like them.
        """
        self._clip_norm = options.clip_norm
        self._parameters = dict(model.named_weights())
        self._masters = {name: masters.get(name, parameter) for name, parameter in self._parameters.items()}
        self._low = [name for name in self._parameters if name in masters]
        self.applied = torch.zeros((), dtype=torch.int64, device=model.inv_freq.device)
        self.bad = torch.zeros_like(self.applied)
        decayed, others = ([m for m in self._masters.values() if (m.ndim >= 2) is matrix] for matrix in (True, False))
        self._adam = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": options.weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=torch.zeros((), device=self.applied.device),
            betas=(options.beta1, options.beta2),
            eps=options.epsilon,
            fused=True,
        )
        for master in self._masters.values():
            moments = {name: torch.zeros_like(master, requires_grad=False) for name in ("exp_avg", "exp_avg_sq")}
            self._adam.state[master] = {"step": torch.zeros((), device=self.applied.device), **moments}

    @torch.no_grad()
    def accumulate(self) -> None:
        """Take the gradients of a micro-batch. fp32 ones add up where they are."""
        if not self._low:
            return
        parameters, masters = ([of[name] for name in self._low] for of in (self._parameters, self._masters))
        grads = [local(parameter.grad) for parameter in parameters]
        if masters[0].grad is None:
            for master in masters:
                master.grad = torch.empty_like(master)
            torch._foreach_copy_([local(master.grad) for master in masters], grads)
        else:
            torch._foreach_add_([local(master.grad) for master in masters], grads)
        for parameter in parameters:
            parameter.grad = None

    def gradient_square(self) -> Tensor:
        """Sum of squares of this rank's gradients, float32[], of the summed loss."""
        grads = [local(master.grad) for master in self._masters.values()]
        return torch.stack(torch._foreach_norm(grads)).square().sum()

    @torch.no_grad()
    def step(self, learning_rate: float, *, loss_sum: Tensor, count: Tensor, gradient_square: Tensor) -> tuple[Tensor, Tensor]:
        """Apply the gradients of a summed loss, normalised by the count and clipped; or skip, if anything is not finite.

        Args:
            loss_sum, count, gradient_square: of the global batch.
        Returns:
            mean loss and the mean loss's gradient norm, before clipping.
        """
        count = count.clamp_min(1.0)
        loss, norm = loss_sum / count, gradient_square.sqrt() / count
        finite = torch.isfinite(loss) & torch.isfinite(norm)
        clip = (self._clip_norm / (norm + 1e-6)).clamp_max(1.0)
        for group in self._adam.param_groups:
            group["lr"].fill_(learning_rate)
        self._adam.grad_scale, self._adam.found_inf = (count / clip).float(), (~finite).float()
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        self._publish()
        self.applied += finite
        self.bad = torch.where(finite, 0, self.bad + 1)
        return loss, norm

    def _publish(self) -> None:
        """Copy masters into the parameters that are not their own."""
        if self._low:
            torch._foreach_copy_([local(self._parameters[name].data) for name in self._low], [local(self._masters[name]) for name in self._low])

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Masters and Adam's moments, fp32, as `model.*`, `exp_avg.*` and `exp_avg_sq.*`. To be read, or written in place and then `restored`."""
        for name, master in self._masters.items():
            yield f"model.{name}", master.detach()
            for moment in ("exp_avg", "exp_avg_sq"):
                yield f"{moment}.{name}", self._adam.state[master][moment]

    @torch.no_grad()
    def restored(self, applied: int) -> None:
        """Take what was written into named_tensors() for our state after `applied` steps."""
        self.applied.fill_(applied)
        for master in self._masters.values():
            self._adam.state[master]["step"].fill_(applied)
        self._publish()
