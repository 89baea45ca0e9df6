"""In a dataset's card, Markdown and YAML show any name as plain text."""

from __future__ import annotations

import os
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.report.card.markup import code, escaped, table, yaml_text
from pipeline.report.render.printable import printable

SOME = settings(deadline=None, max_examples=2_000 if os.environ.get("THDPACK_LONG") else 60)
NAMES = st.text(max_size=30) | st.text(
    alphabet="_*`|\\<>&[](){}#!~-+.:@/$'\" \n\twa1é", max_size=30
)


class Cells(HTMLParser):
    """Text of each table cell, and the names of all tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: set[str] = set()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        if self.cells:
            self.cells[-1] += data.rstrip("\n")


def one_line(text: str) -> str:
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


@SOME
@given(NAMES)
def test_markdown_shows_any_name_as_plain_text(name: str) -> None:
    markdown_it = pytest.importorskip("markdown_it", reason="markdown-it-py is not installed")
    parser = markdown_it.MarkdownIt("commonmark", {"html": True}).enable("table")
    text = table(("name", "again"), [(code(name), escaped(f"x{name}x"))])
    found = Cells(parser.render(text))
    assert found.tags <= {"table", "thead", "tbody", "tr", "th", "td", "code"}
    assert found.cells[2] == one_line(name)
    assert found.cells[3] == f"x{one_line(name)}x"


@SOME
@given(NAMES)
def test_no_name_becomes_a_link_or_a_comment(name: str) -> None:
    text = escaped(name)
    assert not re.search(r"://|www\.|@|<|>", text)
    assert "thdpack-card:" not in escaped(f"thdpack-card:{name}")


@SOME
@given(NAMES)
def test_any_name_written_as_yaml_is_read_back(name: str) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    assert yaml.safe_load(f"name: {yaml_text(name)}") == {"name": printable(name)}
