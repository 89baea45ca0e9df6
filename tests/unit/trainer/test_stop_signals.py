"""Messages after stop signals."""

from __future__ import annotations

import signal

import pytest

from trainer.distributed.stop_signals import explained


@pytest.mark.parametrize(
    ("number", "ranks", "said"),
    [
        (
            signal.SIGINT,
            1,
            "stopping after this step, with a checkpoint; Ctrl-C again stops now, without one",
        ),
        (signal.SIGTERM, 1, "SIGTERM received: stopping after this step, with a checkpoint"),
        (
            signal.SIGTERM,
            8,
            "SIGTERM received (sent by a scheduler, or by torchrun because another rank has "
            "ended): stopping after the next step, with a checkpoint",
        ),
        (signal.SIGUSR1, 8, "SIGUSR1 received: stopping after the next step, with a checkpoint"),
    ],
)
def test_only_the_message_after_ctrl_c_mentions_ctrl_c(number: int, ranks: int, said: str) -> None:
    assert explained(number, ranks=ranks) == said


def test_after_the_last_step_the_message_names_the_work_that_is_still_completed() -> None:
    said = explained(signal.SIGINT, ranks=8, last_work="the export")
    assert said == "stopping after the export; Ctrl-C again stops now"
