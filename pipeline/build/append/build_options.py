"""The options of an append's build. Options that shape the dataset come from its manifest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from pipeline.build.append.options import AppendOptions, GenerationOptions
from pipeline.build.exclusion.exclusion_index import load_exclusions
from pipeline.build.named_files.named_file import MMSEQS
from pipeline.build.options import DatasetOptions, PreprocessOptions
from pipeline.build.task_results import PreparedFile
from pipeline.storage.folder import Folder
from schemas.errors import DatasetError
from schemas.manifest import Manifest


def build_options(
    options: GenerationOptions, existing: Manifest, *, rebuild: bool = False
) -> PreprocessOptions:
    """Return the options of a build that adds a generation.

    Args:
        rebuild: True if the build reads all inputs of the dataset. Then --dedup cropped is allowed.

    Raises:
        DatasetError: the dataset has an option that append does not support.
        ValueError: an option is out of range.
    """
    if options.inputs:  # only new records can change the status of old ones
        refuse_unsupported(existing, options.dataset, rebuild=rebuild)
        _refuse_missing_tables(options, existing)
    shaping: dict[str, Any] = {
        field.name: existing.options[field.name]
        for field in fields(DatasetOptions)
        if field.name in existing.options
    }
    if shaping["on_invalid"] == "unk":
        # The default also means unk, but refuses inputs whose letters are mostly unknown.
        del shaping["on_invalid"]
    if isinstance(options, AppendOptions) and options.source_release is not None:
        shaping["source_release"] = options.source_release
    own = {field.name: getattr(options, field.name) for field in fields(GenerationOptions)}
    del own["dataset"]
    return PreprocessOptions(**shaping, **own, out=options.dataset, variants=existing.variants)


def refuse_unsupported(existing: Manifest, dataset: str, *, rebuild: bool) -> None:
    """Refuse a dataset if, with its options, new records could change the status of old records.

    Args:
        rebuild: see `build_options`.
    Raises:
        DatasetError: the dataset has such an option.
    """
    named = []
    for entry in existing.named_files:
        if entry.name.startswith(MMSEQS):
            value = "FILE" if entry.option == "exclude" else entry.name.removeprefix(MMSEQS)
            named.append(f"--{entry.option} {MMSEQS}{value}")
        elif entry.option == "sample-clusters":
            named.append("--sample-clusters")
    if existing.options["dedup"] == "cropped" and not rebuild:
        named.append("--dedup cropped")
    if named:
        raise DatasetError(
            f"{dataset}: was built with {' and '.join(dict.fromkeys(named))}, which append does "
            "not support: build a new dataset from all inputs with `thdpack preprocess`"
        )


def _refuse_missing_tables(options: GenerationOptions, existing: Manifest) -> None:
    """Check that --clusters and --metadata are given if the dataset was built with them.

    Raises:
        DatasetError: one of the options is missing, or the dataset was built without it.
    """
    for option, table in (("clusters", options.clusters), ("metadata", options.metadata)):
        had = any(entry.option == option for entry in existing.named_files)
        if had and table is None:
            raise DatasetError(
                f"{options.dataset}: was built with --{option}: give --{option} with a table that "
                "lists the new records, such as that of the new release"
            )
        if table is not None and not had:
            raise DatasetError(
                f"{options.dataset}: was built without --{option}, so append cannot use it: omit "
                f"--{option}, or build a new dataset from all inputs with `thdpack preprocess`"
            )


def check_named_files(
    prepared: Sequence[PreparedFile], existing: Manifest, work: Folder, dataset: str
) -> None:
    """Check that the files of --exclude are those of the dataset, and hold only sequences. Check
    that the table of --metadata has the columns of the dataset.

    Lists of ids and result tables (of BLAST or MMseqs2) are refused. If such a file named a new
    record, the record's duplicates would be excluded, too. An old record with the same sequence
    would then have to become excluded, but an append never changes old records.

    Args:
        prepared: content of the files that options name.
        work: folder of this content.
    Raises:
        DatasetError: other files are given, a file holds ids, or the columns differ.
    """
    excluded = [entry for entry in existing.named_files if entry.option == "exclude"]
    if [file.entry for file in prepared if file.option == "exclude"] != excluded:
        names = " ".join(f"--exclude {entry.name}" for entry in excluded)
        raise DatasetError(
            f"{dataset}: the files of --exclude are not those with which the dataset was built: "
            + (f"give {names}" if names else "it was built without --exclude")
        )
    index = load_exclusions(prepared, work, 1.0)
    if index is not None and index.has_names:
        raise DatasetError(
            f"{dataset}: was built with a list of ids or a result table of --exclude, which append "
            "does not support: build a new dataset from all inputs with `thdpack preprocess`"
        )
    for file in prepared:
        if file.option == "metadata" and file.columns != dict(existing.metadata_columns):
            ours, theirs = (
                ", ".join(f"{name} ({kind})" for name, kind in sorted(columns.items()))
                for columns in (file.columns, existing.metadata_columns)
            )
            raise DatasetError(
                f"--metadata {file.name}: has the columns {ours}, but {dataset} was built with "
                f"{theirs}: give a table with the same columns"
            )
