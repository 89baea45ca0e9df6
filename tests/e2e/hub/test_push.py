"""`thdpack push`, and reading hf://, against a stand-in for the Hugging Face Hub."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from pipeline.reader import ShardReader
from pipeline.storage.hub.address import hub_address
from schemas.errors import DatasetError, InputError
from schemas.manifest import Manifest
from tests.helpers.data.corpus import digest
from tests.helpers.processes.command_line import Run
from tests.helpers.stores.hub_server import READ_ONLY, TOKEN, Hub, Repository, hub_server
from trainer.embed import main as embed

URL = "hf://datasets/user/proteins"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """Start a hub, and point hf:// at it, for this process and its children."""
    with hub_server() as running:
        for name, value in running.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        yield running


def _files(hub: Hub, branch: str = "main") -> dict[str, bytes]:
    repository = hub.repositories["user/proteins"]
    return repository.commits[repository.branches[branch]]


def test_a_pushed_dataset_reads_like_the_local_one(hub: Hub, many_shards: Path, run: Run) -> None:
    done = run("push", many_shards, URL, "--private")
    assert done.returncode == 0, done.stderr
    pushed = _files(hub)
    names = [name for name in digest(many_shards) if not name.startswith("README")]
    assert {name: pushed[name] for name in names} == {
        name: (many_shards / name).read_bytes() for name in names
    }
    assert {"README.md", "croissant.json", ".gitattributes"} <= set(pushed)
    assert hub.repositories["user/proteins"].private

    with ShardReader(URL) as theirs, ShardReader(many_shards) as ours:
        for _ in range(20):
            assert bytes(next(theirs).input_ids) == bytes(next(ours).input_ids)
    for command in (("verify",), ("inspect", "--bucket", "3"), ("stats",)):
        found = run(command[0], URL, *command[1:])
        assert found.returncode == 0, found.stderr
        assert TOKEN not in found.stdout + found.stderr

    again = run("push", many_shards, URL)
    assert again.returncode == 0, again.stderr
    assert "already holds this dataset" in again.stdout
    assert len(hub.repositories["user/proteins"].commits) == 2


def test_an_open_reader_keeps_the_commit_that_it_opened(
    hub: Hub, many_shards: Path, run: Run, tmp_path: Path
) -> None:
    assert run("push", many_shards, URL).returncode == 0
    repository = hub.repositories["user/proteins"]
    first = repository.branches["main"]
    hub.requests.clear()
    with ShardReader(URL, prefetch=0) as reader, ShardReader(many_shards) as ours:
        repository.commit("main", {"README.md": b"another dataset"})
        assert bytes(next(reader).input_ids) == bytes(next(ours).input_ids)
        read = [path for path in hub.requests if "/resolve/" in path]
        assert all(first in path for path in read)
    with pytest.raises(DatasetError, match=r"no manifest\.json"):
        ShardReader(URL)
    with ShardReader(f"{URL}@{first}") as reader:
        assert (
            reader.manifest.digest
            == Manifest.from_json((many_shards / "manifest.json").read_bytes(), where="").digest
        )


def test_an_interrupted_push_shows_nothing_and_resumes(
    hub: Hub, many_shards: Path, run: Run
) -> None:
    hub.fail_after = 3
    cut = run("push", many_shards, URL)
    assert cut.returncode == 1
    assert "no right to do this (403)" in cut.stderr
    assert set(_files(hub)) == {".gitattributes"}
    stored, hub.fail_after = hub.uploads[:3], None
    assert run("push", many_shards, URL).returncode == 0
    assert not {*stored} & {*hub.uploads[3:]}
    assert "manifest.json" in _files(hub)


def test_a_push_replaces_an_earlier_dataset_but_no_foreign_file(
    hub: Hub, many_shards: Path, sample: Path, run: Run, tmp_path: Path
) -> None:
    small = tmp_path / "small"
    assert run("preprocess", sample, "--out", small, "--capacity", "4096").returncode == 0
    assert run("push", small, URL).returncode == 0
    repository = hub.repositories["user/proteins"]
    mine = {**_files(hub), "notes.txt": b"mine", "README.md": b"---\nlicense: mit\n---\n"}
    repository.commit("main", mine)
    done = run("push", many_shards, URL)
    assert done.returncode == 0, done.stderr
    assert "README.md on the hub was edited" in done.stderr
    now = _files(hub)
    assert now["notes.txt"] == b"mine"
    assert now["README.md"] == mine["README.md"]
    assert not {name for name in digest(small) if name.startswith("train/")} & set(now)

    hub.race = True
    late = run("push", small, URL)
    assert late.returncode == 1
    assert "another commit was made on the branch" in late.stderr
    hub.race = False
    assert run("push", small, URL, "--revision", "v2").returncode == 0
    assert _files(hub, "v2")["manifest.json"] == (small / "manifest.json").read_bytes()

    repository.commit("main", {"manifest.json": b"{}"})
    refused = run("push", small, URL)
    assert refused.returncode == 1
    assert "push does not replace files that it does not know" in refused.stderr


def test_refused_pushes_print_one_error_line(
    hub: Hub, many_shards: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(code: int, *arguments: object) -> str:
        done = run("push", *arguments)
        assert done.returncode == code, done.stderr
        assert TOKEN not in done.stderr
        lines = done.stderr.splitlines()
        return next(line for line in lines if line.startswith("thdpack push:"))

    assert "push uploads only to hf://" in refused(2, many_shards, "s3://bucket/x")
    assert "not a dataset on the Hugging Face Hub" in refused(1, many_shards, "hf://user/model")
    assert "names a folder" in refused(2, many_shards, f"{URL}/sub")
    assert "give one" in refused(2, many_shards, f"{URL}@a", "--revision", "b")
    assert "a commit cannot be written to" in refused(2, many_shards, f"{URL}@{'0' * 40}")
    assert "local disk" in refused(2, "hf://datasets/user/other", URL)

    damaged = shutil.copytree(many_shards, tmp_path / "damaged")
    shard = next((damaged / "train").iterdir())
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    assert "nothing was uploaded" in refused(1, damaged, URL)
    assert not hub.repositories

    monkeypatch.setenv("HF_TOKEN", READ_ONLY)
    assert "no right to do this (403)" in refused(1, many_shards, URL)
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    assert "there is no token for the hub: run `hf auth login`" in refused(1, many_shards, URL)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert run("push", many_shards, URL).returncode == 0
    assert "exists and is public" in refused(2, many_shards, URL, "--private")


def test_a_missing_repository_or_revision_is_one_error(hub: Hub, run: Run) -> None:
    missing = run("verify", URL)
    assert missing.returncode == 1
    assert "there is no such dataset repository" in missing.stderr
    hub.repositories["user/proteins"] = Repository()
    hub.repositories["user/proteins"].commit("main", {})
    gone = run("verify", f"{URL}@v9")
    assert gone.returncode == 1
    assert "the repository has no revision 'v9'" in gone.stderr
    assert run("preprocess", "a.fasta", "--out", URL).returncode == 2


@pytest.mark.parametrize("url", ["hf://user/model", "hf://datasets/user", "hf://datasets/a/b@c@d"])
def test_a_url_of_another_form_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="write hf://datasets/USER/NAME"):
        hub_address(url)
    address = hub_address("hf://datasets/a/b@refs%2Fpr%2F1/sub/folder/")
    assert (address.revision, address.folder) == ("refs/pr/1", "sub/folder")
    assert str(address) == "hf://datasets/a/b@refs%2Fpr%2F1/sub/folder"


def test_embed_reads_a_generation_of_a_dataset_on_the_hub(
    hub: Hub, many_shards: Path, whole: Path, run: Run, tmp_path: Path
) -> None:
    assert run("push", many_shards, URL).returncode == 0
    out = tmp_path / "embeddings"
    embed([str(whole), URL, "--generation", "1", "--out", str(out)])
    assert list(out.glob("*.parquet"))
