"""Options of the subcommands for datasets that grow. Docstrings are the help texts."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated, Optional

import tyro

from pipeline.build.append.options import AppendOptions, CompactOptions
from pipeline.cli.options.build_options import INPUTS_HELP, Exclude, Ignore, Table
from pipeline.cli.options.subcommand_options import Dataset
from pipeline.service.options import WatchOptions
from schemas.text.option_checks import check_range
from schemas.text.time_span import parse_span

# tyro's settings are here, and not in pipeline.build, so that workers need not import tyro
_Inputs = Annotated[
    tuple[str, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="INPUT [INPUT …]", help=INPUTS_HELP, help_behavior_hint="(required)"),
]
_Text = Annotated[Optional[str], tyro.conf.arg(metavar="TEXT")]  # noqa: UP045 (see PreprocessOptions)
_Size = Annotated[Optional[str], tyro.conf.arg(metavar="SIZE")]  # noqa: UP045
_Address = Annotated[Optional[str], tyro.conf.arg(metavar="ADDRESS")]  # noqa: UP045


def _refuse_file(dataset: str, command: str) -> None:
    """Refuse a file as the dataset, because the user may have named an input first.

    Raises:
        ValueError: the dataset is a file.
    """
    if os.path.isfile(dataset):
        raise ValueError(
            f"{dataset} is a file, but the dataset comes first, as in `thdpack {command} DATASET "
            "INPUT`"
        )


@dataclass(frozen=True, kw_only=True)
class AppendArguments(AppendOptions):
    __doc__ = AppendOptions.__doc__

    dataset: Dataset
    """Folder or URL of the dataset."""
    inputs: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(
            metavar="INPUT [INPUT …]",
            help=INPUTS_HELP,
            help_behavior_hint="(required without --retire)",
        ),
    ]
    retire: Annotated[Optional[str], tyro.conf.arg(metavar="FILE")] = None  # noqa: UP045
    source_release: _Text = None
    exclude: Exclude = ()
    clusters: Table = None
    metadata: Table = None
    ray_address: _Address = None
    memory: _Size = None
    ignore: Ignore = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_file(self.dataset, "append")


@dataclass(frozen=True, kw_only=True)
class CompactArguments(CompactOptions):
    __doc__ = CompactOptions.__doc__

    dataset: Dataset
    """Folder or URL of the dataset."""
    inputs: _Inputs
    exclude: Exclude = ()
    clusters: Table = None
    metadata: Table = None
    ray_address: _Address = None
    memory: _Size = None
    ignore: Ignore = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse_file(self.dataset, "compact")


@dataclass(frozen=True, kw_only=True)
class WatchArguments(WatchOptions):
    __doc__ = WatchOptions.__doc__

    inbox: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="INBOX")]
    """Folder, or prefix of a store (s3://…, gs://…), in which new files arrive."""
    dataset: Annotated[str, tyro.conf.arg(metavar="DATASET")]
    """Folder or URL of the dataset, which `thdpack preprocess` has built."""
    exclude: Exclude = ()
    clusters: Table = None
    metadata: Table = None
    source_release: _Text = None
    ray_address: _Address = None
    memory: _Size = None
    on_generation: Annotated[Optional[str], tyro.conf.arg(metavar="COMMAND")] = None  # noqa: UP045


@dataclass(frozen=True, kw_only=True, slots=True)
class GenerationsOptions:
    """List the generations of a dataset: when it was written, what it added, and its digest.

    `written` is the time of the newest file that the generation added, just before its commit. A
    copy of the dataset has other times. `bytes` is the size of those files that still exist.

    Example: thdpack generations data/uniref50
    """

    dataset: Dataset
    """Folder or URL of the dataset."""
    json: bool = False
    """Print one JSON object per generation instead of a table."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GcOptions:
    """List the files that no kept generation of a dataset needs. With --delete, remove them.

    The latest generation is always kept. A generation that was replaced less than --grace ago is
    kept, too, because a training run may still read it. The command also lists intermediate files
    of builds that were killed and not resumed since --grace.

    Example: thdpack gc data/uniref50 --delete
    """

    dataset: Dataset
    """Folder or URL of the dataset."""
    keep: int = 1
    """Number of latest generations to keep, even if they were replaced long ago."""
    grace: Annotated[str, tyro.conf.arg(metavar="TIME")] = "7d"
    """Time such as 12h or 30d. Generations that were replaced less than this time ago are kept, and
    so are files and unfinished builds that were written less than this time ago. Choose a time that
    is longer than your longest training run."""
    delete: bool = False
    """Remove the files. Without this option, the command changes nothing."""
    json: bool = False
    """Print one JSON object instead of text."""

    def __post_init__(self) -> None:
        check_range(self, "keep", least=1)
        parse_span(self.grace, name="--grace")
