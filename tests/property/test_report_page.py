"""Laws of the HTML report's pages that can be tested without a browser."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.report.comparison import Comparison, Overlap
from pipeline.report.distributions import Distribution
from pipeline.report.html.page import page
from pipeline.report.model import Report, SplitReport
from pipeline.report.render.numerals import duration
from pipeline.report.render.printable import shortened
from schemas.records import Status
from tests.helpers.reports.made_packing import NOTHING
from tests.helpers.reports.made_report import HOSTILE, made_comparison, made_report
from tests.helpers.reports.page_tree import Tree

printable_categories = st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs"))
printable = st.text(printable_categories, max_size=60)


def page_of(name: str) -> str:
    """Return the page of a small report in which an input, an option, a record and the report
    itself all have the same name.
    """
    report = made_report(records=100, names=(name,))
    note = replace(report.longest[0], id=name)
    return page(
        replace(
            report, name=name, longest=(note,), settings=replace(report.settings, vocabulary=name)
        )
    )


@settings(max_examples=40)
@given(printable)
def test_any_name_is_shown_as_text(name: str) -> None:
    tree = Tree(page_of(name).removeprefix("<!doctype html>"))
    shown = [
        text
        for (_, attributes), text in zip(tree.elements, tree.text_of, strict=True)
        if attributes.get("class") == "name"
    ]
    assert shown.count(name or "(empty)") >= 3  # in the heading, as an input and as a record
    assert (
        tree.text_of[[element for element, _ in tree.elements].index("title")]
        == f"{name} · thdpack"
    )
    assert {element for element, _ in tree.elements} <= HTML


@settings(max_examples=40)
@given(st.text(printable_categories, min_size=61, max_size=300))
def test_a_long_name_is_shown_in_full_in_its_tooltip(name: str) -> None:
    tree = Tree(page_of(name).removeprefix("<!doctype html>"))
    assert sum(attributes.get("title") == name for _, attributes in tree.elements) >= 3


@settings(max_examples=40)
@given(st.text(max_size=300))
def test_no_control_or_bidirectional_character_reaches_the_page(text: str) -> None:
    written = page_of(text)
    assert not re.search(
        "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]",
        written,
    )
    assert written.encode("utf-8")


@given(st.text(max_size=200), st.integers(3, 80))
def test_a_shortened_name_fits_and_keeps_both_ends(text: str, length: int) -> None:
    short = shortened(text, length)
    assert len(short) <= max(length, len(text) if len(text) <= length else 0)
    assert short == text or (short[0] == text[0] and short[-1] == text[-1])


def nothing_kept() -> Report:
    """Return a report without sequences, because all its records are too short."""
    report = made_report(records=40)
    fates = dict.fromkeys(Status, 0) | {Status.TOO_SHORT: 40}
    inputs = tuple(
        replace(one, by_status=dict.fromkeys(Status, 0) | {Status.TOO_SHORT: one.records})
        for one in report.inputs
    )
    empty = {
        "shards": 0,
        "bytes": 0,
        "buckets": 0,
        "sequences": 0,
        "tokens": 0,
        "fill": 0.0,
        "spread": 0.0,
        "peak": 0.0,
        "seqs_max": 0,
    }
    splits = tuple(
        SplitReport(
            name=n, fill_counts=NOTHING, cost_counts=NOTHING, sequences_counts=NOTHING, **empty
        )
        for n in ("train", "valid")
    )
    letters = tuple(replace(letter, count=0, share=0.0) for letter in report.composition.letters)
    return replace(
        report,
        by_status=fates,
        inputs=inputs,
        residues_kept=0,
        tokens=0,
        splits=splits,
        waste=(),
        budget=replace(report.budget, tokens=0, rows=()),
        composition=replace(report.composition, letters=letters),
        repeated=(),
        duplicates=(),
        lengths=replace(report.lengths, cropped=0, residues_cropped=0),
    )


def one_bucket() -> Report:
    """Return a report of ten records of one length, in one bucket with a fill of 20 %."""
    report = made_report(records=10, names=("a.fasta",))
    one = Distribution(edges=(7_000.0, 7_100.0), counts=(1,))
    split = replace(
        report.splits[0],
        buckets=1,
        fill=0.2,
        fill_counts=Distribution(edges=(20.0, 21.0), counts=(1,)),
        cost_counts=one,
    )
    same = replace(
        report.lengths,
        shortest=10,
        longest=10,
        histogram=Distribution(edges=tuple(map(float, range(12))), counts=(*[0] * 10, 10)),
    )
    return replace(
        report,
        lengths=replace(same, percentiles=dict.fromkeys(same.percentiles, 10)),
        splits=(replace(split, sequences_counts=Distribution(edges=(10.0, 11.0), counts=(1,))),),
        waste=tuple(replace(way, cost_counts=way.cost_counts and one) for way in report.waste),
    )


REPORTS = {
    "dataset": made_report,
    "FASTA": lambda: made_report(kind="fasta"),
    "60 inputs": lambda: made_report(names=[f"{HOSTILE}{i}" for i in range(60)]),
    "nothing kept": nothing_kept,
    "one bucket": one_bucket,
    "pieces": lambda: replace(
        made_report(), settings=replace(made_report().settings, long="split")
    ),
    "left out": lambda: replace(
        made_report(), settings=replace(made_report().settings, long="drop")
    ),
    "two": made_comparison,
    "two, one empty": lambda: replace(
        made_comparison(),
        b=nothing_kept(),
        overlap=Overlap(only_a=0, only_b=0, both=0, residues_both=0),
    ),
}


@pytest.mark.parametrize("made", REPORTS.values(), ids=REPORTS)
def test_no_page_has_nan_or_a_mark_outside_its_plot(
    made: Callable[[], Report | Comparison],
) -> None:
    tree = Tree(page(made()).removeprefix("<!doctype html>"))
    ids = [attributes["id"] for _, attributes in tree.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for _, attributes in tree.elements:
        for key in ("x", "x1", "x2", "cx", "width"):
            value = attributes.get(key) or ""
            if value.endswith("%"):
                assert 0 <= float(value[:-1]) <= 100.001
        for key in ("y", "y1", "y2", "cy", "height"):
            assert math.isfinite(float(attributes.get(key) or 0))
        assert "nan" not in (attributes.get("d") or "")
        assert "inf" not in (attributes.get("d") or "")
    assert {name for name, _ in tree.elements} <= HTML


HTML = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "main",
        "header",
        "footer",
        "section",
        "figure",
        "figcaption",
        "div",
    ),
    *(
        "h1",
        "h2",
        "h3",
        "p",
        "b",
        "bdi",
        "span",
        "dl",
        "dt",
        "dd",
        "ul",
        "li",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    ),
    *("svg", "defs", "pattern", "rect", "line", "path", "circle", "text", "g"),
}


def test_a_page_shows_the_numbers_of_its_report() -> None:
    report = made_report()
    text = "".join(Tree(page(report).removeprefix("<!doctype html>")).text)
    wanted = [
        report.records,
        report.residues_in,
        report.tokens - report.splits[1].tokens,
        report.lengths.longest,
        report.lengths.cropped,
    ]
    wanted += (
        [way.places for way in report.waste]
        + [one.records for one in report.inputs]
        + [letter.count for letter in report.composition.letters[20:]]
    )
    wanted += (
        [note.residues for note in report.longest]
        + [note.times for note in report.repeated]
        + [split.buckets for split in report.splits]
    )
    assert [number for number in wanted if f"{number:,}" not in text] == []
    assert report.headers is not None
    shown = [*report.headers.databases, *report.headers.existence, *report.headers.taxa]
    wanted = [group.residues_kept for group in (*shown, *report.headers.fragments)]
    wanted += [
        report.against[0].entries,
        report.against[0].in_records,
        4_301,
        515,
        61_616,
        717,
        1_818,
    ]
    assert [number for number in wanted if f"{number:,}" not in text] == []
    assert [
        row.preset for row in report.budget.rows if duration(row.few_epochs_gpu_hours) not in text
    ] == []


def test_hostile_names_are_text_on_every_page() -> None:
    for made in REPORTS.values():
        tree = Tree(page(made()).removeprefix("<!doctype html>"))
        assert "<script>" in "".join(tree.text)
        assert not any(name in ("script", "img") for name, _ in tree.elements)
