"""`make site` builds a site without broken links, which needs no other host."""

from __future__ import annotations

import functools
import html
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.site_pages.commands import help_of
from docs.site_pages.github_markdown import for_python_markdown
from docs.site_pages.links import site_links
from pipeline.cli.arguments import short_help
from tests.helpers.processes.command_line import REPO


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site as `make site` does, into a folder of its own. A warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_page_of_a_command_has_every_option_of_its_help(site: Path) -> None:
    commands = re.findall(r"^  (\S+)  ", short_help(), flags=re.MULTILINE)
    assert "preprocess" in commands
    for command in commands:
        page = html.unescape((site / f"reference/commands/{command}.html").read_text())
        options = re.findall(r"^│ (--[a-z0-9-]+)", help_of(command), flags=re.MULTILINE)
        headings = re.findall(r"<h3[^>]*><code>(\S+?)[ <]", page)
        assert options or command in ("run-task", "commit"), command
        assert set(options) <= set(headings), command


def test_the_start_page_is_the_readme_and_every_public_name_has_a_section(site: Path) -> None:
    assert "Σ length²" in (site / "index.html").read_text()
    api = (site / "reference/api/reader.html").read_text()
    bucket = api.split('id="schemas.shard.Bucket"')[1]
    assert "<code>input_ids</code>: uint8[capacity]" in bucket
    assert "&lt;pad&gt;" in bucket
    for name in ("shard_reader.ShardReader", "mixture.Mixture", "adapters.bshd"):
        assert f'id="pipeline.reader.{name}"' in api


@pytest.mark.parametrize("link", ["none.md", "other.md#none"])
def test_a_broken_link_ends_the_build(tmp_path: Path, link: str) -> None:
    """A page with a broken link, in a site with the checks of our own site."""
    checks = (REPO / "mkdocs.yml").read_text().partition("\nvalidation:")[2].partition("\n\n")[0]
    (tmp_path / "mkdocs.yml").write_text(f"site_name: thdpack\nvalidation:{checks}\n")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "other.md").write_text("# Other\n")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    for target, code in (("other.md#other", 0), (link, 1)):
        (tmp_path / "docs" / "index.md").write_text(f"[page]({target})\n")
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
    assert link.partition("#")[0] in done.stderr


def test_links_lead_to_pages_of_the_site_and_missing_files_stay_for_mkdocs_to_report() -> None:
    text = "[a](docs/log.md#x) [b](trainer/train.py) [c](docs/none) `[d](docs/log.md)`"
    expected = "[a](log.md#x) b [c](docs/none) `[d](docs/log.md)`"
    assert site_links(text, "README.md", "index.md", REPO, {}) == expected
    moved = {"README.md": "index.md"}
    shown = site_links("[r](../../README.md)", "docs/guides/data.md", "guides/data.md", REPO, moved)
    assert shown == "[r](../index.md)"


def test_nested_lists_and_code_in_tables_get_the_syntax_of_python_markdown() -> None:
    text = "- a\n  - b\n\n| `x\\|y` |\n\n```\n  - c\n```"
    assert for_python_markdown(text) == "- a\n    - b\n\n| `x|y` |\n\n```\n  - c\n```"


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """Serve the site on this machine, because browsers do not search pages opened from a disk."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_a_browser_finds_an_option_and_asks_no_other_host(address: str) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}/index.html")
        page.click("input.md-search__input")
        page.keyboard.type("sample-clusters")
        page.wait_for_selector(".md-search-result__item a[href*='commands/preprocess.html']")
        browser.close()
    assert asked
    assert not [url for url in asked if not url.startswith((address, "data:", "blob:"))]
