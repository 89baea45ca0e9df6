"""Models in Hugging Face's format: import, export and the auto classes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from schemas.errors import InputError
from schemas.vocabulary import ESM2
from tests.helpers.models import SMALL, initialized
from trainer.model import huggingface


def exported(tmp_path: Path) -> Path:
    built, _ = initialized()
    huggingface.export(
        tmp_path / "esm",
        {name: tensor.detach() for name, tensor in built.named_tensors()},
        SMALL,
        max_seq_len=256,
    )
    return tmp_path / "esm"


def edit(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: edit(folder, token_dropout=False), "token_dropout False, but ESM-2 has"),
        (
            lambda folder: edit(folder, position_embedding_type="absolute"),
            "position_embedding_type",
        ),
        (lambda folder: edit(folder, num_hidden_layers=3), "not those of an EsmForMaskedLM"),
        (lambda folder: (folder / "model.safetensors").unlink(), "save_pretrained"),
        (
            lambda folder: (folder / "config.json").write_text("{"),
            r"config.json is not JSON \(line 1\), so it is damaged or incomplete: give the folder",
        ),
        (lambda folder: (folder / "config.json").unlink(), "the folder has no config.json: give"),
    ],
)
def test_a_folder_without_a_valid_esm2_model_is_refused_with_a_reason(
    tmp_path: Path, spoil: Callable[[Path], object], message: str
) -> None:
    folder = exported(tmp_path)
    spoil(folder)
    with pytest.raises(InputError, match=message):
        huggingface.load(folder)


def test_the_umask_decides_who_may_read_an_export(tmp_path: Path) -> None:
    (tmp_path / "esm").mkdir()
    # a run that is killed during an export leaves such a file
    (tmp_path / "esm" / "model.safetensors.partial").touch(0o600)
    before = os.umask(0o027)
    try:
        folder = exported(tmp_path)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o640}


def test_large_exports_are_split_into_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface, "_SHARD_BYTES", 100_000)
    folder = exported(tmp_path)
    assert len(list(folder.glob("model-*.safetensors"))) > 2
    options, tensors = huggingface.load(folder)
    assert options == SMALL
    assert torch.equal(
        tensors["layers.1.proj.weight"],
        dict(initialized()[0].named_tensors())["layers.1.proj.weight"],
    )
    from transformers import EsmForMaskedLM

    assert torch.equal(
        EsmForMaskedLM.from_pretrained(folder).esm.encoder.layer[1].attention.output.dense.weight,
        tensors["layers.1.proj.weight"],
    )


def test_thdpack_esm_for_masked_lm_equals_esm_for_masked_lm_and_loads_through_auto_classes(
    tmp_path: Path,
) -> None:
    from transformers import AutoModelForMaskedLM, EsmForMaskedLM

    from trainer.model.hf_model import ThdpackEsmConfig, ThdpackEsmForMaskedLM

    folder = exported(tmp_path)
    plain, ours = (
        EsmForMaskedLM.from_pretrained(folder).eval(),
        ThdpackEsmForMaskedLM.from_esm(folder, backend="torch"),
    )
    rows = [torch.tensor([ESM2.cls, *range(4, 4 + n), ESM2.eos]) for n in (9, 3)]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=ESM2.pad)
    mask = (ids != ESM2.pad).long()
    labels = ids.masked_fill(mask == 0, -100)
    expected, found = (
        plain(input_ids=ids, attention_mask=mask, labels=labels),
        ours(input_ids=ids, attention_mask=mask, labels=labels),
    )
    # Measured differences are at most 5 roundings (2^-24) of the largest logit. A wrong scale
    # causes a difference of 1e-3.
    rounding = 100 * 2**-24 * float(expected.logits[mask.bool()].detach().abs().max())
    torch.testing.assert_close(
        found.logits[mask.bool()], expected.logits[mask.bool()], rtol=0, atol=rounding
    )
    torch.testing.assert_close(found.loss, expected.loss)
    cu_seqlens = torch.tensor([0, 11, 16], dtype=torch.int32)
    packed = ours(
        input_ids=torch.cat(rows)[None],
        cu_seq_lens_q=cu_seqlens,
        cu_seq_lens_k=cu_seqlens,
        max_length_q=11,
        max_length_k=11,
    )
    torch.testing.assert_close(packed.logits[0], found.logits[mask.bool()], rtol=0, atol=rounding)
    with pytest.raises(ValueError, match="pad on the right"):
        ours(input_ids=ids.flip(1), attention_mask=mask.flip(1))

    ours.save_pretrained(tmp_path / "mine")
    again = AutoModelForMaskedLM.from_pretrained(tmp_path / "mine")
    assert type(again) is ThdpackEsmForMaskedLM
    assert torch.equal(again(input_ids=ids, attention_mask=mask).logits, found.logits)
    half = AutoModelForMaskedLM.from_pretrained(tmp_path / "mine", dtype=torch.bfloat16)
    assert half.model.embedding.dtype == torch.bfloat16
    assert torch.equal(half.model.inv_freq, ours.model.inv_freq)
    ours.export_esm(tmp_path / "back")
    assert torch.equal(
        huggingface.load(tmp_path / "back")[1]["embedding"],
        huggingface.load(folder)[1]["embedding"],
    )
    fresh = ThdpackEsmForMaskedLM(
        ThdpackEsmConfig(
            hidden_size=64,
            num_hidden_layers=1,
            num_attention_heads=4,
            intermediate_size=64,
            backend="torch",
        )
    )
    # the standard deviation of 4,096 draws has a standard error of 0.02 / √8192 = 2.2e-4
    assert abs(float(fresh.model.layers[0].proj.weight.detach().std()) - 0.02) < 6 * 2.2e-4
    assert bool(torch.isfinite(fresh(input_ids=ids).logits[0]).all())


def test_thdpack_esm_for_masked_lm_computes_on_the_device_of_its_inputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Triton launches kernels on the current device, so this must be the device of the inputs."""
    from trainer.model.hf_model import ThdpackEsmConfig, ThdpackEsmForMaskedLM

    built = ThdpackEsmForMaskedLM(
        ThdpackEsmConfig(
            hidden_size=64,
            num_hidden_layers=1,
            num_attention_heads=4,
            intermediate_size=64,
            backend="torch",
        )
    )
    current: list[torch.Tensor] = []
    seen: list[bool] = []

    @contextmanager
    def device_of(tensor: torch.Tensor) -> Iterator[None]:
        current.append(tensor)
        yield
        current.pop()

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    built.model.register_forward_hook(lambda *_: seen.append(bool(current) and current[0] is ids))
    ids = torch.full((1, 5), 4)
    built(input_ids=ids)
    assert seen == [True]
