"""ESM-2 as a transformers PreTrainedModel. On a GPU, the model can use the layers of backend te.

    import trainer.model.hf_model  # registers the model with the Auto classes
    from transformers import AutoModelForMaskedLM

    # reads published weights from a local folder
    model = trainer.model.hf_model.ThdpackEsmForMaskedLM.from_esm("esm2_t6_8M_UR50D")
    model.save_pretrained("mine")
    model = AutoModelForMaskedLM.from_pretrained("mine")

Use this class for fine-tuning in a Hugging Face program. The class needs thdpack's extra
`hf` (`pip install -e '.[hf]'`). The export of `trainer.train` is a plain EsmForMaskedLM, and does
not need this module.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForMaskedLM, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import MaskedLMOutput

from schemas.models import ModelOptions
from schemas.vocabulary import ESM2
from trainer import precision
from trainer.config import Backend, ComputeOptions
from trainer.distributed.topology import single_process
from trainer.model import huggingface
from trainer.model.esm2 import VOCABULARY, Esm2, SequenceLayout
from trainer.model.initialize import build, draw, fill


class ThdpackEsmConfig(PreTrainedConfig):
    """Configuration of the model.

    backend: "te", "torch" or "auto". "auto" means "te" if the machine has a GPU and Transformer
        Engine, else "torch".
    """

    model_type = "thdpack_esm"

    hidden_size: int = 320
    num_hidden_layers: int = 6
    num_attention_heads: int = 20
    intermediate_size: int = 1280
    backend: Backend = "auto"
    vocab_size: int = VOCABULARY
    pad_token_id: int = ESM2.pad
    mask_token_id: int = ESM2.id("<mask>")

    @property
    def options(self) -> ModelOptions:
        return ModelOptions(
            layers=self.num_hidden_layers,
            hidden_size=self.hidden_size,
            heads=self.num_attention_heads,
            ffn_size=self.intermediate_size,
        )


class ThdpackEsmForMaskedLM(PreTrainedModel):
    """ESM-2 on padded rows, or on one packed row. Backend te needs a GPU."""

    config_class = ThdpackEsmConfig
    config: ThdpackEsmConfig
    model: Esm2
    _keep_in_fp32_modules_strict = {"inv_freq"}  # noqa: RUF012 (as transformers has it)

    def __init__(self, config: ThdpackEsmConfig) -> None:
        super().__init__(config)
        device = torch.empty(0).device
        target = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
        compute = precision.resolve(
            ComputeOptions(backend=config.backend, precision="fp32"), target
        )
        self.model = build(config.options, compute)
        # from_pretrained builds models on the meta device, and loads values afterwards
        if device.type != "meta":
            fill(
                self.model,
                {},
                seed=0,
                topology=single_process(target if compute.backend == "te" else device),
            )
        self.post_init()  # type: ignore[no-untyped-call]  # transformers has no types here

    def _init_weights(self, module: nn.Module) -> None:
        """Initialize tensors that a checkpoint lacks."""
        if module is self.model:
            for name, tensor in self.model.named_tensors():
                if not getattr(tensor, "_is_hf_initialized", False):
                    with torch.no_grad():
                        tensor.copy_(
                            draw(
                                name,
                                tensor.shape,
                                self.config.options,
                                seed=0,
                                device=tensor.device,
                            )
                        )

    @classmethod
    def from_esm(cls, folder: str | Path, **config: Any) -> Self:
        """Return a model with the weights of an EsmForMaskedLM in a folder.

        Raises:
            InputError: the folder has no such model, or the model is not ESM-2.
        """
        options, tensors = huggingface.load(folder)
        model = cls(
            cls.config_class(
                hidden_size=options.hidden_size,
                num_hidden_layers=options.layers,
                num_attention_heads=options.heads,
                intermediate_size=options.ffn_size,
                **config,
            )
        )
        with torch.no_grad():
            for name, tensor in model.model.named_tensors():
                tensor.copy_(tensors.get(name, tensor))
        return model

    def export_esm(self, folder: str | Path, *, max_seq_len: int = 1024) -> None:
        """Write a plain EsmForMaskedLM, which transformers loads without this package."""
        tensors = {name: tensor.detach().cpu() for name, tensor in self.model.named_tensors()}
        huggingface.export(folder, tensors, self.config.options, max_seq_len=max_seq_len)

    # torch declares overloads for the argument `destination`, which this method does not support
    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]  # see above
        """Return the tensors without Transformer Engine's `_extra_state`, which is a pickle."""
        return {
            name: value
            for name, value in super().state_dict(*args, **kwargs).items()
            if not name.endswith("_extra_state")
        }

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        cu_seq_lens_q: Tensor | None = None,
        max_length_q: int | None = None,
        **_: Any,
    ) -> MaskedLMOutput:
        """Return the logits, and the loss if the caller passes labels.

        Args:
            input_ids: int64[B, S], B rows of S tokens.
            attention_mask: int64[B, S], 1 for tokens, 0 for padding. Padding must be on the right.
            labels: int64[B, S], original tokens; -100 at positions that are not predicted.
            cu_seq_lens_q: integers, cumulative lengths of the sequences in a packed row (B = 1);
                None if rows are padded.
            max_length_q: length of the longest sequence in a packed row.
                `pipeline.reader.hugging_face` returns cu_seq_lens_q and max_length_q.
        Raises:
            ValueError: padding is not on the right, or there are several packed rows.
        """
        rows, columns = input_ids.shape
        if cu_seq_lens_q is not None:
            if rows != 1:
                raise ValueError(
                    f"input_ids has {rows} rows: with cu_seq_lens_q, pass one packed row"
                )
            sequences = SequenceLayout(cu_seq_lens_q.int(), max_length_q or columns)
        else:
            mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
            if bool((mask.diff(dim=1) > 0).any()):
                raise ValueError("attention_mask has padding before tokens: pad on the right")
            sequences = SequenceLayout.padded(mask.sum(1), columns)
        with torch.cuda.device_of(
            input_ids
        ):  # Triton launches kernels on the current device, not on the device of the tensors.
            logits = self.model(input_ids.flatten(), sequences)[:, :VOCABULARY].unflatten(
                0, (rows, columns)
            )
        loss = None if labels is None else F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return MaskedLMOutput(loss=loss, logits=logits)


AutoConfig.register(ThdpackEsmConfig.model_type, ThdpackEsmConfig)
AutoModelForMaskedLM.register(ThdpackEsmConfig, ThdpackEsmForMaskedLM)
