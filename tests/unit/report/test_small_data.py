"""The report's budget shows 20 epochs for small data, and a whole published run for large data."""

from __future__ import annotations

from dataclasses import replace

from pipeline.report.html.page import page
from pipeline.report.render import tables
from pipeline.report.render.sentences import small_data
from tests.helpers.reports.made_report import made_report


def test_the_time_of_a_whole_run_is_shown_only_for_large_data() -> None:
    small = made_report()
    assert {"20 epochs"} == set(tables.budget(small).head[4:-1])
    assert "at least 51,590 epochs" in small_data(small)
    rows = tuple(replace(row, epochs=60.0) for row in small.budget.rows)
    large = replace(small, budget=replace(small.budget, rows=rows))
    assert {"whole run", "epochs\nof a run"} == set(tables.budget(large).head[4:-1])
    assert small_data(large) == ""
    for report, wanted in ((small, "FP8, 20 epochs"), (large, "FP8, whole run")):
        text = page(report)
        assert wanted in text
        assert ("memorizing the data" in text) == (report is small)
    assert [
        row.preset for row in rows if f"{row.run_gpu_hours:,.0f} GPU-hours" not in page(large)
    ] == []
