"""Generations of a dataset on an object store."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.reader import ShardReader
from pipeline.storage.read_manifest import read_manifest
from pipeline.storage.urls import file_system
from schemas.errors import ManifestError, NoGenerationError
from tests.helpers.data.grown import append
from tests.helpers.processes.command_line import Run
from tests.helpers.stores.faulty_proxy import Faults
from tests.helpers.stores.object_store import ObjectStore, put
from tests.helpers.stores.reading import tokens
from tests.helpers.stores.store_builds import OPTIONS, OUT, SIZES, quick_s3


def test_a_reader_of_a_store_keeps_its_generation_while_the_dataset_grows(
    run: Run, store: ObjectStore, corpus: Path, near: Path, tmp_path: Path
) -> None:
    done = run("preprocess", corpus, "--out", OUT, *OPTIONS, **SIZES)
    assert done.returncode == 0, done.stderr
    cache = tmp_path / "cache"
    with ShardReader(near) as reader:
        expected, state = tokens(reader, 2 * len(reader)), reader.state_dict()
    with ShardReader(OUT, cache_dir=cache, prefetch=1) as reader:
        found = tokens(reader, 3)
        append(OUT, seed=5, inputs=tmp_path)
        assert found + tokens(reader, len(expected) - 3) == expected
    assert read_manifest(OUT).generation == 2
    for generation in (1, str(state["manifest"])):
        with ShardReader(OUT, generation=generation, cache_dir=tmp_path / "other") as reader:
            reader.load_state_dict({**state, "position": 4})
            assert tokens(reader, len(expected) - 4) == expected[4:]
    assert run("verify", OUT, "--generation", 1).returncode == 0
    with pytest.raises(NoGenerationError, match=r"no generation 3; .* generations 1 to 2$"):
        read_manifest(OUT, 3)
    put(f"{OUT}/generations/1.json", read_manifest(OUT).to_json().encode())
    with pytest.raises(ManifestError, match="not the manifest of generation 1, because"):
        ShardReader(OUT, generation=1, cache_dir=cache)
    system, root = file_system(f"{OUT}/generations/1.json")
    system.rm(root)
    refused = run("verify", OUT, "--generation", 1)
    assert refused.returncode == 2
    assert f"{OUT}: generation 1 was removed" in refused.stderr


def test_an_earlier_manifest_is_read_from_a_store_that_fails_for_a_while(
    run: Run,
    proxied: Faults,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quick_s3(monkeypatch)
    run("preprocess", corpus, "--out", OUT, *OPTIONS, **SIZES)
    first = read_manifest(OUT)
    append(OUT, seed=5, inputs=tmp_path)
    proxied.once = [("GET generations/1.json", kind) for kind in ("error", "lost", "cut")]
    assert read_manifest(OUT, 1).digest == first.digest
    assert not proxied.once
