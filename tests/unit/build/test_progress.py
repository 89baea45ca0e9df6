"""Progress of a phase, as plain lines and as a bar."""

from __future__ import annotations

import itertools
import re

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


@pytest.mark.parametrize("name", ["read, tokenize, partition", "MMseqs2 for --exclude " + 60 * "x"])
def test_the_bar_of_a_phase_fits_into_a_line_of_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    for variable, value in (("COLUMNS", "80"), ("TTY_COMPATIBLE", "1"), ("TERM", "xterm")):
        monkeypatch.setenv(variable, value)
    seconds = itertools.count(0.0)
    with progress.TerminalReporter() as report:
        report._bar.get_time = lambda: next(seconds)
        report.phase(name, 250_900_000)
        report.advance(1)
        report.advance(250_899_999)
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err).split("\r")[-1].strip()
    assert len(last.splitlines()) == 1
    assert re.search(r" 250\.9/250\.9 MB [\d.]+ MB/s 0:00:00$", last)
    assert len(last) <= 80
