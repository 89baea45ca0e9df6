"""`thdpack stats --serve` in its own process: requests, a page in Chromium, refused options."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.e2e.report.test_page import PATIENCE, chromium  # noqa: F401 (a fixture)
from tests.helpers.data.corpus import fasta, made_records, read_manifest
from tests.helpers.processes.command_line import REPO, command, environment, run_here
from tests.helpers.processes.forks import GIVE_UP_SECONDS
from tests.helpers.processes.started import start, stopping_after_outcomes

SIZES = ("--capacity", "512", "--max-seq-len", "256")


class Page:
    """A running `stats --serve`."""

    def __init__(self, dataset: Path) -> None:
        words = command("stats", str(dataset), "--serve")
        self.process = subprocess.Popen(
            words, cwd=REPO, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = self.process.stdout.readline().decode()
        self.errors: list[str] = []
        lines = self.process.stderr
        self.reading = threading.Thread(
            target=lambda: self.errors.extend(line.decode() for line in lines)
        )
        self.reading.start()
        assert line.startswith("serving the report at http://127.0.0.1:"), (line, self.errors)
        self.url = line.split()[4]
        self.port = urlsplit(self.url).port

    def get(self, path: str, *, host: str = "", method: str = "GET") -> tuple[int, bytes]:
        """Return the status code and the body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, headers={"Host": host} if host else {})
        answer = connection.getresponse()
        found = answer.status, answer.read()
        connection.close()
        return found

    def state(self) -> dict[str, Any]:
        return dict(json.loads(self.get("/state.json")[1]))

    def wait_for(self, condition: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        """Wait until the state fulfils a condition, and return this state."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while not condition(state := self.state()):
            assert time.monotonic() < deadline, state
            time.sleep(0.05)
        return state

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        code = self.process.wait(GIVE_UP_SECONDS)
        self.reading.join()
        return code


@contextmanager
def serving(dataset: Path) -> Iterator[Page]:
    page = Page(dataset)
    try:
        yield page
    finally:
        page.end(signal.SIGKILL)


def written(path: Path, seed: int) -> Path:
    path.write_bytes(fasta(made_records(40, seed=seed, longest=100)))
    return path


def test_the_page_shows_progress_and_then_the_report_and_answers_nothing_else(
    tmp_path: Path,
) -> None:
    source, out = written(tmp_path / "a.fasta", 1), tmp_path / "out"
    build = start(
        *("preprocess", source, "--out", out, *SIZES, "--workers", 1),
        setup=stopping_after_outcomes(1),
    )
    build.wait_until_stopped()
    with serving(out) as page:
        state = page.state()
        assert state["report"] == ""
        assert state["build"]["running"]
        assert "preprocess" in state["build"]["text"]
        assert f"pid {build.pid} on " in state["build"]["text"]
        assert "read, tokenize, partition: " in state["build"]["text"]
        assert page.get("/report.html")[0] == 404
        build.send_signal(signal.SIGCONT)
        build.communicate()
        assert build.returncode == 0
        assert not (out / ".build").exists()
        state = page.wait_for(lambda state: state["report"])
        assert state == {
            "build": None,
            "report": read_manifest(out).digest,
            "generation": 1,
            "trouble": "",
        }
        code, report = page.get(f"/report.html?{state['report']}")
        assert code == 200
        assert b"40" in report
        for path in ("/manifest.json", "/../out/manifest.json", "/%2e%2e/a.fasta", "//etc/passwd"):
            assert page.get(path) == (404, b"not found\n"), path
        assert page.get("/", host=f"localhost:{page.port}")[0] == 200
        for host in ("evil.example", f"evil.example:{page.port}", "127.0.0.1.evil.example:80"):
            assert page.get("/state.json", host=host)[0] == 421, host
        assert page.get("/", method="HEAD") == (200, b"")
        assert page.get("/", method="POST")[0] == 501
        done = run_here("stats", out, "--serve", "--port", page.port)
        assert done.returncode == 2
        assert f"cannot listen at 127.0.0.1:{page.port}: " in done.stderr
        assert "choose another --port" in done.stderr
        assert page.end(signal.SIGINT) == 130
        assert page.errors == ["shows generation 1\n", "thdpack stats: interrupted\n"]


def test_the_page_names_a_build_that_was_killed(tmp_path: Path) -> None:
    source, out = written(tmp_path / "a.fasta", 1), tmp_path / "out"
    build = start(
        *("preprocess", source, "--out", out, *SIZES, "--workers", 1),
        setup=stopping_after_outcomes(1),
    )
    build.wait_until_stopped()
    build.kill()
    build.communicate()
    with serving(out) as page:
        found = page.state()["build"]
    assert not found["running"]
    assert "stopped in the stage “read, tokenize, partition”" in found["text"]
    assert "Run the same command to resume it." in found["text"]


def test_an_open_page_shows_the_new_report_after_an_append(
    chromium: Any,  # noqa: F811 (the fixture)
    built: Path,
    tmp_path: Path,
) -> None:
    dataset = Path(shutil.copytree(built, tmp_path / "dataset"))
    with serving(dataset) as served:
        context = chromium.new_context(viewport={"width": 1000, "height": 700})
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        trouble: list[str] = []
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.goto(served.url)
        report = page.frame_locator("#report")
        report.get_by_text("· generation 1").first.wait_for()
        page.evaluate("document.loadedOnce = true")
        frame = page.frames[1]
        frame.evaluate("scrollTo(0, 300)")
        added = written(tmp_path / "more.fasta", 2)
        done = run_here("append", dataset, added)
        assert done.returncode == 0, done.stderr
        report.get_by_text("· generation 2").first.wait_for()
        assert page.locator("#generation").inner_text() == "generation 2"
        assert "No build is running" in page.locator("#build").inner_text()
        assert page.evaluate("document.loadedOnce")
        page.wait_for_function("document.getElementById('report').contentWindow.scrollY === 300")
        if folder := os.environ.get("THDPACK_SCREENSHOTS"):
            page.screenshot(path=f"{folder}/serve.png")
        assert trouble == []
        assert served.end(signal.SIGTERM) == 130
        page.get_by_text("The server has ended").wait_for()
        # Chromium has several names for a connection that the end of the server has closed
        assert [text for text in trouble if "net::ERR_" not in text] == []
        context.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{dataset}", "--port", "80"], "--port needs --serve"),
        (["{dataset}", "--open"], "--open needs --serve"),
        (["{dataset}", "--serve", "--html", "x.html"], "leave out --html"),
        (["{dataset}", "{dataset}", "--serve"], "--serve needs one dataset"),
        (["data/sample.fasta", "--serve"], "--serve needs one dataset"),
        (["{dataset}", "--serve", "--port", "70000"], "--port is 70000, expected 0 to 65,535"),
    ],
)
def test_options_that_do_not_fit_serve_are_usage_errors(
    built: Path, words: list[str], said: str
) -> None:
    done = run_here("stats", *(word.format(dataset=built) for word in words))
    assert done.returncode == 2
    assert said in done.stderr
