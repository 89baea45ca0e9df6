"""Parsers of the trainer's commands, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from trainer.config.command_line import parse as parse_train
from trainer.config.inference_options import parse_embed
from trainer.config.score_options import parse_score

PARSERS: Final[Mapping[str, Callable[[Sequence[str]], Any]]] = {
    "train": parse_train,
    "embed": parse_embed,
    "score": parse_score,
}
"""Each parser returns options, or raises SystemExit (code 0 for --help, 2 for an error)."""
