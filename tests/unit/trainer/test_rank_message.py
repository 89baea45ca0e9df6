"""If all ranks have the same error, only rank 0 prints it. Each rank prints any other error."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import torch.distributed as dist

from trainer.distributed import rank_message
from trainer.distributed.rank_message import say_error


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Look for the error of rank 0 only once, and restore the handler that `say_error` replaces.

    Other tests run other commands in this process, so name the command again.
    """
    monkeypatch.setattr(rank_message, "_command", "thdpack train")
    times = iter((0.0, 0.0))
    monkeypatch.setattr(rank_message.time, "monotonic", lambda: next(times, float("inf")))
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_rank_is_silent_if_rank_0_has_the_same_error(capsys: pytest.CaptureFixture[str]) -> None:
    errors = dist.HashStore()
    for rank in (0, 1):
        say_error(rank, "no such folder", errors)
    assert capsys.readouterr().err == "thdpack train: no such folder\n"


@pytest.mark.parametrize("of_rank_0", ["", "no such folder"])
def test_a_rank_prints_an_error_that_rank_0_does_not_have(
    of_rank_0: str, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = dist.HashStore()
    if of_rank_0:
        say_error(0, of_rank_0, errors)
    say_error(1, "no GPU", errors)
    assert capsys.readouterr().err.endswith("thdpack train, rank 1: no GPU\n")
