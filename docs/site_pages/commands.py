"""Pages of the commands, made of what `thdpack COMMAND --help` prints."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from unittest.mock import patch

from pipeline.cli.arguments import short_help
from pipeline.cli.main import run_command
from schemas.models import ESM2_MODELS
from trainer.config.commands import PARSERS

_WIDTH = 100
"""Columns of the help text. tyro prints wider text in two columns."""


def command_pages() -> dict[str, str]:
    """Return the name and the Markdown of each command's page."""
    commands = re.findall(r"^  (\S+)  ", short_help(), flags=re.MULTILINE)
    return {f"{command}.md": command_page(command, help_of(command)) for command in commands}


def help_of(command: str) -> str:
    """Return the text that `thdpack COMMAND --help` prints, 100 columns wide.

    `train` has a parser for each preset. Its options are those of the first preset.
    """
    words = ["--help"]
    if command == "train":
        words = [next(iter(ESM2_MODELS)), *words]
    text = io.TextIOWrapper(
        io.BytesIO(), encoding="utf-8"
    )  # not StringIO: tyro asks for the encoding
    plain = {"COLUMNS": str(_WIDTH), "NO_COLOR": "1"}
    with patch.dict(os.environ, plain), redirect_stdout(text):
        try:
            if command in PARSERS:
                PARSERS[command](words)
            else:
                run_command([command, *words])
        except SystemExit:
            pass  # every parser leaves after it has printed help
    text.seek(0)
    return text.read()


def command_page(command: str, text: str) -> str:
    """Return a command's help text as Markdown, with a heading for each option."""
    head, *boxes = re.split(r"^╭─+ *", text, flags=re.MULTILINE)
    usage, _, described = head.partition("\n\n")
    usage = " ".join(usage.split()).removeprefix("usage: ")
    parts = [f"# thdpack {command}", f"```text\n{usage}\n```", *_paragraphs(described)]
    for box in boxes:
        title = box.partition(" ─")[0]
        lines = [line[2:-1].rstrip() for line in box.split("\n") if line.startswith("│")]
        parts += [f"## {title.capitalize()}", *_options(lines)]
    return "\n\n".join(parts) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in filter(None, text.strip().split("\n\n")):
        example, colon, command = paragraph.partition(": ")
        if example == "Example" and colon:
            yield f"Example:\n\n```text\n{' '.join(command.split())}\n```"
        else:
            yield _escaped(" ".join(paragraph.split()))


def _options(lines: list[str]) -> Iterator[str]:
    """Yield the Markdown of a box: its description, then a heading and a text for each option.

    The name of an option begins in the first column. Its text begins after two spaces, or in the
    next line.
    """
    texts: list[tuple[str, list[str]]] = [("", [])]
    described = any(re.fullmatch("─+", line) for line in lines)
    for line in lines:
        if re.fullmatch("─+", line):
            described = False
        elif described or line.startswith(" "):
            texts[-1][1].append(line.strip())
        elif line:
            name, _, text = line.partition("  ")
            texts.append((name, [text.strip()]))
    for name, words in texts:
        if name:
            yield f"### `{name}`"
        if text := " ".join(filter(None, words)):
            yield _escaped(text)


def _escaped(text: str) -> str:
    """Escape characters that have a meaning in Markdown, outside of code."""
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(
        piece if number % 2 else re.sub(r"([\\*_\[\]#])", r"\\\1", piece).replace("<", "&lt;")
        for number, piece in enumerate(pieces)
    )
