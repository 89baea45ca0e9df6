"""`thdpack compact`: rewrite a dataset of several generations as one build of all inputs.

Each build, append or compaction leaves a new state of the dataset, called a generation. The shards
and records/ files of a compaction have the same bytes as those of one `thdpack preprocess` of all
inputs. The inputs are read again, because a dataset does not hold everything that decides these
bytes. For example, it lacks the residues of records that were left out. Older generations stay
until `thdpack gc` removes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from pipeline.build.append.generation_build import GenerationBuild
from pipeline.build.append.new_inputs import contents
from pipeline.build.append.open_dataset import OpenDataset, open_dataset
from pipeline.build.append.options import CompactOptions
from pipeline.build.assemble_manifest import Built
from pipeline.build.build_plan import Plan, plan_of
from pipeline.build.generations.merge_manifests import entry_of
from pipeline.build.progress.reporter import Reporter
from pipeline.build.retire.retired_files import retired_name
from pipeline.inputs.file_names import as_text, some_names
from pipeline.inputs.source import Source
from schemas.errors import DatasetError
from schemas.manifest import Manifest
from schemas.text.phrases import plural


def compact(options: CompactOptions, report: Reporter) -> Built:
    """Rewrite a dataset as one build of all its inputs, and commit the result as a generation.

    Return the dataset unchanged if it has one generation, or was compacted and did not grow since.

    Args:
        options: options of the command. They name all inputs of the dataset, in any order.
    Raises:
        InputError: an input cannot be read.
        DatasetError: the dataset is missing or damaged, or its inputs are not those of `options`.
        BuildError: for example, the disk is full, a worker was killed, or another build is running.
    """
    with open_dataset(options, report, rebuild=True) as dataset:
        if is_compact(dataset.existing):
            refuse_other_sizes(dataset.existing, dataset.planned.sources)  # reading would take long
            dataset.note_other_builds(dataset.planned)
            dataset.destination.clear(dataset.existing, dataset.work(dataset.planned))
            return Built(manifest=dataset.existing, fresh=False)
        planned = _in_order(dataset)
        dataset.note_other_builds(planned)
        dataset.save_manifest()
        return _CompactBuild(dataset, planned).run(None)


def is_compact(manifest: Manifest) -> bool:
    """Return whether all shards and records/ files of a dataset come from one build of all inputs.

    Generations after this build may have retired records, but have added no inputs.
    """
    builds = [
        *((entry.build, entry.inputs) for entry in manifest.history),
        (manifest.build, len(manifest.inputs)),
    ]
    retired = {entry.name for entry in manifest.retired}
    while (
        len(builds) > 1
        and retired_name(builds[-1][0]) in retired
        and builds[-1][1] == builds[-2][1]
    ):
        builds.pop()
    names = [entry.name for entry in manifest.records]
    names += [entry.name for _, _, entry in manifest.all_shards()]
    return all(name.partition("/")[2].startswith(f"{builds[-1][0]}-") for name in names)


def refuse_other_sizes(existing: Manifest, sources: Sequence[Source]) -> None:
    """Refuse inputs whose sizes are not those of the dataset's inputs. The inputs are not read.

    Raises:
        DatasetError: the dataset has an input whose size no given input has, or the reverse.
    """
    left, missing = Counter(source.bytes for source in sources), []
    for entry in existing.inputs:
        if left[entry.bytes]:
            left[entry.bytes] -= 1
        else:
            missing.append(entry.name)
    if missing:
        raise DatasetError(
            f"{plural(len(missing), 'input')} of the dataset not given, judged by size: "
            f"{as_text(some_names('', missing))}"
        )
    others = [source.name for source in sources if left[source.bytes] > 0]
    if others:
        raise DatasetError(f"not in the dataset, judged by size: {as_text(some_names('', others))}")


def _in_order(dataset: OpenDataset) -> Plan:
    """Return a plan of the dataset's inputs, in their order and with their names.

    Raises:
        DatasetError: an input of the dataset is not given, or an input is not in the dataset.
    """
    planned, existing = dataset.planned, dataset.existing
    found = contents(planned.sources, planned, dataset.work(planned), dataset.phases)
    by_content = {content: source for source, content in found}
    ordered, missing = [], []
    for entry in existing.inputs:
        source = by_content.pop((entry.bytes, entry.xxh3_128), None)
        if source is None:
            missing.append(entry.name)
        else:
            ordered.append(replace(source, name=entry.name))
    if missing:
        names = as_text(some_names("", missing))
        raise DatasetError(
            f"{plural(len(missing), 'input')} of the dataset not given: {names}: compact reads all "
            "inputs again; `thdpack inspect` lists them"
        )
    if by_content:
        others = [source.name for source in by_content.values()]
        raise DatasetError(
            f"{as_text(some_names('', others))}: not in the dataset: run `thdpack append` first, "
            "or leave this input out"
        )
    return plan_of(ordered, planned.passed_over, planned.named_files)


class _CompactBuild(GenerationBuild):
    """A build that replaces all files of an existing generation."""

    def whole_manifest(self, manifest: Manifest) -> Manifest:
        return replace(
            super().whole_manifest(manifest),
            generation=self.existing.generation + 1,
            parent=self.existing.digest,
            history=(*self.existing.history, entry_of(self.existing)),
            retired=self.existing.retired,  # ordinals stay, because inputs keep their order
        )
