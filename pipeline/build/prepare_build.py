"""Begin a build: claim the destination, plan the tasks, and refuse to replace another dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from pipeline.build.build_plan import PLAN, Plan, plan, plan_digest, planned_here
from pipeline.build.destination.destination import Destination
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress import Reporter
from pipeline.inputs.error_location import stdin_named
from pipeline.inputs.expand import refuse_inside
from pipeline.inputs.file_names import as_text
from pipeline.inputs.source import Source
from pipeline.storage.s3.first_contact import refuse_unreachable
from pipeline.storage.urls import is_url
from schemas import __version__
from schemas.errors import DatasetError, ManifestError
from schemas.licenses import license_hint
from schemas.manifest import MANIFEST_NAME, Manifest
from schemas.text.option_checks import flag
from schemas.text.phrases import plural
from schemas.text.redact import without_credentials

_MOST_INPUTS: Final = 3
"""Maximum number of inputs that the error about other inputs names."""
OTHER_OUT: Final = "choose another --out, or replace it with --overwrite"


@contextmanager
def prepared(
    options: PreprocessOptions, destination: Destination, report: Reporter
) -> Iterator[tuple[Plan, Manifest | None]]:
    """Claim the destination; yield the plan of a build, and the existing manifest or None.

    Raises:
        InputError: an input cannot be read, or the destination lies inside an input.
        DatasetError: another dataset or task list exists, and --overwrite was not given.
        BuildError: another build is running.
    """
    refuse_inside(options.out, options.inputs)
    refuse_unreachable(destination.out.where())
    existing = existing_dataset(destination, options)
    with destination.claim():
        spool = destination.spool(options)
        with stdin_named(spool):
            planned = plan(options, spool=spool)
        if is_root_with_inputs(options.out, planned.sources):
            report.note(
                f"--out {options.out} is the root of a bucket that also holds inputs: "
                f"{MANIFEST_NAME}, records/ and the splits will lie beside them. A prefix such as "
                f"{options.out.rstrip('/')}/dataset keeps them apart"
            )
        if hint := license_hint(options.license):
            report.note(hint)
        for skipped in planned.passed_over:
            report.note(f"skipped {without_credentials(skipped.line)}")
        _refuse_other_plan(destination, options, planned)
        if existing is not None:
            refuse_other_dataset(existing, options, planned, destination.out.where())
            if existing.variants < options.variants and not options.overwrite:
                report.note(adding_variants(existing, options))
        if others := destination.other_builds(planned, options):
            report.note(
                f"{plural(len(others), 'other unfinished build')} here: {' and '.join(others)}: if "
                "nobody runs or resumes it, remove this folder, because no later build does"
            )
        with stdin_named(spool):
            try:
                yield planned, existing
            except KeyboardInterrupt:
                if (existing is None or options.overwrite) and (left := destination.leftovers()):
                    report.note(
                        f"unfinished files of this build: {' and '.join(left)}: remove them if you "
                        "do not want to resume it"
                    )
                raise


def adding_variants(existing: Manifest, options: PreprocessOptions) -> str:
    """Return a note about a build that adds variants to an existing dataset."""
    added = f"variants {existing.variants} to {options.variants - 1}"
    if options.variants == existing.variants + 1:
        added = f"variant {existing.variants}"
    return (
        f"adds {added} to this dataset, and keeps the others. Training runs that read the "
        "dataset before cannot resume with the new manifest: see --variants in docs/guides/data.md"
    )


def is_root_with_inputs(out: str, sources: Sequence[Source]) -> bool:
    """Return whether a dataset's URL is the root of an object-store bucket that holds an input."""
    root = out.rstrip("/") + "/"
    return (
        is_url(out)
        and root.partition("://")[2].count("/") == 1
        and any(source.url.startswith(root) for source in sources)
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
    """Refuse to replace a dataset that differs in options, version, or the files' names or sizes.

    This check does not read the inputs or the files that options name.

    Raises:
        DatasetError: the dataset differs, and --overwrite was not given.
    """
    if options.overwrite:
        return
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
        raise DatasetError(
            f"{out}: has {existing.variants} variants, and --variants is {options.variants}: give "
            f"--variants {existing.variants} to keep them, or replace the dataset with --overwrite"
        )
    if changed:
        raise DatasetError(f"{out}: holds another dataset ({'; '.join(changed)}); {OTHER_OUT}")


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
    for name in tuple(new):  # names begin at the common folder, which other inputs may change
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
    renamed = "the folder that they have in common differs, which changes their names"
    return "they are in another order" if set(ours) == set(theirs) else renamed


def _same_file(one: str, other: str) -> bool:
    """Return whether two names of inputs may name the same file, seen from different folders."""
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
        raise DatasetError(f"{where}: tasks of another plan ({listed}) are unfinished; {OTHER_OUT}")
    destination.out.remove(PLAN)  # tasks of the old list then fail, because they read this file
