"""Append, compact and gc on an object store."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from schemas.manifest import Manifest
from tests.e2e.build.test_kill import kill_all
from tests.helpers.data.corpus import digest
from tests.helpers.data.growth import OPTIONS, SIZES, grow, write_inputs
from tests.helpers.data.retired import read_retired, write_named_inputs
from tests.helpers.processes import started
from tests.helpers.processes.command_line import Run
from tests.helpers.stores.faulty_proxy import Faults
from tests.helpers.stores.object_store import ObjectStore, digests, objects, put
from tests.helpers.stores.store_builds import ONE_PROCESS, until

OUT = "s3://bucket/sets/grown"
YOUNG = ("--grace", "0")
STOP = started.stopping_after_outcomes(2)
"""Value for `setup` that stops an append after the tasks that index and map records."""


def work_objects() -> dict[str, int]:
    """Return the sizes of the intermediate files of builds, by name."""
    return {k: len(content) for k, content in objects(OUT).items() if k.startswith(".build/")}


def test_a_dataset_grows_on_a_store_as_on_a_disk(
    run: Run, store: ObjectStore, tmp_path: Path
) -> None:
    inputs = write_inputs(tmp_path, 3)
    near = grow(run, inputs, tmp_path / "near", [1, 1, 1], *OPTIONS)
    run("preprocess", inputs[0], "--out", OUT, *OPTIONS, **SIZES)
    for path in inputs[1:]:
        put(f"s3://bucket/in/{path.name}", path.read_bytes())
        done = run("append", OUT, f"s3://bucket/in/{path.name}", **SIZES)
        assert done.returncode == 0, done.stderr
    assert digests(OUT) == digest(near)
    assert "nothing to do" in run("append", OUT, inputs[2], **SIZES).stdout
    assert "verified" in run("verify", "--deep", OUT).stdout
    for place in (OUT, near):
        assert run("compact", place, *reversed(inputs), **SIZES).returncode == 0
        assert not work_objects()
        assert run("gc", place, "--delete", *YOUNG).returncode == 0
    assert digests(OUT) == digest(near)
    assert "verified" in run("verify", "--deep", OUT).stdout


def test_later_builds_name_an_abandoned_append_and_gc_removes_its_files(
    run: Run, store: ObjectStore, tmp_path: Path
) -> None:
    inputs = write_inputs(tmp_path, 3)
    assert run("preprocess", inputs[0], "--out", OUT, *OPTIONS, **SIZES).returncode == 0
    process = started.start("append", OUT, inputs[1], "--workers", 1, setup=STOP, **SIZES)
    process.wait_until_stopped()
    kill_all(process)
    left = work_objects()
    [work] = {name.rpartition("/")[0] for name in left}
    note = f"1 other unfinished build here: {OUT}/{work}/. If nobody"
    for _ in range(2):  # the second append has nothing to add
        done = run("append", OUT, inputs[2], **SIZES)
        assert done.returncode == 0
        assert note in done.stderr
        assert work_objects() == left
    done = run("gc", OUT, "--delete")
    assert "not removed: 1 unfinished build with files written less than 7d ago" in done.stdout
    size = sum(left.values())
    done = run("gc", OUT, *YOUNG)
    assert f"{size:>16,} bytes  {work}/  (unfinished build)" in done.stdout
    assert "After that, these builds cannot be resumed" in done.stdout
    assert work_objects() == left
    found = json.loads(run("gc", OUT, *YOUNG, "--delete", "--json").stdout)
    assert found["unfinished_builds"] == {f"{work}/": size}
    assert not work_objects()
    done = run("compact", OUT, inputs[2], inputs[0], **SIZES)
    assert done.returncode == 0
    assert "unfinished" not in done.stderr


def test_records_are_retired_on_a_store_as_on_a_disk(
    run: Run, store: ObjectStore, tmp_path: Path
) -> None:
    inputs = write_named_inputs(tmp_path, 2)
    near, ids = tmp_path / "near", tmp_path / "ids.txt"
    ids.write_text("P00000\nrecord-3\nN8_HUMAN\n")
    put("s3://bucket/ids.txt", ids.read_bytes())
    for place, listed in ((near, ids), (OUT, "s3://bucket/ids.txt")):
        run("preprocess", inputs[0], "--out", place, *OPTIONS, **SIZES)
        for more in ((inputs[1],), ()):
            done = run("append", place, *more, "--retire", listed, **SIZES)
            assert done.returncode == 0, done.stderr
        assert "nothing to do" in run("append", place, "--retire", listed, **SIZES).stdout
    assert digests(OUT) == digest(near)
    assert [len(rows) for rows in read_retired(near).values()] == [3, 3]
    assert "verified" in run("verify", OUT).stdout
    for place in (OUT, near):
        assert run("compact", place, *inputs, **SIZES).returncode == 0
        assert run("gc", place, "--delete", *YOUNG).returncode == 0
    assert digests(OUT) == digest(near)
    assert not [name for name in objects(OUT) if name.startswith(".build/")]


def test_of_two_concurrent_appends_the_second_appends_to_the_generation_of_the_first(
    run: Run, proxied: Faults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = write_inputs(tmp_path, 3)
    assert run("preprocess", inputs[0], "--out", OUT, *OPTIONS, **SIZES).returncode == 0
    # remove the timeout of one second, so that each append sends its request only once
    monkeypatch.delenv("FSSPEC_S3")
    release = threading.Event()
    proxied.hold["PUT manifest.json"] = release
    writers = [
        started.start("append", OUT, path, setup=ONE_PROCESS, **SIZES) for path in inputs[1:]
    ]
    until(lambda: len(proxied.waiting) >= 2, *writers)
    release.set()
    said = [writer.communicate(timeout=500) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], said
    assert sum("another build committed a generation meanwhile" in text for text in said) == 1
    manifest = Manifest.from_json(objects(OUT)["manifest.json"], where=OUT)
    assert manifest.generation == 3
    assert sorted(entry.name for entry in manifest.inputs) == ["0.fasta", "1.fasta", "2.fasta"]
    assert "verified" in run("verify", "--deep", OUT).stdout
