"""With `--clusters mmseqs:0.5` or `--sample-clusters mmseqs:0.5`, MMseqs2 clusters the kept records
of a build."""

from __future__ import annotations

import random
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from pipeline.build.named_files.clusters.linclust import prepare_linclust
from pipeline.build.named_files.named_file import NamedFile
from pipeline.storage.local_folder import LocalFolder
from tests.helpers.data.corpus import (
    LETTERS,
    digest,
    fasta,
    read_buckets,
    read_manifest,
    read_records,
)
from tests.helpers.processes.command_line import Run

needs_mmseqs = pytest.mark.skipif(shutil.which("mmseqs") is None, reason="MMseqs2 is not installed")
OPTIONS = ("--capacity", "1024", "--max-seq-len", "256", "--split", "valid=0.3,test=0.3")
SIZES = {"task_bytes": 8_000, "partition_bytes": 8_000}


@pytest.fixture(scope="module")
def families() -> list[tuple[str, str]]:
    """Return records of 40 families of similar sequences. A member of a family is a copy of the
    first member, or differs from it in a few residues at the end. Residues of different families
    are drawn independently."""
    rng = random.Random(1)
    found = []
    for family in range(40):
        first = "".join(rng.choices(LETTERS, k=150))
        members = [first]
        for _ in range(rng.randint(0, 4)):
            end = "".join(rng.choices(LETTERS, k=rng.randint(1, 10)))
            members.append(first[: -len(end)] + end if rng.random() < 0.8 else first)
        found += [(f"f{family}_{i} x", residues) for i, residues in enumerate(members)]
    rng.shuffle(found)
    return found


@pytest.fixture(scope="module")
def corpus(families: list[tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("families") / "made.fasta"
    path.write_bytes(fasta(families))
    return path


@needs_mmseqs
def test_each_family_is_a_cluster_and_the_number_of_workers_does_not_change_the_bytes(
    run: Run, families: list[tuple[str, str]], corpus: Path, tmp_path: Path
) -> None:
    for workers in (1, 2):
        words = ("--out", tmp_path / str(workers), "--clusters", "mmseqs:0.5", *OPTIONS)
        done = run("preprocess", corpus, *words, "--workers", workers, **SIZES)
        assert done.returncode == 0, done.stderr
        assert f"--clusters mmseqs:0.5: clustered {len(families)} records\n" in done.stderr
    assert digest(tmp_path / "1") == digest(tmp_path / "2")
    clusters, splits = defaultdict(set), defaultdict(set)
    for row in read_records(tmp_path / "1"):
        family = row["id"].partition("_")[0]
        clusters[family].add(row["cluster"])
        if row["status"] == "kept":
            splits[family].add(row["split"])
    assert all(len(found) == 1 for found in (*clusters.values(), *splits.values()))
    assert len({key for keys in clusters.values() for key in keys}) == 40
    assert {split for found in splits.values() for split in found} == {"train", "valid", "test"}
    assert run("verify", tmp_path / "1", "--deep").returncode == 0
    entry = read_manifest(tmp_path / "1").named_files[0]
    assert (entry.name, entry.bytes) == ("mmseqs:0.5", 0)
    assert not (tmp_path / "1" / ".build").exists()


@needs_mmseqs
def test_each_variant_has_one_record_of_each_family(
    run: Run, families: list[tuple[str, str]], corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ("--out", out, "--sample-clusters", "mmseqs:0.5", "--variants", 3, *OPTIONS)
    done = run("preprocess", corpus, *words, **SIZES)
    assert done.returncode == 0, done.stderr
    assert f"--sample-clusters mmseqs:0.5: clustered {len(families)} records\n" in done.stderr
    names = {row["ordinal"]: row["id"].partition("_")[0] for row in read_records(out)}
    held = []
    for variant in range(3):
        held.append([o for bucket in read_buckets(out, variant) for o in bucket["record"]])
        assert sorted(names[ordinal] for ordinal in held[-1]) == sorted(set(names.values()))
    assert len({frozenset(ordinals) for ordinals in held}) == 3
    assert run("verify", out, "--deep").returncode == 0


def test_the_hash_of_the_prepared_table_depends_on_the_version_of_mmseqs_and_the_identity(
    tmp_path: Path,
) -> None:
    """The prepare task writes this table. The digest of a build depends on the table's hash."""
    work, digests = LocalFolder(tmp_path, tmp_path), {}
    for version, identity in (("14", "0.5"), ("15", "0.5"), ("14", "0.6"), ("14", "0.50")):
        value = NamedFile(
            option="clusters",
            url="",
            name=f"mmseqs:{identity}",
            bytes=0,
            fingerprint="",
            mmseqs=True,
            mmseqs_version=version,
        )
        prepared = prepare_linclust(value, "prepared-000000.arrow", work)
        digests[version, identity] = prepared.xxh3_128
    assert len(set(digests.values())) == 3
    assert digests["14", "0.5"] == digests["14", "0.50"]


@needs_mmseqs
@pytest.mark.parametrize("value", ["mmseqs:nan", "mmseqs:1.5"])
def test_a_wrong_identity_is_a_clear_error(
    run: Run, corpus: Path, tmp_path: Path, value: str
) -> None:
    done = run("preprocess", corpus, "--out", tmp_path / "out", "--clusters", value)
    assert done.returncode == 2
    assert f"--clusters {value}: expected a table of clusters, or mmseqs:IDENTITY" in done.stderr
    assert not (tmp_path / "out" / "manifest.json").exists()


@needs_mmseqs
def test_a_build_that_keeps_no_record_is_an_error(run: Run, corpus: Path, tmp_path: Path) -> None:
    words = ("--clusters", "mmseqs:0.5", "--min-residues", 1000)
    done = run("preprocess", corpus, "--out", tmp_path / "out", *words)
    assert done.returncode == 1
    assert "no record was kept" in done.stderr


def test_plan_tasks_refuses_clusters_that_mmseqs_must_compute(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    done = run("plan-tasks", corpus, "--out", tmp_path / "out", "--clusters", "mmseqs:0.5")
    assert done.returncode == 2
    assert "a task list cannot contain mmseqs:0.5, because MMseqs2 needs the records" in done.stderr
