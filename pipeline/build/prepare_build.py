"""Begin a build: claim the destination, plan the tasks, and refuse to replace another dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

from pipeline.build.build_plan import PLAN, UNREADABLE, Plan, plan, plan_digest, planned_here
from pipeline.build.destination.destination import Destination
from pipeline.build.destination.foreign_folder import refuse_foreign_folder, warning_of_inputs
from pipeline.build.options import DatasetOptions, PreprocessOptions
from pipeline.build.progress.reporter import Reporter
from pipeline.inputs.error_location import stdin_named
from pipeline.inputs.file_names import as_text
from pipeline.inputs.formats.registry import FORMATS
from pipeline.inputs.named.expand import refuse_inside
from pipeline.storage.probe.first_contact import refuse_unreachable
from schemas import __version__
from schemas.errors import (
    DatasetError,
    LostCommitError,
    ManifestError,
    NoResidueError,
    NothingKeptError,
    OptionError,
    OtherDatasetError,
    ThdpackError,
)
from schemas.licenses import license_hint
from schemas.manifest import MANIFEST_NAME, Manifest
from schemas.text.option_checks import flag
from schemas.text.phrases import plural
from schemas.text.redact import without_credentials

_MOST_INPUTS: Final = 3
"""Maximum number of differences that the error about other inputs names."""
OTHER_OUT: Final = "choose another --out, or replace it with --overwrite"


@contextmanager
def prepared(
    options: PreprocessOptions, destination: Destination, report: Reporter
) -> Iterator[tuple[Plan, Manifest | None]]:
    """Claim the destination; yield the plan of a build, and the existing manifest or None.

    Raises:
        InputError: an input cannot be read, or the destination lies inside an input.
        OptionError: the destination holds other files, or an option does not apply to the inputs.
        DatasetError: another dataset or task list exists, and --overwrite was not given.
        BuildError: another build is running.
    """
    refuse_out(options)
    existing = existing_dataset(destination, options)
    with destination.claim():
        spool = destination.spool(options)
        with stdin_named(spool):
            planned = plan(options, spool=spool)
        refuse_unused_columns(options, planned)
        inputs = [source.url for source in planned.sources if source.name != "-"]
        if warning := warning_of_inputs(options.out, inputs):
            report.note(warning)
        if hint := license_hint(options.license):
            report.note(hint)
        for skipped in planned.passed_over:
            report.note(f"skipped {without_credentials(skipped.line)}")
        _refuse_other_plan(destination, options, planned)
        if existing is not None:
            refuse_other_dataset(existing, options, planned, destination.out.where())
            if existing.variants < options.variants and not options.overwrite:
                report.note(adding_variants(existing, options))
        note_other_builds(destination, planned, options, report)
        with stdin_named(spool):
            try:
                yield planned, existing
            except (KeyboardInterrupt, ThdpackError) as error:
                if isinstance(error, NoResidueError | NothingKeptError):
                    destination.discard()
                lost = isinstance(error, LostCommitError)  # its message names what is left
                if not lost and (existing is None or options.overwrite):
                    for note in _notes_on_leftovers(destination, existing):
                        error.add_note(note)  # the command line prints it after the error
                raise


def _notes_on_leftovers(destination: Destination, existing: Manifest | None) -> list[str]:
    """Return a note on the files that a build leaves; none if there are no such files.

    Args:
        existing: manifest at the start of the build.
    """
    if not (left := destination.leftovers()):
        return []
    with suppress(ThdpackError):  # the manifest cannot be read: it was not committed here
        content = destination.manifest()
        if content is not None and (
            existing is None or Manifest.from_json(content, where="").digest != existing.digest
        ):
            return [
                f"{destination.out.where()}: the dataset is complete. Only intermediate files are "
                "left, which the same command removes"
            ]
    return [
        f"unfinished files of this build: {' and '.join(left)}. To discard the build instead of "
        "resuming it, remove these files"
    ]


def note_other_builds(
    destination: Destination, planned: Plan, options: PreprocessOptions, report: Reporter
) -> None:
    """Name the work folders of other builds, which only the user can tell to be abandoned."""
    if others := destination.other_builds(planned, options):
        report.note(
            f"{plural(len(others), 'other unfinished build')} here: {' and '.join(others)}. If "
            "nobody runs or resumes a build, remove its folder: no later build removes it. "
            "`thdpack gc` lists such folders in a dataset"
        )


def refuse_out(options: PreprocessOptions) -> None:
    """Refuse a destination in which no dataset can be built.

    Raises:
        InputError: the destination lies inside an input, or its store cannot be reached.
        OptionError: the destination is a folder with other files.
    """
    refuse_inside(options.out, options.inputs)
    refuse_unreachable(options.out)
    refuse_foreign_folder(options.out)


def refuse_unused_columns(options: PreprocessOptions, planned: Plan) -> None:
    """Refuse the names of columns if no input is a table.

    Raises:
        OptionError: --sequence-column or --id-column is given, but no input has columns.
    """
    if any(FORMATS[source.format].columns for source in planned.sources):
        return
    for name in ("sequence_column", "id_column"):
        if getattr(options, name) != getattr(DatasetOptions, name):
            found = ", ".join(sorted({source.format for source in planned.sources}))
            raise OptionError(
                f"{flag(name)} names a column of a table, but no input is one (found: {found}): "
                "omit the option, or give --format csv or --format tsv for a table of text"
            )


def adding_variants(existing: Manifest, options: PreprocessOptions) -> str:
    """Return a note about a build that adds variants to an existing dataset."""
    return (
        f"the dataset has {plural(existing.variants, 'variant')}; this build adds "
        f"{options.variants - existing.variants} more, so that it has {options.variants}. Training "
        "runs that have begun on the dataset cannot resume then: see --variants in "
        "docs/guides/data.md"
    )


def existing_dataset(destination: Destination, options: PreprocessOptions) -> Manifest | None:
    """Return the existing manifest; None if no manifest exists. With --overwrite, also return None
    for a broken manifest.

    Raises:
        ManifestError: the manifest is broken, and --overwrite was not given.
    """
    content = destination.manifest()
    if content is None:
        return None
    try:
        return Manifest.from_json(content, where=destination.out.where(MANIFEST_NAME))
    except ManifestError as error:
        if options.overwrite:
            return None
        raise ManifestError(f"{error}; --overwrite replaces it") from error


def refuse_other_dataset(
    existing: Manifest, options: PreprocessOptions, planned: Plan, out: str
) -> None:
    """Refuse to replace a dataset that has other options, another version, or other files.

    Files are compared by name and size. Their content is not read.

    Raises:
        OtherDatasetError: options, inputs or version differ, and --overwrite was not given.
    """
    if options.overwrite:
        return
    if existing.generation > 1:
        raise OtherDatasetError(
            f"{out}: has {existing.generation} generations. `thdpack append {out} FASTA` adds "
            "records, `thdpack compact` rewrites the dataset as one build, and --overwrite "
            "replaces it"
        )
    changed = [
        f"{flag(name)} {existing.options.get(name)} → {value}"
        for name, value in options.shape().items()
        if existing.options.get(name) != value
    ]
    changed += _named_file_differences(planned, existing)
    ours = [(source.name, source.bytes) for source in planned.sources]
    theirs = [(entry.name, entry.bytes) for entry in existing.inputs]
    if ours != theirs:
        changed.append(f"the inputs differ: {_input_differences(dict(ours), dict(theirs))}")
    if existing.version != __version__:
        changed.append(f"thdpack {existing.version} → {__version__}")
    if not changed and options.variants < existing.variants:
        raise OtherDatasetError(
            f"{out}: has {existing.variants} variants, and --variants is {options.variants}: give "
            f"--variants {existing.variants} to keep them, or replace the dataset with --overwrite"
        )
    if changed:
        raise OtherDatasetError(f"{out}: holds another dataset ({'; '.join(changed)}); {OTHER_OUT}")


def _named_file_differences(planned: Plan, existing: Manifest) -> list[str]:
    """Return a line for each option whose files differ from those of an existing dataset."""
    ours = [(file.option, file.name, file.bytes) for file in planned.named_files]
    theirs = [(entry.option, entry.name, entry.bytes) for entry in existing.named_files]
    lines = []
    for option in dict.fromkeys(option for option, _, _ in (*theirs, *ours)):
        now, before = (
            [file[1:] for file in files if file[0] == option] for files in (ours, theirs)
        )
        names, old_names = (", ".join(name for name, _ in files) for files in (now, before))
        if names != old_names:
            lines.append(f"--{option} {old_names or 'not given'} → {names or 'not given'}")
        elif now != before:
            lines.append(f"--{option}: the size of {names} differs")
    return lines


def _input_differences(ours: Mapping[str, int], theirs: Mapping[str, int]) -> str:
    """Return the first differences between the inputs of a build and of an existing dataset.

    Args:
        ours, theirs: size in bytes of each input, by name.
    """
    new = [name for name in ours if name not in theirs]
    gone = [name for name in theirs if name not in ours]
    for name in tuple(new):  # names are relative to the inputs' common folder, which may differ
        same = [old for old in gone if _same_file(name, old) and ours[name] == theirs[old]]
        if len(same) == 1:
            new.remove(name)
            gone.remove(same[0])
    found = [f"{as_text(name)} is new" for name in new]
    found += [f"{as_text(name)} is no longer given" for name in gone]
    found += [
        f"{as_text(name)} had {theirs[name]:,} bytes and has {size:,}"
        for name, size in ours.items()
        if theirs.get(name, size) != size
    ]
    more = f" and {len(found) - _MOST_INPUTS:,} more" if len(found) > _MOST_INPUTS else ""
    if found:
        return f"{', '.join(found[:_MOST_INPUTS])}{more}"
    renamed = "their common folder differs, which changes their names"
    return "they are in another order" if set(ours) == set(theirs) else renamed


def _same_file(one: str, other: str) -> bool:
    """Return whether two names may belong to the same file, relative to different folders."""
    return f"/{one}".endswith(f"/{other}") or f"/{other}".endswith(f"/{one}")


def _refuse_other_plan(destination: Destination, options: PreprocessOptions, planned: Plan) -> None:
    """Refuse to replace an unfinished task list; with --overwrite, remove it.

    Raises:
        DatasetError: the list belongs to another plan, and --overwrite was not given.
    """
    listed = planned_here(destination.out)
    if listed is None or listed == plan_digest(options, planned):
        return
    if not options.overwrite:
        where = destination.out.where()
        if listed == UNREADABLE:
            raise DatasetError(
                f"{where}: the task list here is damaged, or of another version: {OTHER_OUT}"
            )
        raise DatasetError(
            f"{where}: tasks of another plan ({listed}) are unfinished: finish them with `thdpack "
            "run-task` and `thdpack commit`, choose another --out, or discard them with --overwrite"
        )
    destination.out.remove(PLAN)  # tasks of the old list then fail, because they read this file
