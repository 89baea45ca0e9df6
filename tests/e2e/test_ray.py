"""A build on a real Ray cluster of three nodes on this machine: the bytes are those of one command, whatever is killed."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.folders import LocalFolder
from pipeline.ray_executor import Likeness, versions
from schemas.errors import BuildError
from tests.conftest import REPO, Run, command, environment, preprocess
from tests.corpus import digest, fasta, made_records
from tests.object_store import ObjectStore, digests, object_store, objects, point_s3_at, put

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
ray = pytest.importorskip("ray")

SIZES = {"task_bytes": 120_000, "partition_bytes": 160_000}
OPTIONS = ("--capacity", "2048", "--max-seq-len", "512")
LONG = bool(os.environ.get("THDPACK_LONG"))
NODES = 3
ONE_CORE = {"num_cpus": 1, "object_store_memory": 80 << 20}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "made.fasta"
    path.write_bytes(fasta(made_records(5000)))
    return path


@pytest.fixture(scope="module")
def whole(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The bytes that processes give."""
    return digest(preprocess(corpus, tmp_path_factory.mktemp("whole") / "out", *OPTIONS, **SIZES))


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as server:
        yield server


@pytest.fixture(scope="module")
def cluster(store: ObjectStore) -> Iterator[Any]:
    """Its nodes know where the store and thdpack are, from their environment, as they would anywhere."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        point_s3_at(store.endpoint, patch)
        patch.setenv("PYTHONPATH", str(REPO))
        yield from three_nodes(Cluster)


def three_nodes(cluster_class: Any) -> Iterator[Any]:
    started = cluster_class(initialize_head=True, head_node_args={**ONE_CORE, "include_dashboard": False})
    for _ in range(NODES - 1):
        started.add_node(**ONE_CORE)
    started.wait_for_nodes()
    yield started
    started.shutdown()


def start(corpus: object, out: object, address: str | None) -> subprocess.Popen[bytes]:
    where = () if address is None else ("--ray-address", address)
    here = Path(out).parent if isinstance(out, Path) else REPO  # nodes run in another folder than the command, which names paths from where it is
    paths = [os.path.relpath(path, here) if isinstance(path, Path) else str(path) for path in (corpus, out)]
    arguments = command("preprocess", paths[0], "--out", paths[1], *OPTIONS, "--executor", "ray", *where, **SIZES)
    return subprocess.Popen(arguments, cwd=here, env={**environment(), "PYTHONPATH": str(REPO)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def raylet(node: Any) -> int:
    """The process of a node that all its workers descend from."""
    return int(node.all_processes["raylet"][0].process.pid)


def workers(node: Any) -> list[int]:
    """Processes that run a node's tasks; not its agents, without which the node ends itself."""
    return [int(pid) for pid in subprocess.run(["pgrep", "-P", str(raylet(node)), "-f", "ray::"], capture_output=True, check=False).stdout.split()]


def kill_one_at_work(process: subprocess.Popen[bytes], cluster: Any, rng: random.Random) -> bool:
    """Kill a worker while it runs a task of a build; False if the build ended before there was one."""
    while process.poll() is None:
        there = [pid for node in cluster.list_all_nodes() for pid in workers(node)]
        rng.shuffle(there)
        for pid in there * 20:  # listing them takes as long as a task; looking at one does not
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if b"ray::_work" in Path(f"/proc/{pid}/cmdline").read_bytes() and kill(pid):
                    return True
    return False


def kill(process: int) -> bool:
    """Whether it was there to be killed."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
        return True
    return False


def await_tasks(process: subprocess.Popen[bytes], out: Path, count: int) -> bool:
    """Wait until so many tasks of a build have finished; whether it still runs."""
    while process.poll() is None and len(list((out / ".build").glob("*-*[0-9].json"))) < count:
        time.sleep(0.01)
    return process.poll() is None


def finish(process: subprocess.Popen[bytes]) -> str:
    printed = process.communicate(timeout=100)[0].decode()
    assert process.returncode == 0, printed
    assert "Traceback" not in printed
    return printed


def test_workers_a_node_and_the_driver_killed_give_the_same_bytes(cluster: Any, run: Run, tmp_path: Path, corpus: Path, whole: dict[str, str]) -> None:
    """The driver is started again when it was the one; workers and nodes it gets over by itself."""
    out = tmp_path / "out"
    rng = random.Random(2)
    process = start(corpus, out, cluster.address)
    done = kills = 0
    for victim in (*"wwdnwdw",) * (3 if LONG else 1):
        done += 3
        if not await_tasks(process, out, done):  # it ended while a node was being added: this build, too, and another
            finish(process)
            assert digest(out) == whole
            shutil.rmtree(out)
            process, done = start(corpus, out, cluster.address), 3
            assert await_tasks(process, out, done)
        if victim == "d":
            process.kill()
            process.communicate()
            process = start(corpus, out, cluster.address)
        elif victim == "n":
            kill_node(cluster)
        else:
            kills += kill_one_at_work(process, cluster, rng)
    finish(process)
    assert kills >= 3
    assert digest(out) == whole
    assert not (out / ".build").exists()
    assert run("verify", out, "--deep").returncode == 0


def kill_node(cluster: Any) -> None:
    """SIGKILL a node that no driver is on, and add another."""
    victim = min(cluster.worker_nodes, key=raylet)
    assert kill(raylet(victim))
    cluster.remove_node(victim, allow_graceful=False)
    cluster.add_node(**ONE_CORE)


def test_on_a_store_nothing_but_the_store_is_shared_and_bytes_are_the_same(cluster: Any, corpus: Path, whole: dict[str, str]) -> None:
    """Inputs, spills, shards and manifest on s3://; workers killed."""
    put("s3://bucket/in/made.fasta", corpus.read_bytes())
    process = start("s3://bucket/in/made.fasta", "s3://bucket/out", cluster.address)
    kills = 0
    while process.poll() is None and kills < 2:
        time.sleep(0.2)
        kills += kill_one_at_work(process, cluster, random.Random(kills))
    finish(process)
    assert kills == 2
    assert digests("s3://bucket/out") == whole
    assert not any(name.startswith(".build") for name in objects("s3://bucket/out"))


def test_a_broken_input_ends_it_like_anywhere_else(cluster: Any, tmp_path: Path, corpus: Path) -> None:
    broken = tmp_path / "broken.fasta"
    broken.write_bytes(corpus.read_bytes() + b">last\nMK\0T\n")
    process = start(broken, tmp_path / "out", cluster.address)
    printed = process.communicate(timeout=100)[0].decode()
    assert process.returncode == 1
    assert f"thdpack: {broken}:{broken.read_bytes().count(10)}: " in printed
    assert "Traceback" not in printed


def test_ctrl_c_stops_a_cluster_of_its_own_and_processes_go_on(run: Run, tmp_path: Path, corpus: Path, whole: dict[str, str]) -> None:
    out = tmp_path / "out"
    process = start(corpus, out, None)
    assert await_tasks(process, out, 4), process.communicate()[0]
    family = descendants(process.pid)
    assert len(family) > 3
    process.send_signal(signal.SIGINT)
    printed = process.communicate(timeout=60)[0].decode()
    assert process.returncode == 130, printed
    assert "the same command goes on" in printed
    assert "Traceback" not in printed
    deadline = time.monotonic() + 10
    while left := [pid for pid in family if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    done = run("preprocess", corpus, "--out", out, *OPTIONS, **SIZES)  # what Ray did is done, whatever goes on from there
    assert done.returncode == 0, done.stderr
    assert "finished by an earlier run, skipped" in done.stderr
    assert digest(out) == whole


def descendants(root: int) -> list[int]:
    found = [root]
    for pid in found:
        found += [int(child) for child in subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, check=False).stdout.split()]
    return found[1:]


def test_no_cluster_at_an_address_is_said(run: Run, tmp_path: Path, corpus: Path) -> None:
    done = run("preprocess", corpus, "--out", tmp_path / "out", "--executor", "ray", "--ray-address", "127.0.0.1:1", timeout=20)
    assert done.returncode == 1
    assert "--ray-address 127.0.0.1:1: no cluster answers (Connection refused)" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_node_has_to_see_this_very_folder_and_have_the_same_versions(tmp_path: Path) -> None:
    """A folder of the same path that is a node's own holds no file that was made a moment ago."""
    (tmp_path / "shared").touch()
    out = LocalFolder(tmp_path, tmp_path)
    Likeness("shared", versions()).refuse_other(out)
    Likeness(None, versions()).refuse_other(out)
    with pytest.raises(BuildError, match="does not see it"):
        Likeness("other", versions()).refuse_other(out)
    with pytest.raises(BuildError, match=r"has thdpack \d[\w.]+ with pyarrow \d[\w.]+, the driver thdpack 0 with"):
        Likeness("shared", "thdpack 0 with pyarrow 0").refuse_other(out)
