"""The report as one HTML file: no script, no network, light and dark, on paper, from 340 pixels of width up.

Costs some milliseconds. Whatever comes from outside is escaped where it becomes HTML (`markup.py`); a policy in the page forbids scripts and
fetches besides, should that ever fail.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pipeline.report.html import figures, frame, packing_figures, tables
from pipeline.report.html.comparison import comparison_body
from pipeline.report.html.markup import Child, Markup, tag
from pipeline.report.model import Comparison, Report

_STYLE: Final = Path(__file__).with_name("page.css")
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_HATCH: Final = Markup(
    '<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect width="7" height="7" fill="var(--grid)"/><rect width="2" height="7" fill="var(--hatch)"/></pattern></defs></svg>'
)


def page(report: Report | Comparison) -> str:
    """The whole HTML file."""
    if isinstance(report, Comparison):
        title, body = f"{report.a.name} and {report.b.name}", comparison_body(report)
    else:
        title, body = report.name, _body(report)
    head = (
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"{title} · thdpack"),
        tag("style", Markup(_STYLE.read_text(encoding="utf-8"))),
    )
    return (
        "<!doctype html>\n"
        + tag("html", tag("head", head), tag("body", _HATCH, tag("main", body)), lang="en")
        + "\n"
    )


def _body(report: Report) -> list[Child]:
    return [
        frame.report_heading(report),
        frame.report_tiles(report),
        figures.lengths(report),
        packing_figures.waste(report),
        packing_figures.cost(report),
        figures.composition(report),
        packing_figures.budget(report),
        packing_figures.fill(report),
        packing_figures.sequences(report),
        figures.flow(report),
        tables.splits(report),
        tables.batching(report),
        tables.budget(report),
        tables.inputs(report),
        tables.longest(report),
        tables.repeated(report),
        tables.rare(report),
        tables.duplicates(report),
        tables.settings(report),
        frame.footer(report),
    ]
