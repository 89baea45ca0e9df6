"""Refuse words of a command line that have a likely meaning, and name the remedy."""

from __future__ import annotations

import os
import re
from typing import Final

from schemas.text.option_help import InvalidOptionError
from schemas.text.option_words import unexpanded

_SHARE: Final = re.compile(r",?(train|valid|test)=")


def refuse_slurm_executor(words: list[str]) -> None:
    """Refuse `--executor slurm`, because a build runs on Slurm as array jobs.

    Raises:
        InvalidOptionError: the words hold this option.
    """
    if "--executor=slurm" in words or "slurm" in (
        following for word, following in zip(words, words[1:], strict=False) if word == "--executor"
    ):
        raise InvalidOptionError(
            "--executor is 'slurm', expected processes or ray: on Slurm, use `thdpack plan-tasks`, "
            "which divides a build into array jobs; deploy/slurm/preprocess.sbatch runs all of them"
        )


def refuse_split_words(words: list[str]) -> None:
    """Refuse blanks between the shares of --split, as in `--split train=0.9 valid=0.1`.

    Raises:
        InvalidOptionError: words after --split hold more shares.
    """
    for index, word in enumerate(words):
        begin = index + 1 if word == "--split" else index
        if word != "--split" and not word.startswith("--split="):
            continue
        end = begin + 1
        while end < len(words) and _SHARE.match(words[end]):
            end += 1
        if end > begin + 1:
            shares = ",".join(word.strip(",") for word in words[begin:end])
            shares = shares.removeprefix("--split=")
            raise InvalidOptionError(
                f"--split has blanks between its shares: write commas, as in --split {shares}"
            )


def refuse_unexpanded_inputs(words: list[str]) -> None:
    """Refuse arguments that begin with ~/ because the shell has not expanded them, unless a file
    has such a name. `check_words` refuses such values of options.

    Raises:
        InvalidOptionError: there is such a word.
    """
    for previous, word in zip(["", *words], words, strict=False):
        is_value = previous.startswith("--") and "=" not in previous
        if word.startswith("~/") and not is_value and not os.path.lexists(word):
            raise InvalidOptionError(unexpanded(word))
