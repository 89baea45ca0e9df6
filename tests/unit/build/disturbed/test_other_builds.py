"""Another build has the same destination. All builds run in this process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from pipeline.build import run_task
from pipeline.build.destination.missing_file import missing_file
from pipeline.build.destination.object_destination import ObjectDestination
from pipeline.storage.object_folder import ObjectFolder
from schemas.errors import BuildError, DatasetError
from tests.helpers.processes.disturbed_builds import OUT, SMALL, BuildHere, once


def test_a_build_removes_no_file_of_a_dataset_that_another_build_commits_meanwhile(
    build_here: BuildHere, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = build_here(corpus, OUT, **SMALL)
    once(
        monkeypatch,
        ObjectDestination,
        "clear",
        lambda *_: build_here(corpus, OUT, overwrite=True, **SMALL),
    )
    build_here(corpus, OUT, seed=1, overwrite=True, **SMALL)
    assert missing_file(again, ObjectFolder(OUT)) is None


def test_a_build_that_removed_files_of_a_newly_committed_dataset_reports_it(
    build_here: BuildHere, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.build.destination.object_destination.AT_ONCE", 1)
    build_here(corpus, OUT, **SMALL)
    once(
        monkeypatch,
        ObjectFolder,
        "remove",
        lambda *_: build_here(corpus, OUT, overwrite=True, **SMALL),
    )
    with pytest.raises(BuildError, match="needs files that this build removed"):
        build_here(corpus, OUT, seed=1, overwrite=True, **SMALL)


def test_a_build_fails_if_another_build_removed_its_file_and_the_next_build_writes_it_again(
    build_here: BuildHere, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_here(corpus, OUT, seed=1, **SMALL)
    once(
        monkeypatch,
        ObjectDestination,
        "commit",
        lambda destination, manifest: destination.out.remove(manifest.files()[0].name),
    )
    with pytest.raises(BuildError, match="another build removed it"):
        build_here(corpus, OUT, overwrite=True, **SMALL)
    assert missing_file(build_here(corpus, OUT, overwrite=True, **SMALL), ObjectFolder(OUT)) is None


def test_a_failed_build_names_its_leftover_files_but_none_of_a_dataset_committed_meanwhile(
    build_here: BuildHere, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the build verifies, another build (of another plan or the same one) commits. Then the
    first build fails."""
    for seed, named in ((1, True), (0, False)):
        MemoryFileSystem.store.clear()

        def meanwhile(*_: object, seed: int = seed) -> None:
            build_here(corpus, OUT, seed=seed, **SMALL)
            raise DatasetError("a file is missing")

        once(monkeypatch, run_task, "check_files", meanwhile)
        with pytest.raises(BuildError, match=r"/\.build/[0-9a-f]{16}/\. Remove") as failed:
            build_here(corpus, OUT, **SMALL)
        assert bool(re.search(rf"{OUT}/\*/[0-9a-f]{{16}}-\*", str(failed.value))) is named
