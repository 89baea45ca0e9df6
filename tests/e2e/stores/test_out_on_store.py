"""An --out that holds other objects is refused, as such a local folder is."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.build.destination import foreign_folder
from tests.helpers.processes.command_line import Run
from tests.helpers.stores.object_store import ObjectStore, client, put
from tests.helpers.stores.refused_commands import refused


def test_a_prefix_of_other_objects_is_refused_as_a_folder_is(
    run: Run, store: ObjectStore, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign_folder, "_MOST_LISTED", 3)
    for name in ("train/cat.jpg", "2.fasta", "3.fasta", "4.fasta"):
        put(f"s3://bucket/in/{name}", small.read_bytes())
    words = ("preprocess", "s3://bucket/in/2.fasta", "--overwrite", "--out")
    for out, held in (
        ("s3://bucket", "in"),
        ("s3://bucket/in/", "2.fasta, 3.fasta, 4.fasta"),
        ("s3://bucket/in/train", "cat.jpg"),
    ):
        assert refused(run, *words, out, code=2) == (
            f"--out {out.rstrip('/')} is neither empty nor a dataset (it holds {held}): choose a "
            f"new folder, such as {out.rstrip('/')}/dataset"
        )
    out = "s3://bucket/new"
    put(f"{out}/", b"")  # the console of a store shows such an object as a folder
    assert run(*words, out).returncode == 0
    for name in ("a", "b", "c", "d"):
        put(f"{out}/{name}", b"notes")
    assert run(*words, out, "--seed", "1").returncode == 0
    for name in ("manifest.json", "a", "b", "c", "d"):
        client().rm_file(f"{out}/{name}")  # only shards and records/ files are left
    assert run(*words, out).returncode == 0
    put(f"{out}/train/cat.jpg", b"")
    client().rm_file(f"{out}/manifest.json")
    assert "(it holds train)" in refused(run, *words, out, code=2)


def test_a_dataset_at_the_root_of_a_bucket_that_holds_inputs_gives_a_warning(
    run: Run, own_store: ObjectStore, small: Path
) -> None:
    assert run("preprocess", small, "--out", "s3://bucket").returncode == 0
    put("s3://bucket/in/made.fasta", small.read_bytes())
    for out, announced in (("s3://bucket/", True), ("s3://bucket/a", False)):
        done = run("preprocess", "s3://bucket/in/made.fasta", "--out", out, "--overwrite")
        assert done.returncode == 0, done.stderr
        assert ("is the root of an S3 bucket that also holds inputs" in done.stderr) is announced
        assert "such as s3://bucket/dataset" in done.stderr or not announced
