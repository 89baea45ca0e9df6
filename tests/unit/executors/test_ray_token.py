"""A driver sends the user's token to a Ray cluster, unless the user chose otherwise."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pipeline.executors.ray_connection import use_token


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty home folder; remove Ray's variables from the environment."""
    monkeypatch.setenv("HOME", str(tmp_path))
    # set first, so that monkeypatch also removes a value that the test sets
    monkeypatch.setenv("RAY_AUTH_MODE", "")
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_without_a_token_ray_keeps_its_own_mode() -> None:
    use_token()
    assert "RAY_AUTH_MODE" not in os.environ


@pytest.mark.parametrize("place", ["home", "path", "variable"])
def test_a_token_is_sent(home: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    (home / ".ray").mkdir()
    if place == "variable":
        monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    else:
        file = home / (".ray/auth_token" if place == "home" else "token")
        file.write_text("secret")
    if place == "path":
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(home / "token"))
    use_token()
    assert os.environ["RAY_AUTH_MODE"] == "token"


def test_the_mode_that_the_user_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    use_token()
    assert os.environ["RAY_AUTH_MODE"] == "disabled"
