"""Commands and code that pages of the documentation show."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from functools import cache

from markdown_it import MarkdownIt

from tests.helpers.processes.command_line import REPO

PAGES = sorted(
    path.relative_to(REPO).as_posix()
    for path in (*REPO.glob("*.md"), *(REPO / "docs").rglob("*.md"))
    if path.name != "CHANGELOG.md"
)
SCRIPTS = ("sh", "bash", "groovy", "yaml")
"""Languages of fenced blocks that are one program, not one command for each line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snippet:
    """A block of code on a page: fenced, or indented by four spaces."""

    page: str
    line: int
    """Number of its first line on the page. The first line of the page is 1."""
    language: str
    """The word after the opening fence, or an empty string."""
    text: str

    @property
    def commands(self) -> list[str]:
        """Commands of the snippet, each on one line.

        A line that begins with a blank continues the line before it. In a `console` block, only
        lines that begin with `$ ` are commands. A script or a program in Python is one command.
        """
        if self.language in SCRIPTS or self.text.startswith(("import ", "from ")):
            return [self.text.strip()]
        joined = self.text.replace("\\\n", " ")
        if self.language == "console":
            return re.findall(r"^\$ (.*)", joined, flags=re.MULTILINE)
        joined = re.sub(r"\n+[ \t]+", " ", joined)
        lines = [line.removeprefix("$ ").rstrip() for line in joined.splitlines()]
        return [line for line in lines if line and not line.startswith("#")]


@cache
def snippets(page: str) -> tuple[Snippet, ...]:
    """Return the blocks of code on a page, in their order."""
    return tuple(
        Snippet(page=page, line=token.map[0] + 1, language=token.info.strip(), text=token.content)
        for token in MarkdownIt().parse((REPO / page).read_text())
        if token.type in ("fence", "code_block") and token.map
    )


def shell_commands(page: str, *programs: str) -> list[list[str]]:
    """Return the commands of one of `programs` on a page, each as a list of words.

    A line is a command if it is indented by four spaces, begins with `$ `, or both.
    """
    joined = (REPO / page).read_text().replace("\\\n", " ")
    lines = re.findall(
        rf"^(?:    \$ |    |\$ )((?:{'|'.join(programs)}) .*)", joined, flags=re.MULTILINE
    )
    return [shlex.split(line) for line in lines]
