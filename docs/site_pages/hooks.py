"""Hooks of mkdocs: add generated pages, fill the navigation, and adapt Markdown to mkdocs.

mkdocs.yml names this file. mkdocs calls each function at the stage that its name states:
https://www.mkdocs.org/user-guide/configuration/#hooks
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.site_pages.api import api_pages
from docs.site_pages.commands import command_pages
from docs.site_pages.github_markdown import for_python_markdown
from docs.site_pages.links import site_links
from docs.site_pages.notebook import notebook_page

REPO: Final = Path(__file__).parents[2]
DOCS: Final = REPO / "docs"
ROOT_PAGES: Final = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages outside docs/, and their addresses on the site."""
NOTEBOOKS: Final = {"docs/tutorial.ipynb": "tutorial-notebook.md"}
DECISIONS: Final = {"docs/decisions": "decisions/index.md"}
"""A folder that pages link to, and the page that lists its files."""
GENERATED: Final = {
    "Options of commands": ("commands", command_pages),
    "Python API": ("api", api_pages),
}
"""For sections of the navigation: the folder of the pages, and the function that makes them."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the generated pages and the decisions to the navigation of mkdocs.yml."""
    pages: dict[str, str] = {"decisions/index.md": _list_of_decisions()}
    for source, page in ROOT_PAGES.items():
        pages[page] = (REPO / source).read_text()
    for source, page in NOTEBOOKS.items():
        pages[page] = notebook_page(REPO / source)
    added = {"Decisions": [f"decisions/{path.name}" for path in _decisions()]}
    for section, (folder, generate) in GENERATED.items():
        made = {f"reference/{folder}/{name}": text for name, text in generate().items()}
        pages |= made
        added[section] = list(made)
    config.extra["pages"] = pages
    _fill(config.nav, added)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not files of docs/."""
    for name, text in config.extra["pages"].items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Adapt links and syntax, which are written for the repository's web pages."""
    uri = page.file.src_uri
    moved = {**ROOT_PAGES, **NOTEBOOKS, **DECISIONS}
    sources = {page: source for source, page in {**ROOT_PAGES, **NOTEBOOKS}.items()}
    text = site_links(markdown, sources.get(uri, f"docs/{uri}"), uri, REPO, moved)
    return for_python_markdown(text)


def _fill(nav: Any, added: dict[str, list[str]]) -> None:
    """Append the pages of `added` to the sections of the navigation with the same titles."""
    for entry in nav:
        for title, section in entry.items() if isinstance(entry, dict) else ():
            if isinstance(section, list):
                section.extend(added.get(title, []))
                _fill(section, added)


def _decisions() -> list[Path]:
    return sorted((DOCS / "decisions").glob("[0-9]*.md"))


def _list_of_decisions() -> str:
    titles = {
        path.name: re.sub(r"^# ", "", path.read_text().split("\n", 1)[0]) for path in _decisions()
    }
    lines = [f"- [{title}]({name})" for name, title in titles.items()]
    return "\n".join(
        ["# Decisions", "", "Reasons for the design, one decision per page.", "", *lines]
    )
