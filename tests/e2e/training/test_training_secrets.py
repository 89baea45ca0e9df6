"""Credentials in a dataset's URL appear in no file, no message and no data sent to services."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.manifest import Manifest
from tests.helpers.processes.runs import losses, train
from tests.helpers.stores.stores import http_store


def holding(folder: Path, secret: str) -> list[Path]:
    return [
        path
        for path in folder.rglob("*")
        if path.is_file() and secret.encode() in path.read_bytes()
    ]


def test_credentials_are_written_nowhere_and_the_run_resumes_with_new_credentials(
    many_shards: Path,
    whole: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[Any] = []
    service = SimpleNamespace(log=lambda *_, **__: None, finish=lambda: None)
    monkeypatch.setitem(
        sys.modules,
        "wandb",
        SimpleNamespace(init=lambda **words: sent.append((words, list(sys.argv))) or service),
    )
    out = tmp_path / "run"
    flags = (
        "--cache-dir",
        str(tmp_path / "cache"),
        "--wandb-project",
        "p",
        "--warmup-steps",
        "2",
        "--buckets-per-step",
        "4",
    )
    with http_store(many_shards) as address:
        for secret, steps in (("hunter2", 4), ("hunter3", 8)):
            url = address.replace("http://", f"http://somebody:{secret}@")
            monkeypatch.setattr(sys, "argv", ["train.py", "--data", url])
            train(url, out, *flags, steps=steps)
    assert set(losses(out)) == set(range(1, 9))
    said = capsys.readouterr().err + json.dumps(sent, default=str)
    for secret in ("hunter2", "hunter3", "somebody"):
        assert secret not in said
        assert not holding(tmp_path, secret)
    assert address in (out / "options.json").read_text()  # the rest of the URL is kept
    assert address in (out / "checkpoints" / "step-00000008" / "state.json").read_text()


def test_an_error_shows_no_credentials(
    build_here: Callable[..., Manifest],
    sample: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    build_here(sample, tmp_path / "padded", length_multiple=8)
    with http_store(tmp_path) as address:
        for name, message in (("padded", "attend to padding"), ("missing", "missing")):
            with pytest.raises(SystemExit):
                train(
                    address.replace("http://", "http://somebody:hunter2@") + f"/{name}",
                    tmp_path / "run",
                    "--cache-dir",
                    str(tmp_path / "cache"),
                )
            said = capsys.readouterr().err
            assert message in said
            assert "hunter2" not in said
            assert "somebody" not in said
