"""A build on a Ray cluster gives the bytes of a build without Ray, even if processes are killed.

The cluster runs on this machine. For each job, Ray starts a Python process on each core. Each start
takes a second of CPU time, so the tests use two nodes and few kills. THDPACK_LONG adds a node and
many kills.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPO, Run, preprocess
from tests.helpers.data.corpus import digest, fasta, made_records
from tests.helpers.data.decoys import write_decoys
from tests.helpers.data.growth import write_inputs
from tests.helpers.processes import started
from tests.helpers.processes.ray_cluster import (
    descendants,
    kill,
    kill_node,
    kill_one_at_work,
    ray_cluster,
)
from tests.helpers.processes.started import Started
from tests.helpers.stores.object_store import ObjectStore, digests, objects, point_s3_at, put

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")

SIZES = {"task_bytes": 120_000, "partition_bytes": 160_000}
OPTIONS = ("--capacity", "2048", "--max-seq-len", "512")
LONG = bool(os.environ.get("THDPACK_LONG"))
NODES = 3 if LONG else 2
VICTIMS = "wwdnwdw" * 3 if LONG else "wnd"
"""Processes to kill, one after another. w: a worker, n: a node, d: the driver."""
PATIENCE = 800.0
"""Time limit of a build in seconds, which only a hanging build reaches."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "made.fasta"
    path.write_bytes(fasta(made_records(5000)))
    return path


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a small corpus. A build of this corpus has few tasks and partitions, because the store
    is slow.

    With THDPACK_LONG, the corpus is as large as `corpus`.
    """
    path = tmp_path_factory.mktemp("short") / "made.fasta"
    path.write_bytes(fasta(made_records(5000 if LONG else 1000)))
    return path


@pytest.fixture(scope="module")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the hashes of all files of a dataset built without Ray."""
    return digest(preprocess(corpus, tmp_path_factory.mktemp("whole") / "out", *OPTIONS, **SIZES))


@pytest.fixture(scope="module")
def cluster(server: ObjectStore) -> Iterator[Any]:
    """Start a cluster whose nodes find the store and thdpack through environment variables."""
    server.reset()
    with pytest.MonkeyPatch.context() as patch:
        point_s3_at(server.endpoint, patch)
        patch.setenv("PYTHONPATH", str(REPO))
        with ray_cluster(NODES, timeout=PATIENCE) as started:
            yield started


def start(corpus: object, out: object, address: str | None) -> Started:
    """Start a build on Ray. The command's current folder is not that of the nodes.

    If `out` is a path, the command runs in the parent folder of `out`. Paths are given relative to
    the command's current folder.
    """
    where = () if address is None else ("--ray-address", address)
    here = Path(out).parent if isinstance(out, Path) else REPO
    paths = [
        os.path.relpath(path, here) if isinstance(path, Path) else str(path)
        for path in (corpus, out)
    ]
    return started.start(
        *("preprocess", paths[0], "--out", paths[1], *OPTIONS, "--executor", "ray", *where),
        # like the installed command, do not search the current folder for modules
        setup=f"import os, sys; os.chdir({str(here)!r}); sys.path.remove('')",
        imported=("ray",),
        **SIZES,
    )


def await_tasks(process: Started, out: Path, count: int) -> bool:
    """Wait until `count` tasks of a build have finished; return whether the build still runs."""
    while process.poll() is None and len(list((out / ".build").glob("*-*[0-9].json"))) < count:
        time.sleep(0.01)
    return process.poll() is None


def finish(process: Started) -> None:
    """Wait for a build to succeed."""
    printed = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, printed
    assert "Traceback" not in printed


@pytest.mark.timeout(1800)
def test_killing_workers_a_node_and_the_driver_does_not_change_the_bytes(
    cluster: Any, run: Run, tmp_path: Path, corpus: Path, whole: dict[str, str]
) -> None:
    """A build survives the loss of workers and nodes. If the driver is killed, the test starts it
    again.
    """
    out = tmp_path / "out"
    rng = random.Random(2)
    process = start(corpus, out, cluster.address)
    done = 0
    for victim in VICTIMS:
        done += 3
        while not (await_tasks(process, out, done) and strike(victim, process, cluster, rng)):
            finish(process)  # the build ended before the kill, so build again
            assert digest(out) == whole
            shutil.rmtree(out)
            process, done = start(corpus, out, cluster.address), 3
        if victim == "d":
            process.communicate()
            process = start(corpus, out, cluster.address)
    finish(process)
    assert digest(out) == whole
    assert not (out / ".build").exists()
    assert run("verify", out, "--deep").returncode == 0


def strike(victim: str, process: Started, cluster: Any, rng: random.Random) -> bool:
    """Kill a worker, a node or the driver. Return False if the build had already ended."""
    if victim == "w":
        return kill_one_at_work(process, cluster, rng)
    if victim == "n":
        kill_node(cluster)
        return True
    return process.poll() is None and kill(process.pid)


def test_nodes_that_share_only_an_object_store_give_the_same_bytes(
    cluster: Any,
    tmp_path: Path,
    short: Path,
) -> None:
    """All files are on s3://, and one worker is killed."""
    put("s3://bucket/in/made.fasta", short.read_bytes())
    process = start("s3://bucket/in/made.fasta", "s3://bucket/out", cluster.address)
    killed = kill_one_at_work(process, cluster, random.Random(0))
    finish(process)
    assert killed
    here = preprocess(short, tmp_path / "out", *OPTIONS, **SIZES)
    assert digests("s3://bucket/out") == digest(here)
    assert not any(name.startswith(".build") for name in objects("s3://bucket/out"))


def test_appends_on_ray_give_the_bytes_of_appends_without_ray(
    cluster: Any, run: Run, tmp_path: Path
) -> None:
    inputs = write_inputs(tmp_path, 2)
    table = tmp_path / "clusters.tsv"
    names = [line.split()[0][1:] for path in inputs for line in path.open() if line[0] == ">"]
    table.write_text("".join(f"family{i % 30}\t{name}\n" for i, name in enumerate(names)))
    near, far = tmp_path / "near", tmp_path / "far"
    for out, where in ((near, ()), (far, ("--executor", "ray", "--ray-address", cluster.address))):
        built = run("preprocess", inputs[0], "--out", out, *OPTIONS, "--clusters", table, **SIZES)
        assert built.returncode == 0, built.stderr
        finish(started.start("append", out, inputs[1], "--clusters", table, *where, **SIZES))
    assert digest(far) == digest(near)
    assert "verified" in run("verify", "--deep", far).stdout


def test_the_service_appends_on_ray(cluster: Any, run: Run, tmp_path: Path) -> None:
    """The append runs in a process of its own, which joins the cluster."""
    inputs = write_inputs(tmp_path, 2)
    near, far = tmp_path / "near", tmp_path / "far"
    for out in (near, far):
        assert run("preprocess", inputs[0], "--out", out, *OPTIONS).returncode == 0
    assert run("append", near, inputs[1]).returncode == 0
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    shutil.copy(inputs[1], inbox)
    where = ("--executor", "ray", "--ray-address", cluster.address)
    once = ("--once", "--settle", "0", "--no-report")
    finish(started.start("watch", inbox, "--dataset", far, *once, *where))
    of_service = {name for name in digest(far) if name.startswith("service/")}
    assert {name: hash for name, hash in digest(far).items() if name not in of_service} == digest(
        near
    )


def test_on_ray_the_error_for_a_broken_input_names_its_line_and_has_no_traceback(
    cluster: Any,
    tmp_path: Path,
    short: Path,
) -> None:
    write_decoys(tmp_path)  # workers must not import from the driver's current folder
    broken = tmp_path / "broken.fasta"
    broken.write_bytes(short.read_bytes() + b">last\nMK\0T\n")
    process = start(broken, tmp_path / "out", cluster.address)
    printed = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, printed
    assert f"thdpack preprocess: {broken}:{broken.read_bytes().count(10)}: " in printed
    assert "Traceback" not in printed


def test_ctrl_c_ends_the_ray_cluster_and_the_build_resumes_without_ray(
    run: Run, tmp_path: Path, corpus: Path, whole: dict[str, str]
) -> None:
    out = tmp_path / "out"
    process = start(corpus, out, None)
    assert await_tasks(process, out, 4), process.communicate()
    family = descendants(process.pid)
    assert len(family) > 3
    process.send_signal(signal.SIGINT)
    printed = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, printed
    assert "run the same command to resume" in printed
    assert "Traceback" not in printed
    deadline = time.monotonic() + PATIENCE
    while left := [pid for pid in family if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    done = run("preprocess", corpus, "--out", out, *OPTIONS, "--workers", "2", **SIZES)
    assert done.returncode == 0, done.stderr
    assert "which an earlier run finished" in done.stderr
    assert digest(out) == whole


def test_a_ray_address_where_no_cluster_answers_is_an_error(
    run: Run, tmp_path: Path, corpus: Path
) -> None:
    with socket.socket() as silent:  # reserves a port, but does not listen
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        where = ("--executor", "ray", "--ray-address", address)
        done = run("preprocess", corpus, "--out", tmp_path / "out", *where)
    assert done.returncode == 1
    assert f"--ray-address {address}: no cluster answers (Connection refused)" in done.stderr
    assert "Traceback" not in done.stderr
