"""The card of an exported model, and fine-tuning of an exported model with plain peft."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
import yaml

from tests.helpers.models import SMALL, initialized
from trainer.config import TrainOptions
from trainer.config.presets import PRESETS
from trainer.model import huggingface
from trainer.model_card import base_model, model_card, write_card


def _options(*data: str) -> TrainOptions:
    preset: TrainOptions = PRESETS["esm2-tiny"][1]
    return replace(preset, data=replace(preset.data, data=data))


def test_the_card_has_the_header_that_the_hub_expects_and_no_credentials() -> None:
    options = _options("hf://datasets/user/proteins@v1=0.5", "s3://key:secret/x@bucket/set=0.5")
    text = model_card(options, digests=("a" * 32, "b" * 32), step=8, tokens=1000, loss=2.5)
    _, header, body = text.split("---\n", 2)
    facts = yaml.safe_load(header)
    assert facts["library_name"] == "transformers"
    assert facts["datasets"] == ["user/proteins"]
    assert "license" not in facts
    assert "base_model" not in facts
    assert "| validation loss | 2.5000 |" in body
    assert "| tokens, without padding | 1,000 |" in body
    assert f"`{'a' * 32}`" in body
    assert "secret" not in text


def test_only_a_model_in_the_cache_of_the_hub_is_a_base_model() -> None:
    cache = "/home/me/.cache/huggingface/hub/models--facebook--esm2_t6_8M_UR50D/snapshots/c731"
    assert base_model(cache) == "facebook/esm2_t6_8M_UR50D"
    assert base_model("runs/export") is None
    assert base_model("") is None


def test_an_edited_card_is_kept(tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    write_card(tmp_path, "one")
    write_card(tmp_path, "two")
    assert card.read_text().startswith("two\n")
    card.write_text(f"license: mit\n{card.read_text()}")
    write_card(tmp_path, "three")
    assert card.read_text().startswith("license: mit\ntwo\n")


def test_plain_peft_fine_tunes_an_export(tmp_path: Path, numerics: None) -> None:
    from peft import LoraConfig, get_peft_model  # slow to import, and no other test needs it
    from transformers import AutoModelForMaskedLM

    tensors = {name: tensor.detach() for name, tensor in initialized()[0].named_tensors()}
    huggingface.export(tmp_path, tensors, SMALL, max_seq_len=64)
    write_card(tmp_path, "card")
    base = AutoModelForMaskedLM.from_pretrained(tmp_path)
    model = get_peft_model(base, LoraConfig(r=4, target_modules=["query", "value"]))
    before = {name: each.detach().clone() for name, each in model.named_parameters()}
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    ids = torch.randint(4, 24, (2, 16))
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    changed = {n for n, each in model.named_parameters() if not torch.equal(each, before[n])}
    assert torch.isfinite(loss)
    assert changed
    assert all("lora_" in name for name in changed)
