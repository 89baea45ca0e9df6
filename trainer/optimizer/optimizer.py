"""Optimizer steps on fp32 masters (fp32 copies of the parameters). Steps whose loss or gradient is
not finite are skipped. The update itself divides gradients by the number of predicted tokens, clips
them and skips steps. The host does not wait for the GPU.

| parameters | masters |
|---|---|
| fp32 | the parameters themselves |
| bf16 (backend te) | fp32 |
| FP8 (--quantized-init) | fp32, which are quantized to FP8 after each step |

AdamW updates all parameters, or with --optimizer muon those that are not matrices of layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from trainer.config import OptimizerOptions
from trainer.distributed.fsdp import local
from trainer.distributed.gradients import Gradients
from trainer.distributed.row_shards import RowShards
from trainer.model.esm2 import Esm2
from trainer.optimizer.adamw import MOMENTS, AdamW
from trainer.optimizer.muon import Muon, is_matrix_of_layers
from trainer.precision import is_quantized


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
            masters: fp32 values, by name, of the parameters that are not fp32. FSDP2 shards each
                master like its parameter.
            gradients: gradients of `model.named_weights()`; None if they need no reduction over
                ranks.
            shards: rows of the parameters that this optimizer updates; None for all rows.
        Raises:
            ValueError: the options and the number of ranks do not suit each other.
        """
        self._clip_norm = options.clip_norm
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
        self._of_muon = [
            options.optimizer == "muon" and is_matrix_of_layers(name, parameter)
            for name, parameter in self._parameters.items()
        ]
        self._adam = AdamW(
            self._chosen(self._parameters, muon=False),
            self._chosen(self._masters, muon=False),
            options,
            shards=self._shards,
            in_place=not self._has_masters and self.gradients.in_place,
        )
        self._muon = Muon(
            self._chosen(self._parameters, muon=True),
            self._chosen(self._masters, muon=True),
            heads=model.options.heads,
            weight_decay=options.weight_decay,
            shards=self._shards,
        )

    def _master(self, name: str, masters: Mapping[str, Tensor]) -> Tensor:
        """Return the tensor that a step updates: this rank's rows of a master, or of a parameter
        without a master.
        """
        parameter = self._parameters[name]
        master = masters.get(name, parameter)
        if not self._shards.divides(parameter):
            return master
        return self._shards.own(master.detach()).clone()  # a copy, to free the other rows

    def _chosen(self, tensors: Mapping[str, Tensor], *, muon: bool) -> dict[str, Tensor]:
        """Return the tensors of the parameters that Muon updates, or those of the others."""
        pairs = zip(tensors.items(), self._of_muon, strict=True)
        return {name: tensor for (name, tensor), chosen in pairs if chosen is muon}

    def _grads(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the gradients for AdamW, and those for Muon."""
        found: tuple[list[Tensor], list[Tensor]] = [], []
        for grad, chosen in zip(self.gradients.own(), self._of_muon, strict=True):
            found[chosen].append(grad)
        return found

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
        clip = (self._clip_norm / (norm + 1e-6)).clamp_max(1.0)
        skip, grads, matrices = ~finite, *self._grads()
        if self._has_masters and self.applied.is_cuda:
            self._adam.step_with_kernel(
                grads, rate=rate, scale=clip / count, skip=skip, applied=self.applied
            )
            written = self._of_muon
        else:
            self._adam.step_with_torch(grads, rate=rate, divisor=count / clip, skip=skip)
            written = [True] * len(self._of_muon)
        self._muon.step(matrices, rate=rate, scale=clip / count, skip=skip, applied=self.applied)
        self._publish(written)
        self._shards.gather(parameter.data for parameter in self._parameters.values())
        self.gradients.clear()
        self.applied += finite
        self.bad.copy_(torch.where(finite, 0, self.bad + 1))
        return loss, norm

    def locate_gradients(self) -> None:
        """Prepare `step` on the host. Call this before capturing `step` in a CUDA graph."""
        self._adam.locate_gradients(lambda: self._grads()[0])

    def _publish(self, chosen: Sequence[bool]) -> None:
        """Copy the chosen masters into their parameters. A parameter that is its own master needs
        no copy. FP8 parameters are quantized even after a skipped step, because only the device
        knows that the step was skipped.
        """
        copies = [
            (self._shards.own(local(parameter.data)), local(self._masters[name]))
            for (name, parameter), is_chosen in zip(self._parameters.items(), chosen, strict=True)
            if is_chosen and self._masters[name] is not parameter and not is_quantized(parameter)
        ]
        if copies:
            targets, sources = zip(*copies, strict=True)
            torch._foreach_copy_(list(targets), list(sources))
        for quantized, master in self._quantized:
            quantized.quantize_(master)

    def named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield masters and the state of the optimizer, fp32, as `model.*`, `exp_avg.*` (mean of
        gradients) and `exp_avg_sq.*` (mean of squares: for each value, or with Muon for each row).

        After writing to these tensors, call `restored`.
        """
        for (name, master), of_muon in zip(self._masters.items(), self._of_muon, strict=True):
            state = (self._muon if of_muon else self._adam).state(name)
            for kind, own in zip(("model", *MOMENTS), (master.detach(), *state), strict=True):
                if isinstance(master, DTensor) and not isinstance(own, DTensor):
                    own = DTensor.from_local(
                        own, master.device_mesh, master.placements, run_check=False
                    )
                yield f"{kind}.{name}", self._shards.distributed(own, self._parameters[name])

    @torch.no_grad()
    def restored(self, applied: int) -> None:
        """Continue from the values written into the tensors of `named_tensors`: copy them into the
        parameters, and set the number of applied steps.
        """
        self.applied.fill_(applied)
        self._adam.restored(applied)
        self._publish([True] * len(self._of_muon))
        self._shards.gather(parameter.data for parameter in self._parameters.values())
