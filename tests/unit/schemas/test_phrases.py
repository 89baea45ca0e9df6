"""Durations in messages."""

from __future__ import annotations

import pytest

from schemas.text.phrases import about, duration


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.01, "under a minute"),
        (59, "under a minute"),
        (90, "1.5 minutes"),
        (5 * 3600, "5.0 hours"),
        (80 * 3600, "3.3 days"),
    ],
)
def test_a_duration_is_in_minutes_hours_or_days(seconds: float, said: str) -> None:
    assert duration(seconds) == said
    assert about(seconds) == (said if seconds < 60 else f"about {said}")
