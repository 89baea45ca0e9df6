"""The HTML report of datasets with hostile names, shown in headless Chromium."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.data.corpus import fasta, made_records, with_headers
from tests.helpers.processes.command_line import preprocess, run_here

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page
from tests.helpers.reports.page_scripts import FAINT, PLOTS_SHOWN

PATIENCE = 100_000.0
"""Time limit in milliseconds for each action of Chromium on a busy machine."""
FILE = "<script>document.title='owned'<img src=x onerror=document.title='owned'>.fasta"
ID = "<script>document.title='owned'</script>"
MISLEADING = "\u202egnp.exe\x1b[31m"
"""Text that reverses the direction of the text after it and changes a terminal's colour."""
PLOTS = {
    "dataset": {
        *("lengths", "waste", "cost", "composition", "budget", "fill", "sequences", "flow", "taxa"),
    },
    "fasta": {"lengths", "waste", "cost", "composition", "budget", "fill", "sequences", "flow"},
    "comparison": {"overlap", "lengths", "composition", "waste", "cost"},
}
VIEWS = [
    (400, "light"),
    (1600, "dark"),
    *([(400, "dark"), (1600, "light")] if "THDPACK_LONG" in os.environ else []),
]
"""Widths and colour schemes in which each page is tested."""
MARKS = {
    "composition": 20,
    "budget": 16,
    "waste": 4,
    "cost": 2,
    "flow": 4,
    "taxa": 5,
    "overlap": 2,
    "lengths": 1,
    "fill": 1,
    "sequences": 1,
}
"""Minimum number of drawn elements (areas, bars, dots, streams) in each plot."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Start Chromium through playwright. If it is not installed, skip the tests, or fail in CI."""
    program = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if program is None:
        assert "CI" not in os.environ, "CI needs Chromium: .ci/run installs it"
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program,
            args=["--no-sandbox"],
            timeout=PATIENCE,
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write a report page of each kind: dataset, FASTA, comparison."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "in").mkdir()
    (folder / "in" / "plain.fasta").write_bytes(
        fasta(with_headers(made_records(900, longest=1500)))
    )
    evil = [(ID, "MKVLAAGIVGLCAKAYLVMK")] * 40 + [(MISLEADING, "MKVLW" * 400), ("short", "M")]
    (folder / "in" / FILE).write_bytes(fasta(evil + made_records(700, longest=900, seed=3)))
    options = (
        "--capacity",
        "4096",
        "--max-seq-len",
        "512",
        "--min-residues",
        "2",
        "--split",
        "valid=0.1",
    )
    a, b = (
        preprocess(folder / "in", folder / "a", *options),
        preprocess(folder / "in" / "plain.fasta", folder / "b", *options),
    )
    against = ("--against", folder / "in" / FILE)
    made = {"dataset": (a, *against), "fasta": (folder / "in",), "comparison": (a, b)}
    for kind, named in made.items():
        done = run_here("stats", *named, "--html", folder / f"{kind}.html")
        assert done.returncode == 0, done.stderr
    return {kind: folder / f"{kind}.html" for kind in made}


@dataclass(frozen=True, slots=True)
class Watched:
    """An open page, with its console messages, errors, dialogs and requests."""

    page: Page
    trouble: list[str]


@pytest.fixture(scope="module")
def watched(chromium: Browser, pages: dict[str, Path]) -> Iterator[Callable[[str, bool], Watched]]:
    """Return a function that loads a page, with or without scripts. Tests share loaded pages."""
    contexts: list[BrowserContext] = []

    @cache
    def load(kind: str, scripts: bool) -> Watched:
        trouble: list[str] = []
        address = pages[kind].as_uri()
        context = chromium.new_context(java_script_enabled=scripts)
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: trouble.append(f"error: {error}"))
        page.on("dialog", lambda dialog: trouble.append(f"dialog: {dialog.message}"))
        page.on("request", lambda request: trouble.append(f"request: {request.url}"))
        page.goto(address)
        trouble.remove(f"request: {address}")
        return Watched(page, trouble)

    yield load
    for context in contexts:
        context.close()


@pytest.fixture
def opened(watched: Callable[[str, bool], Watched]) -> Iterator[Any]:
    """Return a function that shows a page. Afterwards, check that the page caused no console
    message, error, dialog or request.
    """
    used: list[Watched] = []

    def show(kind: str, width: int = 1600, scheme: Any = "light", scripts: bool = True) -> Page:
        found = watched(kind, scripts)
        used.append(found)
        found.page.set_viewport_size({"width": width, "height": 900})
        found.page.emulate_media(media="screen", color_scheme=scheme)
        found.page.mouse.move(0, 0)
        return found.page

    yield show
    assert [trouble for found in used for trouble in found.trouble] == []


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
@pytest.mark.parametrize("kind", PLOTS)
def test_every_plot_is_drawn_inside_its_card_without_overlapping_text(
    opened: Any, kind: str, width: int, scheme: str
) -> None:
    page = opened(kind, width, scheme)
    found = page.evaluate(PLOTS_SHOWN)
    assert set(found) == {f"plot-{name}" for name in PLOTS[kind]}
    for name, plot in found.items():
        assert plot["marks"] >= MARKS[name.removeprefix("plot-")], f"{name} draws too few marks"
        assert plot["width"] >= 0.7 * width / (1 if width == 400 else 2.6), (
            f"{name} does not fill its column"
        )
        assert plot["height"] >= 60, name
        assert len(plot["label"]) > 20, f"{name} has no description for screen readers"
        assert plot["outside"] == [], f"{name} has text outside its card"
        assert plot["colliding"] == [], f"{name} has overlapping text"
        assert plot["smallest"] >= 12, f"{name} has text below 12 pixels"
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("kind", PLOTS)
def test_markup_in_names_is_shown_as_text(opened: Any, kind: str) -> None:
    page = opened(kind)
    active = "script, img, iframe, object, embed, link, base, form"
    assert page.evaluate(f"document.querySelectorAll('{active}').length") == 0
    handlers = (
        "[...document.querySelectorAll('*')].flatMap(e => [...e.attributes])"
        ".filter(a => a.name.startsWith('on')).length"
    )
    assert page.evaluate(handlers) == 0
    assert "owned" not in page.title()
    text = page.inner_text("body")
    assert "<script>document.title=" in text
    assert "\u202e" not in text
    assert "\x1b" not in text
    if kind != "comparison":  # a comparison lists no records
        assert ID in text
        assert "\\u202egnp.exe\\x1b[31m" in text


def test_a_bin_under_the_pointer_shows_its_counts(opened: Any) -> None:
    page = opened("dataset", 400)
    said = page.locator("#plot-lengths .said")
    shown = (
        "elements => elements.filter(e => getComputedStyle(e).visibility === 'visible')"
        ".map(e => e.textContent)"
    )
    assert said.evaluate_all(shown) == []
    page.locator("#plot-lengths .hit .catch").nth(3).hover()
    (words,) = said.evaluate_all(shown)
    assert "residues: " in words
    assert "record" in words


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", PLOTS)
def test_the_contrast_of_all_text_is_at_least_4_5(opened: Any, kind: str, scheme: str) -> None:
    page = opened(kind, 1600, scheme)
    faint = page.evaluate(FAINT)
    assert faint == []


def test_colour_schemes_follow_the_browser(opened: Any) -> None:
    backgrounds = [
        opened("dataset", 1600, scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    ]
    light, dark = (sum(map(float, value.strip("rgb()").split(","))) / 3 for value in backgrounds)
    assert light > 230
    assert dark < 40


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_printed_page_has_white_cards_and_fits_its_width(opened: Any, scheme: str) -> None:
    page = opened("dataset", 700, scheme)
    page.emulate_media(media="print", color_scheme=scheme)
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.card')).backgroundColor")
        == "rgb(255, 255, 255)"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 700
    assert {
        name: plot["outside"]
        for name, plot in page.evaluate(PLOTS_SHOWN).items()
        if plot["outside"]
    } == {}
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_a_page_has_the_same_text_without_scripts(opened: Any, pages: dict[str, Path]) -> None:
    assert opened("dataset").inner_text("body") == opened("dataset", scripts=False).inner_text(
        "body"
    )


def test_a_page_is_one_small_file_without_external_references(pages: dict[str, Path]) -> None:
    for path in pages.values():
        text = path.read_text(encoding="utf-8")
        assert len(text.encode()) < 2_000_000
        assert "default-src 'none'" in text.replace("&#x27;", "'")
        assert not re.search(r"<script|@import|url\((?!#)", text)
