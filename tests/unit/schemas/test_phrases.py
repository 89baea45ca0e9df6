"""Durations and percentages in messages."""

from __future__ import annotations

import pytest

from schemas.text.phrases import about, duration, percent_of_tokens


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


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1.0, "100.00"),
        (0.9997, "99.97"),
        (0.99999, "99.999"),
        (1 - 1e-9, "99.9999999"),
        (0, "0.00"),
    ],
)
def test_a_fill_below_1_is_never_printed_as_100(share: float, text: str) -> None:
    assert percent_of_tokens(share) == text
