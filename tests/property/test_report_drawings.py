"""Laws of the HTML report's numbers, axes, histograms and flow diagram.

A stream is a band of the flow diagram.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.report.html.flow import Flow, Node, Stream
from pipeline.report.html.input_figures import flow
from pipeline.report.html.plots import Histogram, Series
from pipeline.report.html.svg import Axis, round_steps
from pipeline.report.render.numerals import about, change, duration, percent, size
from schemas.records import Status
from tests.helpers.reports.made_report import made_report


@given(st.floats(0, 1))
def test_only_a_share_of_1_is_written_as_100_percent_and_only_0_as_0_percent(share: float) -> None:
    text = percent(share)
    assert (text == "100\u00a0%") == (share == 1)
    assert (text == "0\u00a0%") == (share == 0)
    digits = text.strip("<>\u00a0%")
    assert float(digits) == pytest.approx(100 * share, abs=0.05)


def test_numbers_are_written_with_readable_units() -> None:
    assert [about(n) for n in (0, 999_999, 186_717_374, 1_048_576_000_000)] == [
        "0",
        "999,999",
        "186.7\u00a0M",
        "1.049\u00a0T",
    ]
    assert [percent(x) for x in (0.6634, 0.99997, 0.0002, 1e-9)] == [
        "66.3\u00a0%",
        "99.997\u00a0%",
        "0.02\u00a0%",
        "<\u00a00.0001\u00a0%",
    ]
    assert [change(x) for x in (0, 0.5, -0.25, -1, 31)] == [
        "no change",
        "+50.0\u00a0%",
        "−25.0\u00a0%",
        "−100\u00a0%",
        "×\u00a032",
    ]
    assert [size(n) for n in (12, 1_500, 222_500_000)] == [
        "12\u00a0B",
        "1.5\u00a0kB",
        "222.5\u00a0MB",
    ]
    assert [duration(h) for h in (0.0001, 0.02, 0.385, 6.1, 72, 2_584, 61_372)] == [
        "0.36\u00a0s",
        "1.2\u00a0min",
        "23.1\u00a0min",
        "6.1\u00a0h",
        "3.0\u00a0days",
        "3.5\u00a0months",
        "7.0\u00a0years",
    ]


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e9), st.integers(1, 10))
def test_ticks_lie_within_the_axis_and_at_most_one_more_than_requested_is_drawn(
    low: float, span: float, most: int
) -> None:
    high = low + span
    ticks = round_steps(low, high, most)
    assert len(ticks) <= most + 1
    assert all(low - 1e-6 * span <= tick <= high + 1e-6 * span for tick in ticks)


@given(
    st.floats(1e-6, 1e6),
    st.floats(1.001, 1e9),
    st.booleans(),
    st.lists(st.floats(0, 1e12), min_size=2, max_size=9),
)
def test_an_axis_keeps_the_order_of_values_and_places_them_within_its_width(
    low: float, ratio: float, log: bool, values: list[float]
) -> None:
    axis = Axis(low=low, high=low * ratio, log=log)
    at = [axis.at(value) for value in sorted(values)]
    assert at == sorted(at)
    assert all(0 <= x <= 100 for x in at)
    assert axis.at(low) == 0
    assert axis.at(low * ratio) == pytest.approx(100)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=40))
def test_the_heights_of_a_histogram_are_proportional_to_its_counts(counts: list[int]) -> None:
    edges = [10.0 * i for i in range(len(counts) + 1)]
    series = Series(name="", colour="c1", edges=edges, heights=counts)
    path = Histogram(
        series=[series], axis=Axis(low=0, high=edges[-1]), label="x", height=300
    ).outline(series)
    heights = [330 - float(y) for y in re.findall(r"V([\d.]+)H", path)]
    top = max(counts) or 1
    assert len(heights) == len(counts)
    for height, count in zip(heights, counts, strict=True):
        assert height == pytest.approx(max(300 * count / top, 1 if count else 0), abs=0.06)


@given(st.lists(st.lists(st.integers(0, 10**6), min_size=3, max_size=3), min_size=1, max_size=9))
def test_the_width_of_a_stream_is_proportional_to_its_amount_and_equal_at_both_ends(
    amounts: list[list[int]],
) -> None:
    streams = [
        Stream(source=i, target=j, amount=n)
        for i, row in enumerate(amounts)
        for j, n in enumerate(row)
    ]
    node = Node(name="", words="")
    flow = Flow(
        sources=[node] * len(amounts), targets=[node] * 3, streams=streams, label="x", height=200
    )
    total = sum(map(sum, amounts)) or 1
    paths = [path for _, path in flow.layout().bands]
    carried = sorted(stream.amount for stream in streams if stream.amount)
    assert len(paths) == len(carried)
    widths = []
    for path in paths:
        found = re.fullmatch(
            r"M1 ([\d.]+)C50 \1 50 ([\d.]+) 99 \2V([\d.]+)C50 \3 50 ([\d.]+) 1 \4Z", path
        )
        assert found is not None
        top_left, top_right, bottom_right, bottom_left = map(float, found.groups())
        assert bottom_left - top_left == pytest.approx(bottom_right - top_right, abs=0.21)
        widths.append(bottom_left - top_left)
    for width, amount in zip(sorted(widths), carried, strict=True):
        assert width == pytest.approx(max(200 * amount / total, 1.5), abs=0.11)


def test_every_status_has_a_node_in_the_flow() -> None:
    report = made_report(records=1_000)
    fates = {status: 10 + i for i, status in enumerate(Status)}
    both = replace(report, by_status=fates, records=sum(fates.values()))
    plot = flow(both).plot
    assert isinstance(plot, Flow)
    assert {node.name for node in plot.targets} == {status.replace("_", " ") for status in Status}
