"""What becomes of a build when others build in the same place, inputs change, or files are damaged, at moments of our choosing: in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from pipeline.objects import ObjectFolder
from pipeline.site import ObjectSite, missing_file
from pipeline.tasks import HashTask, MapTask
from schemas.errors import BuildError, InputError
from schemas.manifest import Manifest
from tests.corpus import digest, fasta, made_records

OUT = "memory://bucket/out"
SMALL: dict[str, Any] = {"capacity": 1024, "max_seq_len": 512}
BuildHere = Callable[..., Manifest]


@pytest.fixture(autouse=True)
def _store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds in a few small tasks; fsspec's store in memory, empty, which says of a missing object what the others say."""
    monkeypatch.setattr("pipeline.sources.TASK_BYTES", 60_000)
    monkeypatch.setattr("pipeline.plan.PARTITION_BYTES", 60_000)
    monkeypatch.setattr(MemoryFileSystem, "store", {})

    def plainly(method: Callable[..., Any]) -> Callable[..., Any]:
        def asked(self: MemoryFileSystem, path: str, *arguments: Any, **named: Any) -> Any:
            if not self.exists(path):
                raise FileNotFoundError(path)
            return method(self, path, *arguments, **named)

        return asked

    for name in ("cat_file", "rm_file"):
        monkeypatch.setattr(MemoryFileSystem, name, plainly(getattr(MemoryFileSystem, name)))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "made.fasta"
    path.write_bytes(fasta(made_records(300)))
    return path


def once(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, meanwhile: Callable[..., object]) -> None:
    """The next time the method is called, something else happens first."""
    method = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(owner, name, method)
        meanwhile(*arguments)
        return method(*arguments, **named)

    monkeypatch.setattr(owner, name, call)


def test_a_dataset_committed_before_the_one_it_replaced_is_cleared_up_keeps_its_files(
    build_here: BuildHere, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = build_here(corpus, OUT, **SMALL)
    once(monkeypatch, ObjectSite, "clear", lambda *_: build_here(corpus, OUT, overwrite=True, **SMALL))
    build_here(corpus, OUT, seed=1, overwrite=True, **SMALL)
    assert missing_file(again, ObjectFolder(OUT)) is None


def test_who_removes_what_another_build_commits_at_that_moment_says_so(build_here: BuildHere, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_here(corpus, OUT, **SMALL)
    once(monkeypatch, ObjectFolder, "remove", lambda *_: build_here(corpus, OUT, overwrite=True, **SMALL))
    with pytest.raises(BuildError, match="files here that this one was removing"):
        build_here(corpus, OUT, seed=1, overwrite=True, **SMALL)


def test_who_commits_what_another_build_removed_says_so_and_mends_it(build_here: BuildHere, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build_here(corpus, OUT, seed=1, **SMALL)
    once(monkeypatch, ObjectSite, "commit", lambda site, manifest: site.out.remove(manifest.files()[0].name))
    with pytest.raises(BuildError, match="another build removed it"):
        build_here(corpus, OUT, overwrite=True, **SMALL)
    assert missing_file(build_here(corpus, OUT, overwrite=True, **SMALL), ObjectFolder(OUT)) is None


@pytest.mark.parametrize("reader", [MapTask, HashTask])
def test_an_input_replaced_before_its_last_byte_was_read_is_refused(
    build_here: BuildHere, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: type
) -> None:
    """Other residues in as many bytes, after what other tasks have read."""
    other = tmp_path / "other"
    other.write_bytes(corpus.read_bytes().replace(b"MW", b"WM"))
    once(monkeypatch, reader, "run", lambda *_: other.replace(corpus))
    with pytest.raises(InputError, match="changed while it was read"):
        build_here(corpus, tmp_path / "out", **SMALL)
    assert not (tmp_path / "out" / "manifest.json").exists()
    build_here(corpus, tmp_path / "out", **SMALL)
    build_here(corpus, tmp_path / "whole", **SMALL)
    assert digest(tmp_path / "out") == digest(tmp_path / "whole")
