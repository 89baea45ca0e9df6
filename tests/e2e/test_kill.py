"""Real processes, killed with SIGKILL at random moments: the dataset is the same, and nobody sees it half done."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest import REPO, Run, command, environment
from tests.corpus import digest, fasta, made_records

SIZES = {"task_bytes": 400_000, "partition_bytes": 500_000}
OPTIONS = ("--capacity", "2048", "--max-seq-len", "512", "--workers", "2")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "made.fasta"
    path.write_bytes(fasta(made_records(6000)))
    return path


def start(corpus: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    # nice: whoever waits for the right moment to kill it gets to run first, on a busy machine too
    arguments = ["nice", "-n", "5", *command("preprocess", str(corpus), "--out", str(out), *OPTIONS, *more, **SIZES)]
    return subprocess.Popen(arguments, cwd=REPO, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def processes_of(parent: int) -> list[int]:
    """Every process that descends from `parent`."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except (FileNotFoundError, ProcessLookupError):  # it ended while we looked
                continue
    found = [parent]
    for process in found:
        found += [child for child, of in parents.items() if of == process]
    return found


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL it and its descendants, and wait until none runs: a killed process may still finish the system call it is in."""
    family = processes_of(process.pid)
    for target in family:
        with contextlib.suppress(ProcessLookupError):  # ended by itself meanwhile
            os.kill(target, signal.SIGKILL)
    process.wait()
    while any(alive(target) for target in family):
        time.sleep(0.005)


def written_at(paths: Iterable[Path]) -> dict[Path, int]:
    """When each of the files that are still there was written; a build that ends removes them while we look."""
    times = {}
    for path in paths:
        try:
            times[path] = path.stat().st_mtime_ns
        except FileNotFoundError:
            continue
    return times


def alive(process: int) -> bool:
    """Whether it runs; one that has ended and that nobody has waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("victim", ["driver", "worker"])
def test_a_build_killed_at_random_moments_gives_the_same_bytes(run: Run, tmp_path: Path, corpus: Path, victim: str) -> None:
    whole = tmp_path / "whole"
    began = time.monotonic()
    assert run("preprocess", corpus, "--out", whole, *OPTIONS, **SIZES).returncode == 0
    takes = time.monotonic() - began
    out = tmp_path / "killed"
    rng = random.Random(victim)
    kills = 0
    for _attempt in range(40):
        process = start(corpus, out)
        deadline = time.monotonic() + rng.uniform(0.3, 0.9) * takes
        while time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.01)
        if process.poll() is None and kills < 5:
            family = processes_of(process.pid)
            with contextlib.suppress(ProcessLookupError):  # ended by itself meanwhile
                os.kill(family[0] if victim == "driver" else rng.choice(family[1:] or family), signal.SIGKILL)
            kills += 1
        printed = process.communicate(timeout=60)[0].decode()
        if process.returncode == 0 and kills < 3:
            shutil.rmtree(out)  # too quick for us: again
            continue
        if process.returncode == 0:
            break
        if (out / "manifest.json").exists():  # killed between the commit and the exit
            assert digest(out) == digest(whole)
        if victim == "worker":
            assert "Traceback" not in printed
    assert process.returncode == 0, printed
    assert kills >= 3
    assert digest(out) == digest(whole)
    assert not (out / ".build").exists()
    assert run("verify", out, "--deep").returncode == 0


def test_fifty_kills_of_all_that_a_build_is_give_the_same_bytes(tmp_path: Path) -> None:
    """Driver and worker in one process, killed at fifty random moments from the plan to the clearing up; the other tests' kills come on top."""
    (tmp_path / "made.fasta").write_bytes(fasta(made_records(700)))
    count = 500 if os.environ.get("THDPACK_LONG") else 50
    arguments = [sys.executable, "-m", "tests.killed", str(tmp_path / "made.fasta"), str(tmp_path), str(count)]
    done = subprocess.run(arguments, cwd=REPO, env=environment(), capture_output=True, check=False, timeout=140)
    assert done.returncode == 0, done.stderr.decode()
    finished = json.loads(done.stdout)
    assert len(finished) == count
    assert len(set(finished)) >= 10, finished


def test_a_rerun_says_what_it_skips_and_redoes_only_the_rest(tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    process = start(corpus, out)
    markers = out / ".build"
    while process.poll() is None and len(list(markers.glob("map-*.json"))) < 3:
        time.sleep(0.005)
    kill_all(process)
    finished = written_at([*markers.glob("map-*.json"), *markers.glob("hash-*.json")])
    again = start(corpus, out)
    inspected = False
    while again.poll() is None:
        now = written_at(finished)
        inspected |= len(now) == len(finished)
        assert all(finished[path] == time_ns for path, time_ns in now.items()), "a finished task was run again"
    printed = again.communicate()[0].decode()
    assert again.returncode == 0
    assert inspected
    skipped = re.search(r"tokenize, partition: (\d+) of \d+ tasks were finished by an earlier run, skipped", printed)
    assert skipped is not None
    assert int(skipped[1]) == len(finished)


def test_a_damaged_spill_is_not_trusted(run: Run, tmp_path: Path, corpus: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "out"
    assert run("preprocess", corpus, "--out", whole, *OPTIONS, **SIZES).returncode == 0
    process = start(corpus, out)
    while process.poll() is None and len(list((out / ".build").glob("map-*.json"))) < 3:
        time.sleep(0.005)
    kill_all(process)
    spill = sorted((out / ".build").glob("map-*.json"))[0].with_suffix(".arrow")
    content = bytearray(spill.read_bytes())
    content[len(content) // 2] ^= 1
    spill.write_bytes(content)
    assert run("preprocess", corpus, "--out", out, *OPTIONS, **SIZES).returncode == 0
    assert digest(out) == digest(whole)


def test_ctrl_c_ends_it_quickly_and_the_same_command_goes_on(run: Run, tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    process = start(corpus, out)
    while process.poll() is None and not list((out / ".build").glob("map-*.json")):
        time.sleep(0.005)
    family = processes_of(process.pid)
    process.send_signal(signal.SIGINT)
    printed = process.communicate(timeout=10)[0].decode()
    assert process.returncode == 130
    assert "the same command goes on" in printed
    assert "Traceback" not in printed
    time.sleep(0.5)
    assert not [pid for pid in family if alive(pid)]
    assert not (out / "manifest.json").exists()
    assert run("preprocess", corpus, "--out", out, *OPTIONS, **SIZES).returncode == 0


def is_locked(path: Path) -> bool:
    """Whether some process holds a lock on the file: asked of the kernel, for who tries the lock may keep others from it."""
    return path.exists() and any(line.split()[5].endswith(f":{path.stat().st_ino}") for line in Path("/proc/locks").read_text().splitlines())


def test_two_builds_in_one_place_do_not_mix(run: Run, tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    first = start(corpus, out)
    while first.poll() is None and not is_locked(out / ".build" / "lock"):
        time.sleep(0.005)
    first.send_signal(signal.SIGSTOP)  # so that it cannot end before the second has looked
    second = run("preprocess", corpus, "--out", out, *OPTIONS, **SIZES)
    first.send_signal(signal.SIGCONT)
    printed = first.communicate()[0].decode()
    assert first.returncode == 0, printed
    assert second.returncode == 1
    assert "another build is running" in second.stderr


def test_the_dataset_that_is_there_stays_whole_until_the_new_one_replaces_it(run: Run, tmp_path: Path, corpus: Path) -> None:
    out = tmp_path / "out"
    assert run("preprocess", REPO / "data" / "sample.fasta", "--out", out).returncode == 0
    before = digest(out)
    process = start(corpus, out, "--overwrite")
    while process.poll() is None and not list((out / ".build").glob("reduce-*.json")):
        time.sleep(0.005)
    kill_all(process)
    after = digest(out)
    assert all(after[name] == content for name, content in before.items())
    assert run("verify", out, "--deep").returncode == 0
