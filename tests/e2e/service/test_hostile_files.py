"""Each kind of file has a clear outcome, and the service survives all of them."""

from __future__ import annotations

import gzip
import hashlib
import os
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest

from tests.helpers.data.inboxes import (
    check_dataset,
    check_metrics,
    content_of,
    names_in,
)
from tests.helpers.processes.services import Service, drop

QUICK = ("--settle", 0, "--batch-age", 0, "--workers", 1, "--no-report")


def test_hostile_files_are_rejected_with_their_error_beside_them(
    inbox: Path, dataset: Path
) -> None:
    gzipped = gzip.compress(content_of(1))
    refused = {
        "zero.fasta": (b"", "the file is empty"),
        "text.fasta": (b"no header\n", "not FASTA"),
        "binary.fasta": (bytes(range(256)) * 40, ""),
        "cut.fasta.gz": (gzipped[: len(gzipped) // 2], "truncated gzip archive"),
        "nucleotides.fasta": (b">a\n" + b"ACGT" * 400 + b"\n", "nucleotide"),
        "later.fasta": (content_of(2) + b">bad\nMK\0\1\2\n", "line "),
        "wrong.fasta": (content_of(3), "its sha256 is"),
    }
    for name, (content, _) in refused.items():
        drop(inbox, name, content)
    drop(inbox, "wrong.fasta.sha256", b"0" * 64 + b"  wrong.fasta\n")
    raw = os.fsencode(inbox) + b"/\xff\xfe.fasta"
    with open(raw, "wb") as file:
        file.write(content_of(4))
    (inbox / "link.fasta").symlink_to(dataset / "manifest.json")
    (inbox / "lost.fasta").symlink_to("nowhere")
    os.mkfifo(inbox / "pipe.fasta")
    drop(inbox, "new\nline [1]*?.fasta", content_of(5))
    drop(inbox, "folder/inner.fasta", content_of(6))
    drop(inbox, "good.fasta", content_of(7))
    with Service(inbox, dataset, *QUICK) as service:
        everything = len(refused) + 4
        service.wait_until(lambda: len(service.named("rejected")) == everything)
        service.wait_until(lambda: service.named("finished"))
        manifest = check_dataset(dataset)
        metrics = check_metrics(service, manifest)
        assert service.get("/readyz") == (200, "ready\n")
    reasons = inbox / "rejected"
    for name, (content, reason) in refused.items():
        assert (reasons / name).read_bytes() == content
        assert reason in (reasons / f"{name}.error.txt").read_text()
    assert (reasons / "wrong.fasta.sha256").exists()
    assert "a link" in (reasons / "link.fasta.error.txt").read_text()
    assert (reasons / "link.fasta").is_symlink()
    assert "a link" in (reasons / "lost.fasta.error.txt").read_text()
    assert "not a regular file" in (reasons / "pipe.fasta.error.txt").read_text()
    with open(os.fsencode(reasons) + b"/\xff\xfe.fasta.error.txt", "rb") as text:
        assert b"not UTF-8" in text.read()
    taken = ["good.fasta", "inner.fasta", "new\nline [1]*?.fasta"]
    assert names_in(inbox / "taken") == taken
    assert metrics["thdpack_watch_files_rejected_total"] == everything
    assert metrics["thdpack_watch_files_taken_total"] == len(taken)


def test_a_rejected_file_that_is_moved_back_is_tried_again(inbox: Path, dataset: Path) -> None:
    drop(inbox, "a.fasta", b"no header\n")
    with Service(inbox, dataset, *QUICK) as service:
        service.wait_until(lambda: names_in(inbox / "rejected") == ["a.fasta", "a.fasta.error.txt"])
        (inbox / "rejected" / "a.fasta").rename(inbox / "a.fasta")
        service.wait_for("rejected", count=2)
        service.wait_until(lambda: names_in(inbox / "rejected") == ["a.fasta", "a.fasta.error.txt"])
        drop(inbox, "a.fasta", content_of(1))
        service.wait_for("finished")
        check_metrics(service, check_dataset(dataset))


def test_unfinished_files_are_not_taken(inbox: Path, dataset: Path) -> None:
    unfinished = [".hidden.fasta", ".x.fasta.Ab12Cd", "a.fasta.tmp", "b.part", "c.crdownload"]
    for name in unfinished:
        (inbox / name).write_bytes(content_of(1))
    growing = inbox / "growing.fasta"
    growing.write_bytes(content_of(2))
    drop(inbox, "good.fasta", content_of(3))
    with Service(inbox, dataset, "--settle", 0, *QUICK[2:]) as service:
        service.wait_until(lambda: service.named("finished"))
    left = names_in(inbox)
    assert set(unfinished) <= set(left)
    assert not set(unfinished) & set(names_in(inbox / "taken"))


def test_a_growing_file_waits_until_it_is_unchanged_for_the_settle_time(
    inbox: Path, dataset: Path
) -> None:
    """The file grows three times, each time after a scan has seen its size. On a slow machine, the
    settle time may pass before the file grows again.
    """
    path = inbox / "growing.fasta"
    path.write_bytes(content_of(0))
    whole, grown_at = content_of(0), time.time()
    with Service(inbox, dataset, "--settle", 3, *QUICK[2:]) as service:

        def was_seen() -> bool:
            return bool(
                service.named("batch")
                or service.metrics()["thdpack_watch_bytes_waiting"] == len(whole)
            )

        for number in range(1, 4):
            service.wait_until(was_seen)
            if service.named("batch"):
                break
            whole, grown_at = whole + content_of(number), time.time()
            with path.open("ab") as file:
                file.write(content_of(number))
        service.wait_until(lambda: service.named("finished"))
        begun = datetime.fromisoformat(service.named("batch")[0]["time"]).timestamp()
    assert begun - grown_at >= 3
    assert check_dataset(dataset).inputs[-1].bytes == len(whole)
    assert (inbox / "taken" / "2" / "growing.fasta").read_bytes() == whole


def test_a_file_with_its_checksum_beside_it_needs_no_settle_time(
    inbox: Path, dataset: Path
) -> None:
    for number, kind in enumerate(("sha256", "md5")):
        content = content_of(number)
        digest = hashlib.new(kind, content).hexdigest()
        drop(inbox, f"{kind}.fasta", content)
        drop(inbox, f"{kind}.fasta.{kind}", f"{digest}  {kind}.fasta\n".encode())
    drop(inbox, "other.fasta", content_of(3))
    with Service(inbox, dataset, "--settle", 100_000, *QUICK[2:]) as service:
        service.wait_until(lambda: service.named("finished"))
        assert service.metrics()["thdpack_watch_files_waiting"] == 1
    taken = ["md5.fasta", "md5.fasta.md5", "sha256.fasta", "sha256.fasta.sha256"]
    assert names_in(inbox / "taken") == taken
    assert (inbox / "other.fasta").exists()


def test_files_that_vanish_are_forgotten(inbox: Path, dataset: Path) -> None:
    """A thread creates and removes files while the service takes others."""
    stopping = threading.Event()

    def flicker() -> None:
        number = 0
        while not stopping.is_set():
            drop(inbox, f"vanishing-{number % 7}.fasta", content_of(900)).unlink(missing_ok=True)
            number += 1

    thread = threading.Thread(target=flicker)
    thread.start()
    try:
        with Service(inbox, dataset, *QUICK) as service:
            for number in range(3):
                drop(inbox, f"{number}.fasta", content_of(number))
                service.wait_until(lambda n=number: f"{n}.fasta" in names_in(inbox / "taken"))
            stopping.set()
            thread.join()
            service.wait_until(lambda: not list(inbox.glob("*.fasta")))
            service.wait_until(lambda: service.events[-1]["event"] in ("finished", "empty"))
            check_metrics(service, check_dataset(dataset))
            assert not service.named("rejected")
    finally:
        stopping.set()
        thread.join()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_an_unreadable_file_is_rejected(inbox: Path, dataset: Path, tmp_path: Path) -> None:
    """The service runs as a user other than root, because root may read all files."""
    drop(inbox, "secret.fasta", content_of(1)).chmod(0)
    drop(inbox, "good.fasta", content_of(2))
    user = 65_534
    for path in (tmp_path, inbox, *dataset.rglob("*"), dataset):
        os.chown(path, user, user)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_mode & 0o005 != 0o005 and parent != Path("/"):
            pytest.skip("another user cannot reach the folder of the tests")
    with Service(inbox, dataset, *QUICK, user=user) as service:
        service.wait_until(lambda: service.named("rejected") and service.named("finished"))
    assert "permission denied" in (inbox / "rejected/secret.fasta.error.txt").read_text()
    assert names_in(inbox / "taken") == ["good.fasta"]
