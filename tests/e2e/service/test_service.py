"""Options, locks and signals of `thdpack watch`."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from tests.helpers.data.corpus import read_manifest
from tests.helpers.data.inboxes import check_dataset, check_metrics, content_of, names_in
from tests.helpers.processes.command_line import Run
from tests.helpers.processes.services import Service, append_of, drop

QUICK = ("--settle", 0, "--batch-age", 0, "--workers", 1, "--no-report")
ONCE = (*QUICK[:2], "--workers", 1, "--once", "--no-http", "--no-report")


def test_once_takes_the_files_in_the_inbox_and_ends(
    run_process: Run, inbox: Path, dataset: Path
) -> None:
    for number in range(3):
        drop(inbox, f"{number}.fasta", content_of(number))
    done = run_process("watch", inbox, "--dataset", dataset, *ONCE)
    assert done.returncode == 0, done.stderr
    assert names_in(inbox / "taken" / "2") == ["0.fasta", "1.fasta", "2.fasta"]
    assert check_dataset(dataset).generation == 2
    drop(inbox, "bad.fasta", b"no header\n")
    drop(inbox, "good.fasta", content_of(4))
    done = run_process("watch", inbox, "--dataset", dataset, *ONCE)
    assert done.returncode == 1
    assert check_dataset(dataset).generation == 3
    assert run_process("watch", inbox, "--dataset", dataset, *ONCE).returncode == 0
    assert read_manifest(dataset).generation == 3


def test_files_with_known_content_are_recognised_under_any_name(inbox: Path, dataset: Path) -> None:
    drop(inbox, "a.fasta", content_of(1))
    with Service(inbox, dataset, *QUICK) as service:
        service.wait_for("finished")
        before = read_manifest(dataset)
        drop(inbox, "a.fasta", content_of(1))
        service.wait_for("finished", count=2)
        drop(inbox, "renamed.fasta", content_of(1))
        service.wait_for("finished", count=3)
        assert read_manifest(dataset) == before
        of = [event["duplicate_of"] for event in service.named("duplicate")]
        assert of == ["a.fasta of generation 2"] * 2
        metrics = check_metrics(service, before)
        assert metrics["thdpack_watch_files_duplicate_total"] == 2
        assert metrics["thdpack_watch_files_taken_total"] == 3
    assert names_in(inbox / "taken") == ["a.fasta", "a.fasta~1", "renamed.fasta"]


def test_twins_in_one_batch_are_appended_once(run_process: Run, inbox: Path, dataset: Path) -> None:
    for name in ("a.fasta", "b.fasta"):
        drop(inbox, name, content_of(1))
    done = run_process("watch", inbox, "--dataset", dataset, *ONCE)
    assert '"file": "b.fasta", "duplicate_of": "a.fasta"' in done.stdout
    assert [entry.name for entry in check_dataset(dataset).inputs] == ["first.fasta", "a.fasta"]
    assert names_in(inbox / "taken") == ["a.fasta", "b.fasta"]


def test_after_each_generation_the_report_is_written_and_the_hook_runs(
    inbox: Path, dataset: Path, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    hook = f'echo "$THDPACK_DATASET $THDPACK_GENERATION $THDPACK_DIGEST" >> {said}; exit 3'
    drop(inbox, "a.fasta", content_of(1))
    with Service(inbox, dataset, *QUICK[:-1], "--on-generation", hook) as service:
        service.wait_for("finished")
        drop(inbox, "copy.fasta", content_of(1))  # a duplicate makes no generation
        service.wait_for("finished", count=2)
        manifest = check_dataset(dataset)
        assert said.read_text() == f"{dataset} 2 {manifest.digest}\n"
        assert (dataset / "reports" / "2.html").read_text().startswith("<!doctype html>")
        code, page = service.get("/reports/2.html")
        assert (code, page) == (200, (dataset / "reports" / "2.html").read_text())
        assert service.get("/reports/1.html")[0] == 404
        assert check_metrics(service, manifest)["thdpack_watch_hook_failures_total"] == 1
        assert service.get("/readyz")[0] == 200


def test_of_two_services_one_waits_and_names_the_other(inbox: Path, dataset: Path) -> None:
    with Service(inbox, dataset, *QUICK) as first:
        first.wait_for("started")
        with Service(inbox, dataset, *QUICK) as second:
            reason = second.wait_for("waiting")["reason"]
            assert f"held by pid {first.pid} on {os.uname().nodename} since " in reason
            assert "watch" in reason
            code, said = second.get("/readyz")
            assert code == 503
            assert f"held by pid {first.pid}" in said
            assert second.get("/healthz") == (200, "ok\n")
            drop(inbox, "a.fasta", content_of(1))
            first.wait_for("finished")
            first.kill()
            second.wait_for("started")
            drop(inbox, "b.fasta", content_of(2))
            second.wait_for("finished")
            check_metrics(second, check_dataset(dataset))
    assert read_manifest(dataset).generation == 3


def test_a_service_waits_for_an_append_and_names_it(inbox: Path, dataset: Path) -> None:
    """The lock file names the holder of the lock, in the form that a running append writes."""
    import fcntl  # here, because only this test locks a file itself

    work = dataset / ".build"
    work.mkdir()
    with (work / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        holder = {"pid": 7, "host": "far", "since": "today", "command": "thdpack append x"}
        lock.write(json.dumps(holder))
        lock.flush()
        drop(inbox, "a.fasta", content_of(1))
        with Service(inbox, dataset, *QUICK) as service:
            reason = service.wait_for("waiting")["reason"]
            assert "held by pid 7 on far since today: thdpack append x" in reason
            assert service.get("/readyz")[0] == 503
            fcntl.flock(lock, fcntl.LOCK_UN)
            service.wait_for("finished")
            assert service.get("/readyz")[0] == 200
            assert not service.named("error")
    check_dataset(dataset)


def test_sigterm_ends_an_idle_service_at_once(inbox: Path, dataset: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with Service(inbox, dataset, *QUICK) as service:
            service.wait_for("started")
            assert service.end(number) == 0
            assert service.named("stopped")


def test_sigterm_ends_a_service_with_a_hanging_append_within_10_seconds(
    inbox: Path, dataset: Path
) -> None:
    drop(inbox, "a.fasta", content_of(1))
    with Service(inbox, dataset, *QUICK) as service:
        child = service.wait_until(lambda: append_of(service.pid))
        os.kill(child, signal.SIGSTOP)  # a stopped child can neither finish nor exit
        started = time.monotonic()
        assert service.end(signal.SIGTERM) == 0
        assert time.monotonic() - started < 10
        assert not Path(f"/proc/{child}").exists()
    assert read_manifest(dataset).generation == 1
    with Service(inbox, dataset, *QUICK) as service:
        assert service.wait_for("started")["open_batch"] == 1
        service.wait_for("finished")
        check_metrics(service, check_dataset(dataset))
    assert names_in(inbox) == ["a.fasta"]


def test_a_damaged_dataset_makes_the_service_wait_until_it_is_repaired(
    inbox: Path, dataset: Path
) -> None:
    manifest = dataset / "manifest.json"
    content = manifest.read_bytes()
    with Service(inbox, dataset, *QUICK) as service:
        service.wait_for("started")
        manifest.write_bytes(content[:100])
        drop(inbox, "a.fasta", content_of(1))
        reason = service.wait_for("error")["reason"]
        code, said = service.get("/readyz")
        assert (code, said.strip()) == (503, reason)
        assert "manifest.json" in reason
        manifest.write_bytes(content)
        service.wait_for("finished")
        assert service.get("/readyz")[0] == 200
    check_dataset(dataset)


def test_wrong_arguments_print_one_error_line(run: Run, inbox: Path, dataset: Path) -> None:
    for words, message in (
        ((inbox, "--dataset", inbox / "missing"), "must not contain each other"),
        ((inbox, "--dataset", inbox.with_name("missing")), "there is no such folder"),
        ((inbox.with_name("none"), "--dataset", dataset), "must be an existing folder"),
        (("https://x.org/in", "--dataset", dataset), "an inbox is a folder"),
        ((inbox, "--dataset", dataset, "--settle", -1), "--settle is -1.0"),
        ((inbox, "--dataset", dataset, "--host", "256.1.1.1"), "cannot listen at"),
    ):
        done = run("watch", *words)
        assert done.returncode in (1, 2), words
        assert message in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert "listening" not in done.stdout
