"""Everything that can go wrong with a user's data, each error naming the culprit and the rule."""

from __future__ import annotations

from schemas.redact import without_credentials


class ThdpackError(Exception):
    """Base of all errors that a user can cause and mend; the command line prints it in one line and exits with 1.

    What it says never holds credentials, whatever URL or store's message went into it.
    """

    def __str__(self) -> str:
        return without_credentials(super().__str__())


class InputError(ThdpackError):
    """An input cannot be read: `source:line: message`, like a compiler.

    source: the file or URL as the user named it.
    line: the file's line, from 1; None where no line can be named.
    """

    def __init__(self, message: str, *, source: str, line: int | None = None) -> None:
        super().__init__(message, source, line)
        self.message = message
        self.source = source
        self.line = line

    def __str__(self) -> str:
        source = without_credentials(self.source)
        place = source if self.line is None else f"{source}:{self.line}"
        return f"{place}: {without_credentials(self.message)}"

    def __reduce__(
        self,
    ) -> tuple[
        object, ...
    ]:  # crosses process boundaries: keyword-only arguments do not by themselves
        return _rebuild, (type(self), self.message, self.source, self.line)


def _rebuild(kind: type[InputError], message: str, source: str, line: int | None) -> InputError:
    return kind(message, source=source, line=line)


class FastaError(InputError):
    """A FASTA file breaks a rule of the format."""


class DatasetError(ThdpackError):
    """A dataset is missing, unfinished, damaged, or another one than asked for."""


class ManifestError(DatasetError):
    """manifest.json is not one that this version can trust."""


class BuildError(ThdpackError):
    """A build cannot go on: the disk is full, a worker was killed, another build runs here."""


class DamagedSpillError(BuildError):
    """A work file between two tasks is not what was written; the task that wrote it has to run again.

    name: the file's, in the work folder.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return f".build: {self.name} is not what was written: a disk, memory or another program changed it; run the same command to write it again"


class CheckpointError(ThdpackError):
    """A checkpoint is missing, damaged, or another run's."""


class StateError(DatasetError):
    """A reader's state belongs to another dataset, split, seed or version."""
