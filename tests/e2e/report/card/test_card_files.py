"""`thdpack card` replaces files of the user only with --overwrite.

A new build removes the card (croissant.json and README.md) of the dataset that it replaces, but
keeps a file that a user wrote or edited.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.report.card.write_card import write_card
from pipeline.storage.open_folder import folder_of
from schemas.errors import DatasetError
from schemas.manifest import Manifest
from tests.e2e.report.card.conftest import FILES, SIZES, options
from tests.helpers.data.corpus import digest, read_manifest
from tests.helpers.processes.command_line import Run
from tests.helpers.stores.memory_store import empty_memory_store
from tests.helpers.stores.stores import http_store


def card(folder: Path) -> tuple[bytes, ...]:
    return tuple((folder / name).read_bytes() for name in FILES)


def test_the_bytes_of_a_card_depend_only_on_the_dataset(
    run: Run, built: Path, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("card", dataset).returncode == 0
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert run("card", dataset).returncode == 0
    done = run("card", "out", "--out", tmp_path / "new" / "card", where=built.parent)
    assert done.returncode == 0, done.stderr
    assert card(dataset) == card(tmp_path / "new" / "card")
    with http_store(built) as url:
        assert run("card", url, "--out", tmp_path / "http").returncode == 0
    assert card(dataset) == card(tmp_path / "http")
    assert not any((built / name).exists() for name in FILES)
    assert sorted(path.name for path in (tmp_path / "new" / "card").iterdir()) == sorted(FILES)


def test_verify_and_a_second_build_accept_a_dataset_with_a_card(
    run: Run, inputs: Path, dataset: Path
) -> None:
    assert run("card", dataset).returncode == 0
    before = digest(dataset)
    assert run("verify", dataset, "--deep").returncode == 0
    words = (inputs, "--out", dataset, *options(inputs))
    again = run("preprocess", *words, partition_bytes=20_000)
    assert again.returncode == 0, again.stderr
    assert "already built from these inputs and options" in again.stdout
    assert digest(dataset) == before


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("edited", [True, False])
def test_card_replaces_a_file_of_the_user_only_with_the_option_overwrite(
    run: Run, dataset: Path, name: str, edited: bool
) -> None:
    path = dataset / name
    if edited:
        assert run("card", dataset).returncode == 0
        path.write_bytes(path.read_bytes().replace(b"proteins", b"Proteins").replace(b"#", b"# My"))
    else:
        path.write_text("mine\n")
    before = digest(dataset)
    done = run("card", dataset)
    assert (done.returncode, done.stdout) == (1, "")
    [line] = done.stderr.splitlines()
    why = "was edited since thdpack wrote it" if edited else "was not written by thdpack"
    assert line.startswith(f"thdpack card: {path}: {why}; replace it with --overwrite")
    assert digest(dataset) == before
    assert run("card", dataset, "--overwrite").returncode == 0
    assert digest(dataset)[name] != before[name]
    assert run("card", dataset).returncode == 0  # accepted, because thdpack wrote this file


@pytest.mark.parametrize("place", ["disk", "store"])
def test_a_new_build_removes_the_card_of_the_old_dataset(
    build_here: Callable[..., Manifest],
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    out = "memory://bucket/out" if place == "store" else str(tmp_path / "out")
    empty_memory_store(monkeypatch)
    folder = folder_of(out)
    source = inputs / "plain.fasta"
    build_here(source, out, capacity=1024, max_seq_len=256)
    assert write_card(out) == [f"{out}/{name}" for name in FILES]
    old = {name: folder.content(name) for name in FILES}
    build_here(source, out, capacity=2048, max_seq_len=256, overwrite=True)
    assert [folder.content(name) for name in FILES] == [None, None]
    # If the new build is killed before it removes the card, the next run removes the card.
    for name in FILES:
        with folder.written(name) as file:
            file.write(old[name] or b"")
    build_here(source, out, capacity=2048, max_seq_len=256)
    assert [folder.content(name) for name in FILES] == [None, None]
    write_card(out)
    new = {name: folder.content(name) for name in FILES}
    assert all(new[name] and new[name] != old[name] for name in FILES)
    build_here(source, out, capacity=2048, max_seq_len=256)
    assert {name: folder.content(name) for name in FILES} == new


def test_a_new_build_keeps_an_edited_card_and_prints_a_warning(
    run: Run, inputs: Path, dataset: Path
) -> None:
    assert run("card", dataset).returncode == 0
    readme = dataset / "README.md"
    readme.write_text(readme.read_text() + "\nMy own words.\n")
    (dataset / "croissant.json").write_text("{}")  # not written by thdpack: no warning
    edited = readme.read_bytes()
    words = (inputs, "--out", dataset, *SIZES, "--overwrite")
    done = run("preprocess", *words, partition_bytes=20_000)
    assert done.returncode == 0, done.stderr
    [warning] = [line for line in done.stderr.splitlines() if "earlier dataset" in line]
    assert warning.startswith(f"{readme} describes an earlier dataset, and stays because it was")
    assert readme.read_bytes() == edited
    assert (dataset / "croissant.json").read_text() == "{}"


def test_writing_a_card_fails_if_a_build_replaces_the_dataset_meanwhile(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = read_manifest(dataset)
    found = iter([manifest, replace(manifest, seed=manifest.seed + 1)])
    monkeypatch.setattr("pipeline.report.card.write_card.read_manifest", lambda _: next(found))
    with pytest.raises(DatasetError, match="a build replaced the dataset while its card"):
        write_card(str(dataset))


def test_a_failed_card_command_prints_one_line_and_writes_nothing(
    run: Run, dataset: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    cases = [
        ((tmp_path / "empty",), "no manifest.json: this is not a dataset"),
        ((tmp_path / "absent",), "there is no such folder"),
        ((dataset, "--out", tmp_path / "file"), "is a file, expected a folder"),
        ((dataset, "--out", "https://example.org/x"), "cannot be written to; use a path, s3://"),
        (("https://example.org/x",), "cannot be written to; name a folder with --out"),
        ((dataset, "--output", "x"), "no option --output: use --out"),
    ]
    for words, said in cases:
        done = run("card", *words)
        assert (done.returncode in (1, 2), done.stdout) == (True, ""), words
        [line] = done.stderr.splitlines()
        assert said in line
    assert not list((tmp_path / "empty").iterdir())
    assert not any((dataset / name).exists() for name in FILES)
