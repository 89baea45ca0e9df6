"""Settings of an inference run. They decide the content of its parts, so an interrupted run
continues only with the same settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from pipeline.storage.read_manifest import read_manifest
from schemas.errors import OptionError, ThdpackError
from schemas.text.option_checks import flag
from schemas.untrusted_json import decoded
from trainer.checkpoints.atomic_write import write
from trainer.inference.parts import PARTS

SETTINGS: Final = "settings.json"
"""File of the settings, among the parts."""
SUMMARY: Final = "run.json"
"""The same file in the output folder, once the run is complete."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of an output folder.

    command: embed or score.
    model: digest of the weights.
    dataset: digest of the dataset's manifest.
    inputs, input_bytes: DATA before a temporary dataset was built from it; see `Inputs`.
    unit_buckets: number of buckets in a unit.
    unit_pieces: number of units for the same buckets.
    row_tokens, max_seq_len, overlap, backend, precision, format: options, with `auto` resolved.
    more: options of the command, by name.
    """

    command: str
    model: str
    dataset: str
    unit_buckets: int
    unit_pieces: int
    row_tokens: int
    max_seq_len: int
    overlap: int
    backend: str
    precision: str
    format: str
    more: dict[str, str]
    inputs: str = ""
    input_bytes: int = 0

    def options(self) -> dict[str, Any]:
        """Return the value of each setting that an option decides, by option."""
        found = msgspec.structs.asdict(self)
        del found["command"], found["model"], found["dataset"]
        del found["inputs"], found["input_bytes"]
        del found["unit_buckets"], found["unit_pieces"]
        more = found.pop("more")
        return {flag(name): value for name, value in {**found, **more}.items()}


def read_settings(path: Path) -> Settings | None:
    """Return the settings in a file; None if there is no file.

    Raises:
        ThdpackError: the file cannot be read.
    """
    try:
        return decoded(path.read_bytes(), Settings)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ThdpackError(
            f"{path} cannot be read ({error}): remove the folder {path.parent} to begin again"
        ) from error


def settings_of(out: Path) -> Settings | None:
    """Return the settings of an output folder, of an interrupted or a complete run; None if it has
    none.

    Raises:
        ThdpackError: the settings cannot be read.
    """
    return read_settings(out / PARTS / SETTINGS) or read_settings(out / SUMMARY)


def write_settings(path: Path, settings: Settings) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, msgspec.json.format(msgspec.json.encode(settings), indent=1))


def check_same_settings(out: Path, before: Settings, now: Settings, url: str = "") -> None:
    """Check that a run can continue another run's work.

    Args:
        url: folder or URL of the dataset, whose generations an error names; "" for a temporary
            dataset.
    Raises:
        OptionError: the settings differ. The message names the differences.
    """
    problems = []
    if before.command != now.command:
        problems.append(f"it is of `thdpack {before.command}`")
    if before.model != now.model:
        problems.append("the weights of MODEL were different")
    generations = _generations(url) if url and before.dataset != now.dataset else {}
    began = generations.get(before.dataset)
    if began is not None:
        problems.append(f"it read generation {began} of DATA")
    elif before.dataset != now.dataset:
        problems.append("DATA was different")
    ours = now.options()
    problems += [
        f"{name} was {value}, and is now {ours.get(name, 'not given')}"
        for name, value in before.options().items()
        if ours.get(name) != value
    ]
    if began is not None and len(problems) == 1:
        reads = generations[now.dataset]
        raise OptionError(
            f"{out} holds results of generation {began} of DATA, but this command reads generation "
            f"{reads}. To use generation {began}, add --generation {began}. To use generation "
            f"{reads}, choose another --out"
        )
    if problems:
        raise OptionError(
            f"{out} holds results of another run: {'; '.join(problems)}. Use the same command, or "
            "choose another --out"
        )


def _generations(url: str) -> dict[str, int]:
    """Return the number of each generation of a dataset, by the digest of its manifest."""
    latest = read_manifest(url)
    digests = [*(entry.digest for entry in latest.history), latest.digest]
    return {digest: number for number, digest in enumerate(digests, start=1)}
