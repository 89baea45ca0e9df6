"""Datasets that a service appends to, the files of its inbox, and checks of the result."""

from __future__ import annotations

from pathlib import Path

from schemas.manifest import Manifest
from tests.helpers.data.corpus import fasta, made_records, read_manifest
from tests.helpers.data.damaged_datasets import deep, shallow
from tests.helpers.processes.command_line import preprocess
from tests.helpers.processes.services import Service

OPTIONS = ("--capacity", "512", "--max-seq-len", "256")


def first_dataset(folder: Path) -> Path:
    """Build a small dataset in a folder."""
    source = folder / "first.fasta"
    source.write_bytes(fasta(made_records(20, seed=99, longest=100)))
    return preprocess(source, folder / "dataset", *OPTIONS)


def content_of(number: int) -> bytes:
    """Return FASTA of a few records, different for each number."""
    records = made_records(3, seed=1000 + number, longest=80)
    return fasta([(f"f{number}-{name}", residues) for name, residues in records])


def names_in(folder: Path) -> list[str]:
    """Return the names of all files below a folder, without their folders, in order."""
    return sorted(path.name for path in folder.rglob("*") if not path.is_dir())


def check_dataset(dataset: Path) -> Manifest:
    """Check a dataset, and that each generation names its parent; return its manifest."""
    assert shallow(dataset) == deep(dataset) == []
    manifest = read_manifest(dataset)
    generations = [
        Manifest.from_json((dataset / "generations" / f"{n}.json").read_bytes(), where="test")
        for n in range(1, manifest.generation)
    ]
    for earlier, later in zip(generations, [*generations[1:], manifest], strict=True):
        assert later.parent == earlier.digest
        assert set(earlier.records) <= set(later.records)
    return manifest


def check_metrics(service: Service, manifest: Manifest) -> dict[str, float]:
    """Check that the metrics of a service agree with a manifest; return all metrics."""
    metrics = service.metrics()
    assert metrics["thdpack_dataset_generation"] == manifest.generation
    assert metrics["thdpack_dataset_inputs"] == len(manifest.inputs)
    assert metrics["thdpack_dataset_input_bytes"] == sum(each.bytes for each in manifest.inputs)
    for status, count in manifest.records_by_status.items():
        assert metrics[f'thdpack_dataset_records{{status="{status}"}}'] == count
    return metrics
