"""Shared fixtures: corpora, datasets that several tests use, and functions that run `thdpack`."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from xdist.scheduler import LoadScopeScheduling

import pipeline.build.build_dataset
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress.reporter import reporter
from pipeline.executors.processes import cores
from pipeline.executors.registry import EXECUTORS, ExecutorKind
from schemas.manifest import Manifest
from tests.helpers.data.many_shards import build_many_shards
from tests.helpers.processes.command_line import (
    PIECE_BYTES,
    REPO,
    InThisProcess,
    Run,
    command,
    environment,
    preprocess,
    run_here,
    run_process,
)
from tests.helpers.stores.object_store import ObjectStore, object_store, point_s3_at

__all__ = ["PIECE_BYTES", "REPO", "InThisProcess", "Run", "command", "environment", "preprocess"]

SHARED = REPO.parent / "shared" / "data"

# The time that an example takes depends on the machine's load, and must not fail a test.
hypothesis.settings.register_profile("thdpack", hypothesis.settings.default, deadline=None)
hypothesis.settings.load_profile("thdpack")

# torch reads this variable when it is imported. Test processes with two threads each would
# spend most of their time waiting for each other's threads.
os.environ["OMP_NUM_THREADS"] = os.environ.get("THDPACK_TEST_THREADS", "1")

OurThreads = Callable[[], list[threading.Thread]]


def pytest_configure() -> None:
    """Pause garbage collection while test modules are imported, to save one second of CPU time.

    Also restore the default handler of SIGINT (Ctrl-C) if pytest ignores SIGINT. A shell makes
    background scripts ignore SIGINT, and the processes that tests start would ignore it, too.
    """
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    gc.freeze()  # imported modules are never freed, so collections need not visit them
    gc.enable()


TOGETHER = {
    file: group
    for group, files in {
        "ray": ["e2e/build/test_ray.py"],
        "chromium": [
            "e2e/report/test_page.py",
            "e2e/report/test_serve.py",
            "e2e/service/test_status_page.py",
            "e2e/site/test_site.py",
        ],
        "inference": [
            "e2e/cli/test_exit_codes.py",
            "e2e/inference/scores/test_contacts.py",
            "e2e/inference/scores/test_evaluate.py",
            "e2e/inference/scores/test_likelihood.py",
            "e2e/inference/scores/test_mutations.py",
            "e2e/inference/test_embed.py",
            "e2e/inference/test_refused.py",
            "e2e/reader/test_examples.py",
            "e2e/reader/test_shard_dataset.py",
        ],
        "store": [
            "e2e/inputs/test_many_inputs.py",
            "e2e/stores/test_concurrent_builds.py",
            "e2e/stores/test_earlier_generations_on_store.py",
            "e2e/stores/test_first_contact.py",
            "e2e/stores/test_generations_on_store.py",
            "e2e/stores/test_interrupted_builds.py",
            "e2e/stores/test_objects.py",
            "e2e/stores/test_out_on_store.py",
            "e2e/stores/test_report_on_store.py",
            "e2e/stores/test_service_on_store.py",
            "e2e/stores/test_task_list_on_store.py",
        ],
        "trainer": [
            "e2e/reader/test_forked_reader.py",
            "e2e/training/test_bad_validation.py",
            "e2e/training/test_best_export.py",
            "e2e/training/checkpoints/test_checkpoints.py",
            "e2e/training/checkpoints/test_full_disk.py",
            "e2e/training/test_dry_run.py",
            "e2e/training/test_growing_data.py",
            "e2e/training/interrupted/test_interrupted_runs.py",
            "e2e/training/interrupted/test_signals.py",
            "e2e/training/test_lost_ranks.py",
            "e2e/training/test_mixture.py",
            "e2e/training/test_parallel.py",
            "e2e/training/checkpoints/test_publishing.py",
            "e2e/training/test_quickstart.py",
            "e2e/training/test_ranks_agree.py",
            "e2e/training/test_refused_runs.py",
            "e2e/training/test_resume_options.py",
            "e2e/training/checkpoints/test_run_lock.py",
            "e2e/training/test_train.py",
            "e2e/training/test_training_secrets.py",
            "unit/test_house.py",
            "unit/trainer/model/test_hugging_face_format.py",
            "unit/trainer/model/test_hugging_face_parity.py",
            "unit/trainer/model/test_import_checks.py",
            "unit/trainer/model/test_layer_te.py",
            "unit/trainer/model/test_model.py",
            "unit/trainer/model/test_model_card.py",
            "unit/trainer/monitoring/test_metrics.py",
            "unit/trainer/test_feed.py",
            "unit/trainer/optimizer/test_muon.py",
            "unit/trainer/optimizer/test_optimizer.py",
            "unit/trainer/precision/test_scaling_kept.py",
        ],
        "datasets": ["e2e/training/test_hugging_face.py"],
    }.items()
    for file in (f"tests/{name}" for name in files)
}
"""Group of each test file, by path. All tests of a group run in the same xdist worker.

The tests of a group share objects that are slow to create: a Ray cluster, a browser, an S3 server,
the process from which ranks are forked, a trained model, the site, or the imported package
transformers.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let slow tests start first: tests of the groups in TOGETHER, then tests marked `long`.

    If THDPACK_TEST_ORDER is set, shuffle the tests with its value as the seed. `make soak` sets it.
    """
    items.sort(
        key=lambda item: (
            _file(item.nodeid) not in TOGETHER,
            item.get_closest_marker("long") is None,
        )
    )
    if "THDPACK_TEST_ORDER" in os.environ:
        random.Random(os.environ["THDPACK_TEST_ORDER"]).shuffle(items)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


class TogetherScheduling(LoadScopeScheduling):
    """Scheduler of pytest-xdist that gives all tests of a group to the same worker. Other tests are
    scheduled one by one.

    xdist's own mark `xdist_group` has no effect in pytest-xdist 3.8 with pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        return TOGETHER.get(_file(nodeid), nodeid)


def pytest_xdist_auto_num_workers() -> int:
    """Return the number of test processes: one more than cores, because many tests wait, but at
    most four. Each process takes 9 to 12 seconds of CPU time to import modules and collect tests.
    """
    return min(4, cores() + 1)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> TogetherScheduling:
    return TogetherScheduling(config, log)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of real corpora, ../shared/data. Skip the test if the folder is missing."""
    if not SHARED.is_dir():
        pytest.skip("../shared/data does not exist")
    return SHARED


@pytest.fixture(scope="session")
def sample() -> Path:
    return REPO / "data" / "sample.fasta"


@pytest.fixture(scope="session")
def server() -> Iterator[ObjectStore]:
    """Start an S3 server once per xdist worker. The start takes two seconds of CPU time.

    Tests use the fixture `store`, which also empties the server.
    """
    with object_store() as running:
        yield running


@pytest.fixture
def store(server: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """Empty the S3 server, and point s3:// at it for this process."""
    server.reset()
    point_s3_at(server.endpoint, monkeypatch)
    return server


@pytest.fixture
def build_here(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Manifest]:
    """Return a function that builds a dataset in-process: `build_here(input, out, **options)`."""
    here = ExecutorKind(open=lambda request: InThisProcess(request.workers), remote=False)
    monkeypatch.setitem(EXECUTORS, "processes", here)

    def build_it(source: Path, out: Path, **options: Any) -> Manifest:
        with reporter(as_json=False) as report:
            return pipeline.build.build_dataset.build(
                PreprocessOptions(inputs=(str(source),), out=str(out), **options), report
            ).manifest

    return build_it


@pytest.fixture(name="run")
def _run() -> Run:
    """Return a function that runs `thdpack` in this process: `run("verify", dataset)`."""
    return run_here


@pytest.fixture(name="run_process")
def _run_process() -> Run:
    """Return a function that runs `thdpack` in a new process, for tests of process behaviour."""
    return run_process


@pytest.fixture
def our_threads() -> OurThreads:
    """Return a function that lists the threads of thdpack that this test started.

    Threads of earlier tests may still run. The list leaves them out.
    """
    earlier = set(threading.enumerate())
    return lambda: [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("thdpack") and thread not in earlier
    ]


@pytest.fixture(scope="session")
def many_shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a dataset of about 215 buckets in about 20 shards. Tests must not modify it, but may
    modify copies.
    """
    return build_many_shards(tmp_path_factory.mktemp("many_shards"))


@pytest.fixture(scope="session")
def whole(many_shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train on many_shards in one process, without interruption. Tests must not modify the run's
    folder, but may modify copies.
    """
    from tests.helpers.processes.runs import train  # lazy: imports torch, which few tests need

    return train(many_shards, tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture
def numerics() -> Iterator[None]:
    """Run torch with one thread and seed 0. `make soak` changes both numbers."""
    import torch  # lazy: slow to import, and few tests need it

    threads = torch.get_num_threads()
    torch.set_num_threads(int(os.environ.get("THDPACK_TEST_THREADS", "1")))
    torch.manual_seed(int(os.environ.get("THDPACK_TEST_SEED", "0")))
    yield
    torch.set_num_threads(threads)
