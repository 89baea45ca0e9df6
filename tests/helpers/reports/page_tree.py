"""The elements and the text of a page of the HTML report."""

from __future__ import annotations

from html.parser import HTMLParser


class Tree(HTMLParser):
    """Elements and text of a page. Every element must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[int] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.text_of: list[str] = []
        """Text directly inside each element, in the order of `elements`."""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attributes)))
        self.text_of.append("")
        if name != "meta":
            self.open.append(len(self.elements) - 1)

    def handle_endtag(self, name: str) -> None:
        assert self.elements[self.open.pop()][0] == name

    def handle_data(self, data: str) -> None:
        if self.open:
            self.text_of[self.open[-1]] += data
        if not self.open or self.elements[self.open[-1]][0] != "style":
            self.text.append(data)
