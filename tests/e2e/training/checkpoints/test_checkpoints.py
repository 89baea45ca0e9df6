"""Damaged, edited or truncated checkpoints are not loaded; the message says how to resume."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import xxhash

from tests.helpers.processes.inference import started
from tests.helpers.processes.runs import cut, losses, start, train
from trainer.checkpoints.file_hashes import HASHES, FileHash, read_hashes, write_hashes

FLIPS = 8
"""Number of bits that the test flips in each file of a checkpoint, one at a time. The bits are
evenly spread over the file."""


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def refused(data: Path, out: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Start a run that must refuse to resume; return its error."""
    with pytest.raises(SystemExit) as stopped:
        train(data, out, *options)
    assert stopped.value.code == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said


def rehashed(checkpoint: Path) -> None:
    """Write new hashes of all files, so that edited files do not count as damaged."""
    found = {}
    for path in checkpoint.iterdir():
        if path.name != HASHES:
            content = path.read_bytes()
            found[path.name] = FileHash(len(content), xxhash.xxh3_128_hexdigest(content))
    write_hashes(checkpoint, found)


def test_a_flipped_bit_in_any_file_is_found_before_anything_is_loaded(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = cut(whole, tmp_path / "run", 8)
    checkpoint = out / "checkpoints" / "step-00000008"
    files = sorted(path.name for path in checkpoint.iterdir())
    assert files == [".metadata", "__0_0.distcp", HASHES, "state.json"]
    assert set(read_hashes(checkpoint)) == {*files} - {HASHES}
    for name in files:
        bits = checkpoint.joinpath(name).stat().st_size * 8
        for number in range(FLIPS):
            bit = (2 * number + 1) * bits // (2 * FLIPS)
            flip(checkpoint / name, bit)
            said = refused(many_shards, out, capsys)
            assert name in said
            assert "step-00000004" in said
            flip(checkpoint / name, bit)
    assert losses(train(many_shards, out)) == losses(whole)  # every flipped bit was flipped back


def test_the_error_names_the_newest_complete_checkpoint_and_a_command_that_selects_it(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(whole, tmp_path / "run")
    for step in (12, 16):
        flip(out / "checkpoints" / f"step-{step:08}" / "__0_0.distcp", 100_000)
    said = refused(many_shards, out, capsys)
    assert "The newest complete checkpoint is step-00000008" in said
    subprocess.run(said.split("run `")[1].split("`")[0], shell=True, check=True)
    train(many_shards, out)
    assert losses(out) == losses(whole)
    aside = out / "checkpoints" / "after-step-00000008.1"
    assert sorted(path.name for path in aside.iterdir()) == ["step-00000012", "step-00000016"]
    assert str(aside) in capsys.readouterr().err


def test_a_resume_is_refused_if_the_only_checkpoint_is_damaged(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = cut(whole, tmp_path / "run", 4)
    file = out / "checkpoints" / "step-00000004" / "__0_0.distcp"
    flip(file, 100_000)
    assert "has no other complete checkpoint" in refused(many_shards, out, capsys)
    os.truncate(file, 100)
    shutil.rmtree(out / "export")  # otherwise, its model would be used
    with started(out, many_shards, "--out", tmp_path / "rows") as job:
        assert job.wait() == 1, job.said
    assert "step-00000004 is damaged: __0_0.distcp has 100 bytes, but " in job.said
    assert job.said.count("\n") == 1


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda folder: (folder / HASHES).unlink(),
            "has no hashes.json: an older thdpack wrote this checkpoint, or it was only",
        ),
        (lambda folder: (folder / HASHES).write_text("[" * 100_000), "hashes.json is damaged"),
        (lambda folder: (folder / HASHES).write_bytes(b"\xff"), "hashes.json is damaged"),
        (
            lambda folder: (folder / HASHES).write_text('{"version": 1, "files": 3, "digest": ""}'),
            "hashes.json is damaged: Expected",
        ),
        (
            lambda folder: write_hashes(folder, {"../latest": FileHash(0, "")}),
            "names a file outside of its folder",
        ),
        (
            lambda folder: (folder / "__0_0.distcp").unlink(),
            "__0_0.distcp cannot be read (No such file or directory)",
        ),
        (lambda folder: os.truncate(folder / "__0_0.distcp", 1000), "__0_0.distcp has 1,000 bytes"),
        (
            lambda folder: (folder.parent / "latest").write_text("../../elsewhere\n"),
            "holds '../../elsewhere', which is not the name of a checkpoint",
        ),
        (lambda folder: (folder.parent / "latest").write_bytes(b"\xff"), "not the name of"),
        (
            lambda folder: (folder / "hashes.json").write_bytes(
                b'{"version": 1, "files": {"\xff": 1}}'
            ),
            "hashes.json is damaged",
        ),
        (lambda folder: shutil.rmtree(folder), "no such checkpoint exists"),
    ],
)
def test_incomplete_or_invalid_checkpoints_are_refused(
    many_shards: Path,
    whole: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], Any],
    message: str,
) -> None:
    out = cut(whole, tmp_path / "run", 8)
    spoil(out / "checkpoints" / "step-00000008")
    said = refused(many_shards, out, capsys)
    assert message in said
    newest = 8 if "not the name of" in message else 4
    assert f"echo step-{newest:08} > " in said


def test_all_ranks_refuse_a_checkpoint_that_one_rank_finds_damaged(
    many_shards: Path, whole: Path, tmp_path: Path
) -> None:
    out = cut(whole, tmp_path / "run", 8)
    # rank 1 hashes this file, the second of three
    flip(out / "checkpoints" / "step-00000008" / "__0_0.distcp", 100_000)
    with start(many_shards, out, ranks=2) as job:
        job.wait()
    assert [rank.returncode for rank in job.ranks] == [1, 1], job.said
    assert job.said.count("the content of __0_0.distcp has changed since it was written") == 1
    assert job.said.count("echo step-00000004 > ") == 1


def test_files_of_all_ranks_are_hashed(
    many_shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    start(many_shards, out, "--warmup-steps", "0", ranks=2, steps=2).finish()
    checkpoint = out / "checkpoints" / "step-00000002"
    files = {path.name for path in checkpoint.iterdir()}
    assert {"__0_0.distcp", "__1_0.distcp"} < files
    assert set(read_hashes(checkpoint)) == files - {HASHES}
    flip(checkpoint / "__1_0.distcp", 100_000)
    assert "the content of __1_0.distcp has changed since it was written" in refused(
        many_shards, out, capsys, "--warmup-steps", "0"
    )


def test_a_renamed_checkpoint_is_refused(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = cut(whole, tmp_path / "run", 8) / "checkpoints"
    (folder / "step-00000008").rename(folder / "step-00000012")
    (folder / "latest").write_text("step-00000012")
    assert "is the checkpoint of step 8 under another name" in refused(
        many_shards, tmp_path / "run", capsys
    )


def edited(**changes: object) -> Callable[[Path], None]:
    """Return a function that changes fields of state.json.

    `model__layers` names the field `layers` of the field `model`.
    """

    def edit(checkpoint: Path) -> None:
        state = json.loads((checkpoint / "state.json").read_text())
        for name, value in changes.items():
            *outer, last = name.split("__")
            place = state
            for key in outer:
                place = place[key]
            place[last] = value
        (checkpoint / "state.json").write_text(json.dumps(state))

    return edit


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (edited(step="8"), "Expected `int`, got `str` - at `$.step`"),
        (edited(step=-1), "at `$.step`"),
        (edited(applied=None), "at `$.applied`"),
        (edited(best=[]), "at `$.best`"),
        (edited(best__checkpoint="../x"), "at `$.best.checkpoint`"),
        (edited(reader={"position": [1]}), "at `$.reader"),
        (edited(reader={}), "not a reader's state"),
        (edited(options__model__layers="2"), "at `$.options.model.layers`"),
        (edited(options__model=None), "at `$.options.model`"),
        (edited(options__data__seed=1.5), "at `$.options.data.seed`"),
        (edited(options__data__buckets_per_step=-4), "at `$.options.data`"),
        (edited(version=9), "version 9, but this thdpack reads versions up to 3"),
        (lambda folder: (folder / "state.json").write_text("[" * 100_000), "recursion"),
        (
            lambda folder: (folder / "state.json").write_text("[]"),
            "state.json cannot be read: Expected `object`, got `array`",
        ),
        (
            lambda folder: (folder / "state.json").write_bytes(b"\xff\xfe"),
            "state.json cannot be read",
        ),
    ],
)
def test_the_error_for_an_invalid_state_json_names_the_wrong_field(
    many_shards: Path,
    whole: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[Path], Any],
    message: str,
) -> None:
    out = cut(whole, tmp_path / "run", 8)
    checkpoint = out / "checkpoints" / "step-00000008"
    spoil(checkpoint)
    rehashed(checkpoint)
    assert message in refused(many_shards, out, capsys)


class Program:
    """Object whose pickle calls os.mkdir when it is loaded."""

    def __init__(self, proof: Path) -> None:
        self._proof = proof

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._proof),)


def test_metadata_that_contains_a_program_is_refused_and_not_run(
    many_shards: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = cut(whole, tmp_path / "run", 8)
    checkpoint = out / "checkpoints" / "step-00000008"
    (checkpoint / ".metadata").write_bytes(pickle.dumps(Program(tmp_path / "proof")))
    rehashed(checkpoint)
    assert "posix.mkdir is not part of a checkpoint's metadata" in refused(many_shards, out, capsys)
    assert not (tmp_path / "proof").exists()
    for content in (b"", b"no pickle", pickle.dumps({}), pickle.dumps(3)):
        (checkpoint / ".metadata").write_bytes(content)
        rehashed(checkpoint)
        assert ".metadata cannot be read" in refused(many_shards, out, capsys)
