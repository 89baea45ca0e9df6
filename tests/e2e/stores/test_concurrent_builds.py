"""Concurrent builds into one destination on an object store: only one dataset is committed."""

from __future__ import annotations

import re
import signal
import threading
from fnmatch import fnmatch
from pathlib import Path

import pytest

from pipeline.storage.conditional_put import put_if
from pipeline.storage.object_folder import LostRaceError, ObjectFolder
from pipeline.storage.urls import file_system
from schemas.manifest import Manifest
from tests.helpers.data.corpus import digest
from tests.helpers.processes.command_line import Run
from tests.helpers.stores.faulty_proxy import Faults
from tests.helpers.stores.object_store import (
    digests,
    objects,
    put,
)
from tests.helpers.stores.store_builds import (
    ONE_PROCESS,
    OPTIONS,
    OUT,
    SIZES,
    quick_s3,
    start,
    until,
)

CONDITIONS = {
    "409 ConditionalRequestConflict": None,
    "400 InvalidRequest": None,
    "403 AccessDenied": None,
    "412 PreconditionFailed": False,
    "404 NoSuchKey": False,
    "501 NotImplemented": True,
    "400 InvalidArgument Header If-None-Match is not supported": True,
}
"""For each error response to a conditional write, the reaction of the build.

| value | the build |
|---|---|
| True | writes the object unconditionally |
| False | reports that another build wrote the object first |
| None | fails with the store's error |
"""


def test_a_write_is_unconditional_only_on_stores_without_conditional_writes(
    proxied: Faults,
) -> None:
    for number, (answer, written) in enumerate(CONDITIONS.items()):
        out = f"{OUT}/{number}"
        fs, path = file_system(f"{out}/manifest.json")
        proxied.once = [("PUT manifest.json", answer)]
        if written is None:
            with pytest.raises(OSError, match="made"):
                put_if(fs, path, b"ours", None)
        else:
            assert put_if(fs, path, b"ours", None) is written, answer
        assert bool(objects(out)) is bool(written), answer
        assert not proxied.once, answer


def test_a_conditional_write_is_retried_after_a_conflict_and_fails_if_the_object_changed(
    proxied: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_s3(monkeypatch)
    folder = ObjectFolder(OUT)
    proxied.once = [("PUT manifest.json", "409 ConditionalRequestConflict")]
    folder.replace("manifest.json", b"first", None)
    proxied.once = [("PUT manifest.json", "lost")]
    tag = folder.version_tag("manifest.json")
    folder.replace("manifest.json", b"second", tag)
    assert objects(OUT) == {"manifest.json": b"second"}
    for stale in (None, tag):
        with pytest.raises(LostRaceError, match="another build"):
            folder.replace("manifest.json", b"third", stale)
    assert objects(OUT) == {"manifest.json": b"second"}


def assert_names_what_it_left(said: str) -> None:
    """Check that an error message names exactly the objects that the committed dataset does not
    need.
    """
    found = re.search(r"Unused files of this build: (\S+) and (\S+)\. ", said)
    assert found is not None, said
    shards, work = found.groups()
    needed = {
        entry.name for entry in Manifest.from_json(objects(OUT)["manifest.json"], where=OUT).files()
    }
    named = {
        name
        for name in objects(OUT)
        if fnmatch(f"{OUT}/{name}", shards) or f"{OUT}/{name}".startswith(work)
    }
    assert named == set(objects(OUT)) - needed - {"manifest.json"}
    assert any(fnmatch(f"{OUT}/{name}", shards) for name in named)
    assert any(f"{OUT}/{name}".startswith(work) for name in named)


def test_one_of_two_concurrent_builds_commits_and_the_other_reports_it(
    run: Run, proxied: Faults, corpus: Path, near: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    # remove the timeout of one second, so that each build sends its request only once
    monkeypatch.delenv("FSSPEC_S3")
    release = threading.Event()
    proxied.hold["PUT manifest.json"] = release
    writers = [start(OUT, setup=ONE_PROCESS), start(OUT, "--seed", "1", setup=ONE_PROCESS)]
    until(lambda: len(proxied.waiting) >= 2, *writers)
    release.set()
    said = [writer.communicate(timeout=500) for writer in writers]
    assert sorted(writer.returncode for writer in writers) == [0, 1], said
    loser = 0 if writers[0].returncode else 1
    assert "another build committed a dataset here while this build ran" in said[loser]
    assert "Traceback" not in said[loser]
    assert "the dataset is complete" not in said[loser]  # it is not this build's dataset
    assert_names_what_it_left(said[loser])
    manifest = Manifest.from_json(objects(OUT)["manifest.json"], where=OUT)
    assert manifest.seed == 1 - loser
    if loser == 1:
        assert {
            name: content for name, content in digests(OUT).items() if name in digest(near)
        } == digest(near)
    assert run("verify", OUT).returncode == 0


def test_two_identical_concurrent_builds_produce_one_dataset(
    proxied: Faults, corpus: Path, near: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    # remove the timeout of one second, so that each build sends its request only once
    monkeypatch.delenv("FSSPEC_S3")
    release = threading.Event()
    proxied.hold["PUT manifest.json"] = release
    writers = [start(OUT, setup=ONE_PROCESS) for _ in range(2)]
    until(lambda: len(proxied.waiting) >= 2, *writers)
    release.set()
    said = [writer.communicate(timeout=500) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], said
    assert digests(OUT) == digest(near)


def test_a_slow_build_does_not_overwrite_a_dataset_committed_meanwhile(
    run: Run, proxied: Faults, corpus: Path, near: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    for name in digest(near):
        put(f"{OUT}/{name}", (near / name).read_bytes())
    monkeypatch.delenv("FSSPEC_S3")  # remove the timeout of one second
    release = threading.Event()
    proxied.hold["PUT manifest.json"] = release
    slow = start(OUT, "--seed", "1", "--overwrite", setup=ONE_PROCESS)
    until(lambda: proxied.waiting, slow)
    del proxied.hold["PUT manifest.json"]
    slow.send_signal(signal.SIGSTOP)  # otherwise, the build would repeat its request after 60 s
    quick = run(
        "preprocess",
        "s3://bucket/in/made.fasta",
        "--out",
        OUT,
        *OPTIONS,
        "--seed",
        "2",
        "--overwrite",
        **SIZES,
    )
    slow.send_signal(signal.SIGCONT)
    assert quick.returncode == 0, quick.stderr
    release.set()
    said = slow.communicate(timeout=500)
    assert slow.returncode == 1
    assert "another build committed" in said
    assert_names_what_it_left(said)
    assert Manifest.from_json(objects(OUT)["manifest.json"], where=OUT).seed == 2
    assert run("verify", OUT).returncode == 0
