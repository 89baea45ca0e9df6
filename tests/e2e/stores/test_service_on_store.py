"""`thdpack watch` with inbox and dataset on an object store behind a faulty proxy."""

from __future__ import annotations

import gzip
import os
import random

import pytest

from schemas.manifest import Manifest
from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.data.inboxes import OPTIONS, check_metrics, content_of
from tests.helpers.processes.command_line import Run
from tests.helpers.processes.services import Service
from tests.helpers.stores.faulty_proxy import Faults
from tests.helpers.stores.object_store import ObjectStore, objects, put
from tests.helpers.stores.store_builds import asked

LONG = "THDPACK_LONG" in os.environ
FILES, KILLS = (60, 5) if LONG else (9, 2)
INBOX, OUT = "s3://bucket/inbox", "s3://bucket/sets/grown"
QUICK = ("--settle", 0, "--batch-age", 0, "--workers", 1, "--no-report")


@pytest.fixture
def dataset(run: Run, proxied: Faults) -> str:
    put("s3://bucket/first.fasta", fasta(made_records(20, seed=99, longest=100)))
    done = run("preprocess", "s3://bucket/first.fasta", "--out", OUT, *OPTIONS)
    assert done.returncode == 0, done.stderr
    return OUT


def test_on_a_store_each_file_is_taken_exactly_once_however_often_the_service_is_killed(
    run: Run, proxied: Faults, dataset: str
) -> None:
    rng = random.Random(25)
    proxied.kinds = ("error", "lost", "cut")
    names = [f"{number}.fasta" for number in range(FILES)]
    share = FILES // (KILLS + 1)
    for kill in range(KILLS + 1):
        proxied.rate = 0.0
        for number in range(kill * share, FILES if kill == KILLS else (kill + 1) * share):
            put(f"{INBOX}/{names[number]}", content_of(number))
        proxied.rate = 0.01
        once = ["--once"] if kill == KILLS else []
        with Service(INBOX, dataset, *QUICK, *once) as service:
            if not once:
                moment = rng.randint(3, 11)
                service.wait_until(lambda at=moment, s=service: len(s.events) >= at)
            else:
                assert service.end() == 0, (service.events[-5:], service.errors)
    proxied.rate = 0.0
    found = objects("s3://bucket/inbox")
    assert sorted(name.rpartition("/")[2] for name in found) == sorted(names)
    assert all("taken/" in name for name in found)
    manifest = Manifest.from_json(objects(OUT)["manifest.json"], where=OUT)
    assert len({entry.xxh3_128 for entry in manifest.inputs}) == FILES + 1
    assert len(manifest.inputs) == FILES + 1
    assert "verified" in run("verify", "--deep", OUT).stdout
    with Service(INBOX, dataset, *QUICK) as service:
        service.wait_for("started")
        metrics = check_metrics(service, manifest)
    assert metrics["thdpack_watch_files_taken_total"] == FILES
    assert metrics["thdpack_watch_files_rejected_total"] == 0


def test_a_batch_with_a_damaged_file_leaves_no_intermediate_files(
    run: Run, proxied: Faults, dataset: str
) -> None:
    """The damage shows only when a task reads the file: tasks of other files then have begun."""
    put(f"{INBOX}/a.fasta", content_of(1))
    put(f"{INBOX}/b.fasta.gz", gzip.compress(content_of(2))[:-8])
    with Service(INBOX, dataset, *QUICK, "--once") as service:
        assert service.end() == 1
    assert asked(proxied, "PUT /.build/")
    [rejected] = service.named("rejected")
    assert rejected["file"] == "b.fasta.gz"
    assert len(Manifest.from_json(objects(OUT)["manifest.json"], where=OUT).inputs) == 2
    assert not [name for name in objects(OUT) if name.startswith(".build/")]


def test_two_services_with_an_inbox_each_append_to_one_dataset(
    run: Run, store: ObjectStore
) -> None:
    """A store has no locks: the service that commits second appends to the other's result."""
    put("s3://bucket/first.fasta", fasta(made_records(20, seed=99, longest=100)))
    assert run("preprocess", "s3://bucket/first.fasta", "--out", OUT, *OPTIONS).returncode == 0
    inboxes = ["s3://bucket/inbox-a", "s3://bucket/inbox-b"]
    for number in range(8):
        put(f"{inboxes[number % 2]}/{number}.fasta", content_of(number))
    small = (*QUICK, "--batch-mb", "0.000001")
    with Service(inboxes[0], OUT, *small) as one, Service(inboxes[1], OUT, *small) as other:
        for service in (one, other):
            service.wait_until(lambda s=service: len(s.named("finished")) >= 4)
    manifest = Manifest.from_json(objects(OUT)["manifest.json"], where=OUT)
    assert len({entry.xxh3_128 for entry in manifest.inputs}) == 9
    assert len(manifest.inputs) == 9
    assert manifest.generation == 9
    for inbox in inboxes:
        taken = [name for name in objects(inbox) if "taken/" in name]
        assert len(taken) == 4
    assert "verified" in run("verify", "--deep", OUT).stdout


def test_a_store_that_is_unreachable_for_a_while_loses_nothing(
    run: Run, proxied: Faults, dataset: str
) -> None:
    put(f"{INBOX}/bad.fasta", b"no header\n")
    put(f"{INBOX}/good.fasta", content_of(1))
    put(f"{INBOX}/part.fasta.tmp", content_of(2))
    proxied.refuse = ("GET list-type", "GET inbox")  # 403 for each listing of the inbox
    with Service(INBOX, dataset, *QUICK) as service:
        reason = service.wait_for("error")["reason"]
        code, said = service.get("/readyz")
        assert (code, said.strip()) == (503, reason)
        proxied.refuse = ()
        service.wait_until(lambda: service.named("rejected") and service.named("finished"))
        assert service.get("/readyz")[0] == 200
    names = set(objects("s3://bucket/inbox"))
    assert names == {
        *("part.fasta.tmp", "taken/2/good.fasta"),
        *("rejected/bad.fasta", "rejected/bad.fasta.error.txt"),
    }
    assert "verified" in run("verify", "--deep", OUT).stdout
