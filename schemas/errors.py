"""Errors that a user can cause. Each message names the culprit and the rule."""

from __future__ import annotations

from typing import Self

from schemas.text.redact import without_credentials


class ThdpackError(Exception):
    """Base of all errors that a user can cause and repair.

    The command line prints the message as one line, and exits with 1. Credentials are removed from
    the message, including those in quoted URLs and in quoted errors of stores.
    """

    def __str__(self) -> str:
        return without_credentials(super().__str__())


class OptionError(ThdpackError):
    """The value of an option is wrong, or the option cannot be used here. The command line exits
    with 2."""


class InputError(ThdpackError):
    """An input cannot be read or breaks a rule. The printed form is `source:line: message; remedy`,
    as for compiler errors.

    source: file or URL, as the user named it
    line: number of the line in the file, from 1; None if it is unknown
    remedy: advice that names options of `thdpack preprocess`; "" if there is none. A command that
        lacks these options replaces the remedy.
    """

    def __init__(
        self, message: str, *, source: str, line: int | None = None, remedy: str = ""
    ) -> None:
        super().__init__(message, source, line, remedy)
        self.message = message
        self.source = source
        self.line = line
        self.remedy = remedy

    def __str__(self) -> str:
        source = without_credentials(self.source)
        place = source if self.line is None else f"{source}:{self.line}"
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{place}: {without_credentials(self.message + remedy)}"

    def changed(
        self, *, message: str | None = None, source: str | None = None, remedy: str | None = None
    ) -> Self:
        """Return a copy with other texts. A text that is None stays the same."""
        return type(self)(
            self.message if message is None else message,
            source=self.source if source is None else source,
            line=self.line,
            remedy=self.remedy if remedy is None else remedy,
        )

    def __reduce__(self) -> tuple[object, ...]:
        # pickle does not restore keyword-only arguments by itself
        return _rebuild, (type(self), self.message, self.source, self.line, self.remedy)


def _rebuild(
    kind: type[InputError], message: str, source: str, line: int | None, remedy: str
) -> InputError:
    return kind(message, source=source, line=line, remedy=remedy)


class MissingPackageError(InputError, OptionError):
    """A URL needs a package that is not installed. The command line exits with 2."""


class UrlError(InputError, OptionError):
    """A URL is misspelt or names no bucket. The command line exits with 2."""


class MissingInputError(InputError, OptionError):
    """An input does not exist, or no file matches a glob. The command line exits with 2."""


class NoResidueError(InputError):
    """None of the inputs of a build holds a residue. The same command would fail again."""


class FastaError(InputError):
    """A FASTA file breaks a rule of the format."""


class DatasetError(ThdpackError):
    """A dataset is missing, unfinished or damaged, or another dataset was expected."""


class StoreError(DatasetError):
    """A store forbids to read or write a file, is full, or did not answer in all attempts. The file
    itself may be undamaged."""


class NothingKeptError(DatasetError):
    """A build kept no record. The same command would fail again."""


class ManifestError(DatasetError):
    """manifest.json is missing or damaged, or this thdpack cannot read its format version."""


class NoGenerationError(ManifestError, OptionError):
    """A dataset has no such generation, or the generation was removed. The command line exits with
    2."""


class OtherDatasetError(DatasetError, OptionError):
    """The output folder holds a dataset of other inputs or options. The command line exits with
    2."""


class SettingError(DatasetError, OptionError):
    """A setting of an object store, such as AWS_PROFILE, is wrong, or the store refuses it. A retry
    is useless. The command line exits with 2."""


class MissingBucketError(DatasetError, OptionError):
    """The bucket that a URL names does not exist. The command line exits with 2."""


class BuildError(ThdpackError):
    """A build cannot continue, for example because of a full disk or a killed worker."""


class LostCommitError(BuildError):
    """Another build committed to the same destination first, so this build committed nothing."""


class BusyError(BuildError):
    """Another process is writing to the dataset. The message names it."""


class DamagedSpillError(BuildError):
    """A file that one task wrote for another task is damaged. It must be written again.

    name: name of the file in the work folder
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return (
            f".build: {self.name} is not what was written: a disk, memory or another program "
            "changed it; run the same command to write it again"
        )


class DamagedIndexError(BuildError):
    """A file of the hash index is missing or damaged. The next build writes the index again."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return (
            f"{self.path}: missing, or not what was written: a disk, memory or another program "
            "changed it; run the same command to write the index again"
        )


class CheckpointError(ThdpackError):
    """A checkpoint is missing or damaged, or belongs to another run."""


class StateError(DatasetError):
    """A reader's state belongs to another dataset, split, seed or version."""
