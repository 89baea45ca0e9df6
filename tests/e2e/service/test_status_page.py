"""The status page of the service, shown in headless Chromium."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.data.corpus import read_manifest
from tests.helpers.data.inboxes import content_of
from tests.helpers.processes.services import Service, drop

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PATIENCE = 100_000.0
"""Time limit in milliseconds for each action of Chromium on a busy machine."""
EVIL = "<script>document.title='owned'<\u202eimg src=x onerror=alert(1)>.fasta"
"""A name that would run a script if it were not escaped, and that reverses the text after it."""


@pytest.fixture
def chromium() -> Iterator[Browser]:
    """Start Chromium. If it is not installed, skip the test, or fail in CI."""
    program = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if program is None:
        assert "CI" not in os.environ, "CI needs Chromium: .ci/run installs it"
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"], timeout=PATIENCE
        )
        yield browser
        browser.close()


def test_the_page_shows_queue_generations_and_rejected_files(
    chromium: Browser, inbox: Path, dataset: Path
) -> None:
    drop(inbox, EVIL, b"no header\n")
    drop(inbox, "good.fasta", content_of(1))
    for path in list(inbox.iterdir()):  # complete without a settle time; later files only wait
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        drop(inbox, f"{path.name}.sha256", f"{digest}  {path.name}\n".encode())
    words = ("--settle", 100_000, "--batch-age", 0, "--workers", 1)
    with Service(inbox, dataset, *words) as service:
        service.wait_until(lambda: service.named("finished") and service.named("rejected"))
        drop(inbox, f"waiting-{EVIL}", content_of(2))
        (inbox / "waiting.fasta.sha256").write_bytes(b"")
        drop(inbox, "waiting.fasta", content_of(3))
        drop(inbox, "broken.fasta.sha256", b"0" * 64)
        drop(inbox, "broken.fasta", content_of(4))
        service.wait_until(lambda: service.metrics()["thdpack_watch_files_waiting"] >= 1)
        url = service.wait_for("listening")["url"]
        manifest = read_manifest(dataset)
        for width, scheme in ((400, "dark"), (1280, "light"), (1280, "dark")):
            context = chromium.new_context(
                color_scheme=scheme,  # type: ignore[arg-type] # one of playwright's literals
                viewport={"width": width, "height": 900},
            )
            context.set_default_timeout(PATIENCE)
            page = context.new_page()
            trouble: list[str] = []
            page.on("console", lambda message, to=trouble: to.append(message.text))
            page.on("pageerror", lambda error, to=trouble: to.append(str(error)))
            page.on("dialog", lambda dialog, to=trouble: to.append(dialog.message))
            page.goto(url)
            assert page.title() == f"ready · {dataset} · thdpack watch"
            assert manifest.digest[:12] in page.locator(".tiles").inner_text()
            rows = page.locator("#rejected tbody tr")
            said = " ".join(rows.all_inner_texts())
            assert "<script>document.title='owned'<\\u202eimg src=x" in said
            assert "not FASTA" in said
            assert page.locator("#generations tbody tr").count() >= 1
            assert page.evaluate(
                "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
            )
            if folder := os.environ.get("THDPACK_SCREENSHOTS"):
                page.screenshot(path=f"{folder}/status-{width}-{scheme}.png", full_page=True)
            page.locator("#generations tbody a").last.click()
            page.wait_for_url("**/reports/2.html")
            assert "dataset" in page.locator("h1").inner_text()
            assert trouble == []
            context.close()
