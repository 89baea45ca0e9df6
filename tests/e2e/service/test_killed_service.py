"""A service that is killed again and again takes each file exactly once."""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.helpers.data.inboxes import check_dataset, check_metrics, content_of, names_in
from tests.helpers.processes.services import Service, drop

LONG = "THDPACK_LONG" in os.environ
FILES, KILLS = (500, 20) if LONG else (60, 5)
QUICK = ("--settle", 0, "--batch-age", 0, "--workers", 1, "--no-report")


def test_each_file_is_taken_exactly_once_however_often_the_service_is_killed(
    inbox: Path, dataset: Path
) -> None:
    rng = random.Random(25)
    left = list(range(FILES))
    names = [f"{number}.fasta" for number in left]
    for kill in range(KILLS):
        for number in left[: FILES // KILLS]:
            drop(inbox, names[number], content_of(number))
        left = left[FILES // KILLS :]
        with Service(inbox, dataset, *QUICK) as service:
            # a batch has about ten events; the service may also be idle before
            moment = rng.randint(2, 14)
            service.wait_until(lambda at=moment: len(service.events) >= at or _idle(service))
            assert not service.named("error"), kill
    for number in left:
        drop(inbox, names[number], content_of(number))
    with Service(inbox, dataset, *QUICK) as service:
        service.wait_until(lambda: _idle(service) and not list(inbox.glob("*.fasta")))
        manifest = check_dataset(dataset)
        metrics = check_metrics(service, manifest)
    assert names_in(inbox) == names_in(inbox / "taken") == sorted(names)
    assert len(manifest.inputs) == FILES + 1
    assert len({entry.xxh3_128 for entry in manifest.inputs}) == FILES + 1
    assert metrics["thdpack_watch_files_taken_total"] == FILES
    assert metrics["thdpack_watch_files_duplicate_total"] == 0
    assert metrics["thdpack_watch_files_rejected_total"] == 0
    assert metrics["thdpack_watch_files_waiting"] == 0


def _idle(service: Service) -> bool:
    """Return whether the service has begun at least one batch and has finished all batches."""
    last = next((event for event in reversed(service.events) if event["event"] != "note"), None)
    return last is not None and last["event"] == "finished"
