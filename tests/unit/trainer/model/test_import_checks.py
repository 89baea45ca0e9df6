"""Hugging Face models are refused if this trainer would ignore weights or compute differently."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from schemas.errors import InputError
from tests.helpers.models import SMALL, esm
from trainer.model import huggingface

HIDDEN = SMALL.hidden_size
EMBEDDING = "esm.embeddings.word_embeddings.weight"
NORM = "esm.encoder.layer.0.LayerNorm"


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a model with transformers. Tests do not change it."""
    folder = tmp_path_factory.mktemp("esm")
    esm(SMALL).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """Copy the saved model."""
    return shutil.copytree(saved, tmp_path / "esm")


def configured(**changes: object) -> Callable[[Path], None]:
    """Return a function that changes keys of config.json, and removes keys with the value `...`."""

    def edit(folder: Path) -> None:
        config = {**json.loads((folder / "config.json").read_text()), **changes}
        (folder / "config.json").write_text(
            json.dumps({key: value for key, value in config.items() if value is not ...})
        )

    return edit


def weighted(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], None]:
    """Return a function that changes the saved weights."""

    def edit(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        change(tensors)
        save_file(
            {name: tensor.clone() for name, tensor in tensors.items()}, folder / "model.safetensors"
        )

    return edit


def indexed(name: object) -> Callable[[Path], None]:
    return lambda folder: (
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"weight_map": {"a": name}})
        )
        and None
    )


def test_models_saved_by_transformers_are_imported(folder: Path) -> None:
    options, tensors = huggingface.load(folder)
    assert options == SMALL
    assert tensors["embedding"].shape == (64, HIDDEN)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (configured(model_type="nv_esm"), "with BioNeMo's convert_esm_te_to_hf first"),
        (configured(is_decoder=True), "is_decoder True: this trainer supports bidirectional"),
        (configured(add_cross_attention=True), "add_cross_attention True"),
        (configured(emb_layer_norm_before=True), "emb_layer_norm_before True"),
        (configured(is_folding_model=True), "is_folding_model True"),
        (configured(position_embedding_type="absolute"), "position_embedding_type 'absolute'"),
        (configured(position_embedding_type=...), "position_embedding_type None"),
        (
            configured(hidden_dropout_prob=0.1),
            "hidden_dropout_prob 0.1: this trainer has no dropout",
        ),
        (
            configured(hidden_dropout_prob=...),
            r"hidden_dropout_prob 0\.1 \(the key is missing, and transformers' default is 0\.1\)",
        ),
        (configured(attention_probs_dropout_prob=0.2), "attention_probs_dropout_prob 0.2"),
        (configured(rope_scaling={"rope_type": "linear", "factor": 2.0}), "rope_scaling"),
        (configured(pruned_heads={"0": [1]}), "pruned_heads"),
        (configured(tie_word_embeddings=False), "the decoder is not tied"),
        (
            weighted(lambda t: t.update({"lm_head.decoder.weight": t[EMBEDDING] + 1})),
            "the decoder is not tied",
        ),
        (
            weighted(lambda t: t.update({"lm_head.decoder.bias": t["lm_head.bias"] + 1})),
            "second bias",
        ),
        (
            weighted(lambda t: t.update({"esm.embeddings.layer_norm.weight": torch.ones(HIDDEN)})),
            r"such as esm\.embeddings\.layer_norm\.weight",
        ),
        (
            weighted(lambda t: t.update({"classifier.dense.weight": torch.ones(2, 2)})),
            r"classifier\.dense\.weight",
        ),
        (
            weighted(lambda t: t.update({f"{NORM}.weight": t[f"{NORM}.gamma"]})),
            r"twice, as .*LayerNorm\.weight and as",
        ),
        (weighted(lambda t: t[f"{NORM}.beta"].fill_(torch.nan)), "not finite"),
        (
            weighted(lambda t: t.update({f"{NORM}.beta": torch.zeros(3)})),
            r"shape \[3\], but config\.json requires \[64\]",
        ),
        (weighted(lambda t: t.update({EMBEDDING: torch.zeros(1, HIDDEN)})), "json requires"),
        (
            weighted(
                lambda t: t.update(
                    {"esm.encoder.layer.0.attention.self.query.weight": torch.zeros(3)}
                )
            ),
            "do not have the shapes",
        ),
        (configured(num_hidden_layers="2"), "Expected `int`, got `str`"),
        (configured(num_hidden_layers=...), "config.json has no num_hidden_layers"),
        (configured(num_hidden_layers=0), "at least 1"),
        (
            configured(hidden_size=10**12, num_attention_heads=10**11),
            "do not have the shapes|config.json requires",
        ),
        (configured(num_hidden_layers=10**12), "is missing"),
        (lambda folder: (folder / "config.json").write_text("[]"), "is not a JSON object"),
        (
            lambda folder: (folder / "config.json").write_text("[" * 100_000),
            "config.json is not JSON, so",
        ),
        (
            lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 100),
            "cannot be read",
        ),
        (indexed("../other.safetensors"), "not a file of the folder"),
        (indexed(3), "not a file of the folder"),
        (
            lambda folder: (folder / "model.safetensors.index.json").write_text("3"),
            "index.json cannot be read",
        ),
    ],
)
def test_models_that_the_trainer_would_read_in_part_or_compute_differently_are_refused(
    folder: Path, spoil: Callable[[Path], object], message: str
) -> None:
    spoil(folder)
    with pytest.raises(InputError, match=message):
        huggingface.load(folder)


def older(tensors: dict[str, Tensor]) -> None:
    """Rename parameters of norms to gamma and beta, as in some versions of transformers.

    Also add tensors that transformers ignores.
    """
    for name in [name for name in tensors if "LayerNorm" in name or "layer_norm" in name]:
        tensors[name.replace(".weight", ".gamma").replace(".bias", ".beta")] = tensors.pop(name)
    tensors["esm.embeddings.position_ids"] = torch.arange(1026)[None]
    tensors["esm.embeddings.position_embeddings.weight"] = torch.ones(1026, HIDDEN)
    tensors["lm_head.decoder.weight"] = tensors[EMBEDDING]


def newer(tensors: dict[str, Tensor]) -> None:
    """Rename parameters of norms to weight and bias, as in other versions of transformers."""
    for name in list(tensors):
        tensors[name.replace(".gamma", ".weight").replace(".beta", ".bias")] = tensors.pop(name)


def test_parameters_of_norms_may_have_older_or_newer_names_and_unused_tensors_are_ignored(
    folder: Path,
) -> None:
    expected = huggingface.load(folder)[1]
    for change in (newer, older):
        weighted(change)(folder)
        found = huggingface.load(folder)[1]
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    from transformers import EsmForMaskedLM

    model = EsmForMaskedLM.from_pretrained(folder)
    # transformers ties the decoder to the embedding
    assert torch.equal(model.lm_head.decoder.weight, model.esm.embeddings.word_embeddings.weight)


def test_the_error_for_the_folder_of_a_run_names_the_folder_of_its_model(
    folder: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    with pytest.raises(InputError, match="no model yet, because it writes its model when it ends"):
        huggingface.load(run)
    folder.rename(run / "export")
    with pytest.raises(InputError, match=f"use {run / 'export'}, which has the run's model"):
        huggingface.load(run)
    huggingface.load(run / "export")


def test_all_wrong_keys_of_config_json_are_reported_together(folder: Path) -> None:
    configured(hidden_size="big", hidden_dropout_prob=0.1, token_dropout=False, rope_theta="x")(
        folder
    )
    with pytest.raises(InputError) as refused:
        huggingface.load(folder)
    first, *lines, remedy = str(refused.value).splitlines()
    assert first.endswith(": config.json has 4 values that cannot be used:")
    assert [line.split()[0] for line in lines] == [
        "token_dropout",
        "hidden_dropout_prob",
        "hidden_size",
        "rope_theta",
    ]
    assert remedy == "To train without dropout, set hidden_dropout_prob to 0.0 in config.json"


def test_the_remedy_for_dropout_is_given_once(folder: Path) -> None:
    configured(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.2)(folder)
    with pytest.raises(InputError) as refused:
        huggingface.load(folder)
    assert str(refused.value).splitlines()[1:] == [
        "  hidden_dropout_prob 0.1: this trainer has no dropout",
        "  attention_probs_dropout_prob 0.2: this trainer has no dropout",
        "To train without dropout, set hidden_dropout_prob and attention_probs_dropout_prob to 0.0 "
        "in config.json",
    ]


def test_for_a_model_of_another_type_the_error_names_only_the_type(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InputError, match=r"has model_type 'bert', but ESM-2 has 'esm'$"):
        huggingface.load(folder)
