"""Progress of a phase, as plain lines."""

from __future__ import annotations

import pytest

import pipeline.build.progress.reporter as progress


@pytest.mark.parametrize(
    ("total", "said"), [(0, "running, 40 s so far"), (4_000_000, "50 %, 0 MB/s, about 40 s left")]
)
def test_a_phase_of_unknown_size_shows_its_duration_instead_of_a_share(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], total: int, said: str
) -> None:
    clock = iter([100.0, 140.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    report = progress.PlainReporter()
    report.phase("MMseqs2 for --clusters mmseqs:0.5", total)
    report.advance(2_000_000)
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"MMseqs2 for --clusters mmseqs:0.5: {said}"
