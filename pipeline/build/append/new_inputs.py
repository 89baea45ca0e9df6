"""Find the inputs whose content a dataset does not have yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.build.build_plan import Plan, plan_of
from pipeline.build.map_stage.map_results import input_entries
from pipeline.build.phases import Phases
from pipeline.build.stages import hash_tasks
from pipeline.inputs.file_names import as_text, some_names
from pipeline.inputs.source import Source
from pipeline.storage.folder import Folder
from schemas.manifest import Manifest
from schemas.text.phrases import plural


@dataclass(frozen=True, slots=True)
class NewInputs:
    """Plan of the inputs to append, and facts about the inputs that the dataset already has.

    notes: lines for the user
    known: for each input whose content the dataset already has, by URL: the name of the dataset's
        input with that content
    """

    plan: Plan
    notes: tuple[str, ...]
    known: Mapping[str, str]


def new_inputs(planned: Plan, existing: Manifest, work: Folder, phases: Phases) -> NewInputs:
    """Leave out the inputs whose content the dataset already has. An input is read only if it has
    the same size as an input of the dataset.

    Raises:
        InputError: an input cannot be read.
    """
    sizes = {entry.bytes for entry in existing.inputs}
    suspects = [source for source in planned.sources if source.bytes in sizes]
    have = {(entry.bytes, entry.xxh3_128): entry.name for entry in existing.inputs}
    known = {
        source.url: have[content]
        for source, content in (contents(suspects, planned, work, phases) if suspects else ())
        if content in have
    }
    left = [source for source in planned.sources if source.url not in known]
    notes: tuple[str, ...] = ()
    if known:
        names = [source.name for source in planned.sources if source.url in known]
        files = f"{plural(len(names), 'input')}, whose content the dataset already has"
        notes = (f"skipped {files}: {as_text(some_names('', names))}",)
    return NewInputs(
        plan_of(_renamed(left, existing), planned.passed_over, planned.named_files), notes, known
    )


def contents(
    sources: Sequence[Source], planned: Plan, work: Folder, phases: Phases
) -> list[tuple[Source, tuple[int, str]]]:
    """Read inputs; return each with its size in bytes and the xxh3_128 of its content.

    Raises:
        InputError: an input cannot be read.
    """
    tasks = hash_tasks(replace(planned, sources=tuple(sources)), work, every=True)
    results = phases.run("compare inputs", tasks, sum(source.bytes for source in sources))
    entries = input_entries(sources, tasks, results, [0] * len(sources))
    return [
        (source, (entry.bytes, entry.xxh3_128))
        for source, entry in zip(sources, entries, strict=True)
    ]


def _renamed(sources: Iterable[Source], existing: Manifest) -> list[Source]:
    """Return the inputs. If the dataset already has an input of the same name, add a suffix such
    as ~1."""
    used = Counter(entry.name for entry in existing.inputs)
    found = []
    for source in sources:
        name, number = source.name, 0
        while used[name]:
            number += 1
            name = f"{source.name}~{number}"
        used[name] += 1
        found.append(replace(source, name=name))
    return found
