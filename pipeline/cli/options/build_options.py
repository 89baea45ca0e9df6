"""Options of `thdpack preprocess` and `thdpack plan-tasks`, in the groups that the help shows.

Fields, defaults and help texts are those of `PreprocessOptions`. Workers import that class, so it
does not import tyro, which parses the command line. This module adds tyro's settings, and divides
the fields into one class for each group.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import MISSING, Field, dataclass, field, fields, make_dataclass
from typing import Annotated, Any, Final, Optional, get_type_hints

import tyro

from pipeline.build.options import PreprocessOptions
from schemas.text.option_checks import flag

INPUTS_HELP: Final = (
    "Files, folders or globs, on a disk or in a store (s3://…, gs://…); files at https://…; "
    "@LIST for a file that lists inputs, one per line; - for standard input. "
    "FASTA, plain or compressed (gz, bgz, zst, xz, bz2); "
    "Parquet, Arrow, CSV or TSV with a sequence column. CSV and TSV files in a folder are skipped: "
    "name the files themselves."
)
_OUT_HELP: Final = (
    "Folder or URL (s3://…, gs://…) of the dataset, created if it is missing. "
    "An existing dataset stays valid until the manifest of the new dataset replaces its manifest."
)
_PLAN_TASKS: Final = """Divide a build into tasks for a scheduler. The command accepts the options
of `thdpack preprocess`, except those that choose where tasks run and how many run at once.

All machines need access to the dataset's folder. Afterwards, run every map task: `thdpack run-task
DATASET --plan PLAN --stage map --index N`. Then run every task of the other stages that this
command prints, one stage after another. Finally, run `thdpack commit DATASET --plan PLAN`. On
Slurm, deploy/slurm/preprocess.sbatch runs all of these commands. On Kubernetes,
deploy/kubernetes/preprocess.sh does so.

Example: thdpack plan-tasks uniref50.fasta --out data/uniref50
"""

Ignore = Annotated[
    tyro.conf.UseAppendAction[tuple[str, ...]],
    tyro.conf.arg(metavar="GLOB"),
]
Exclude = Annotated[
    tyro.conf.UseAppendAction[tuple[str, ...]],
    tyro.conf.arg(metavar="FILE"),
]
Table = Annotated[Optional[str], tyro.conf.arg(metavar="TABLE")]  # noqa: UP045 (see PreprocessOptions)
_Text = Annotated[Optional[str], tyro.conf.arg(metavar="TEXT")]  # noqa: UP045
_Column = Annotated[str, tyro.conf.arg(metavar="COLUMN")]
_SETTINGS: Final[dict[str, Any]] = {
    "inputs": Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="INPUT [INPUT …]", help=INPUTS_HELP, help_behavior_hint="(required)"),
    ],
    "out": Annotated[str, tyro.conf.arg(metavar="DATASET", help=_OUT_HELP)],
    "ignore": Ignore,
    "where": Annotated[Optional[str], tyro.conf.arg(metavar="SQL")],  # noqa: UP045
    "exclude": Exclude,
    "clusters": Table,
    "sample_clusters": Table,
    "metadata": Table,
    "split": Annotated[str, tyro.conf.arg(metavar="SHARES")],
    "sequence_column": _Column,
    "id_column": _Column,
    "source_release": _Text,
    "license": _Text,
    "ray_address": Annotated[Optional[str], tyro.conf.arg(metavar="ADDRESS")],  # noqa: UP045
    "memory": Annotated[Optional[str], tyro.conf.arg(metavar="SIZE")],  # noqa: UP045
    "scratch": Annotated[Optional[str], tyro.conf.arg(metavar="FOLDER")],  # noqa: UP045
    "timeline": Annotated[Optional[str], tyro.conf.arg(metavar="FILE")],  # noqa: UP045
}
"""Types of fields that need settings of tyro. Other fields have their type in PreprocessOptions."""

_GROUPS: Final[dict[str, tuple[str, str]]] = {
    "output": (
        "Where the dataset is written, and in which form.",
        "inputs out overwrite compression shard_mb keep_header source_release license",
    ),
    "packing": (
        "How records become sequences, and sequences become buckets.",
        "capacity max_seq_len long packer max_seqs length_multiple seed variants",
    ),
    "split": (
        "How records are divided into train, valid and test, and how clusters are used.",
        "split clusters sample_clusters",
    ),
    "input": (
        "How inputs are found and read.",
        "format sequence_column id_column ignore allow_nucleotides allow_alignment",
    ),
    "filter": (
        "Which records the dataset keeps.",
        "min_residues on_invalid dedup where metadata exclude exclude_identity exclude_coverage",
    ),
    "execution": (
        "How the build runs. These options do not change the bytes of the dataset.",
        "executor ray_address workers memory scratch timeline dry_run log_json",
    ),
}
"""For each group of the help: its description, and the names of its fields. Positional arguments
have a separate group in the help."""

NOT_PLANNED: Final = {
    "--executor": "a scheduler runs planned tasks, so this option is for `thdpack preprocess` only",
    "--ray-address": "a scheduler runs planned tasks, so this option is for `thdpack preprocess` "
    "only",
    "--workers": "a scheduler runs planned tasks; `thdpack commit` has this option",
    "--timeline": "a scheduler runs planned tasks, so this option is for `thdpack preprocess` only",
    "--scratch": "other machines run the tasks, and cannot read a folder of this machine",
}
"""Options of preprocess that plan-tasks refuses. The error prints the reason."""


@dataclass(frozen=True)
class BuildArguments:
    """Command line of a build. Each field of its subclasses is a group of options."""

    def options(self) -> PreprocessOptions:
        """Return the options of all groups.

        Raises:
            ValueError: a value is not allowed.
        """
        groups = [getattr(self, group.name) for group in fields(self)]
        return PreprocessOptions(
            **{each.name: getattr(group, each.name) for group in groups for each in fields(group)}
        )


def _group(name: str, text: str, names: list[str]) -> type[Any]:
    hints = get_type_hints(PreprocessOptions)
    known: dict[str, Field[Any]] = PreprocessOptions.__dataclass_fields__
    declared = [
        (
            each,
            _SETTINGS.get(each, hints[each]),
            field(metadata=known[each].metadata)
            if known[each].default is MISSING
            else field(default=known[each].default, metadata=known[each].metadata),
        )
        for each in names
    ]
    return make_dataclass(
        name.capitalize(), declared, frozen=True, kw_only=True, namespace={"__doc__": text}
    )


def _command(
    name: str, text: str | None, leave_out: Collection[str] = ()
) -> tuple[type[BuildArguments], list[type[Any]]]:
    """Return the class of a command's options, and the classes of their groups.

    Args:
        text: help text of the command.
        leave_out: flags of options that the command does not have.
    """
    groups = {
        group: _group(group, about, [n for n in names.split() if flag(n) not in leave_out])
        for group, (about, names) in _GROUPS.items()
    }
    command = make_dataclass(
        name,
        # with a help text, tyro does not search the source code for one, which takes 40 ms of CPU
        [
            (group, Annotated[kind, tyro.conf.arg(help=kind.__doc__)])
            for group, kind in groups.items()
        ],
        bases=(BuildArguments,),
        frozen=True,
        kw_only=True,
        namespace={"__doc__": text},
    )
    return command, list(groups.values())


PreprocessArguments, _PREPROCESS = _command("PreprocessArguments", PreprocessOptions.__doc__)
PlanTasksArguments, _PLANNED = _command("PlanTasksArguments", _PLAN_TASKS, NOT_PLANNED)
GROUPS: Final = {PreprocessArguments: _PREPROCESS, PlanTasksArguments: _PLANNED}
"""For each class of a command's options: the classes of their groups."""
