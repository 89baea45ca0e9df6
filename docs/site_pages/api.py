"""Pages of the Python API: a directive of mkdocstrings for each public name."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

_OF_READER: Final = (
    "pipeline.reader.torch.shard_dataset.ShardDataset",
    "pipeline.reader.torch.mask_tokens.MaskTokens",
    "schemas.shard.Bucket",
)
"""Public classes that are not in `pipeline.reader.__all__`: two need torch, and Bucket is defined
elsewhere."""
_TRAINER: Final = (
    "trainer.train.main",
    "trainer.embed.main",
    "trainer.score.main",
    "trainer.model.hf_model.ThdpackEsmForMaskedLM",
)
"""Functions and classes of the trainer for use from Python. They are named as text here, because
importing them needs torch."""
_READER: Final = (
    "Public names of `pipeline.reader`. `thdpack` exports `ShardReader` and `Mixture`, too. "
    "[The reader's page](../reader.md) explains how to use them."
)
_TRAINER_TEXT: Final = (
    "Entry points of the trainer. They need the extra `train`, and the model class needs the extra "
    "`hf`, too. [The training guide](../../guides/training.md) explains how to use them."
)
_ERRORS: Final = "Exceptions that thdpack raises. All are subclasses of `ThdpackError`."


def api_pages() -> dict[str, str]:
    """Return the name and the Markdown of each page. mkdocstrings reads the docstrings later."""
    reader = import_module("pipeline.reader")
    public = [_path(getattr(reader, name)) for name in sorted(reader.__all__)]
    errors = [
        _path(value)
        for value in vars(import_module("schemas.errors")).values()
        if isinstance(value, type) and value.__module__ == "schemas.errors"
    ]
    return {
        "reader.md": _page("Reader", _READER, [*public, *_OF_READER]),
        "trainer.md": _page("Trainer", _TRAINER_TEXT, list(_TRAINER)),
        "errors.md": _page("Errors", _ERRORS, errors),
    }


def _path(value: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _page(title: str, text: str, names: list[str]) -> str:
    return "\n\n".join([f"# {title}", text, *(f"::: {name}" for name in names)]) + "\n"
