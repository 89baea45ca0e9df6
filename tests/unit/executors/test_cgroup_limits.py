"""A build stays within the cores and the memory of its cgroup, such as a container's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipeline.executors.cgroup_limits import CgroupLimits, cgroup_limits
from tests.helpers.processes.cgroups import ENTER, cgroups, killed_for_memory
from tests.helpers.processes.command_line import REPO

PROGRAM = f"""
{ENTER}
from pipeline.build.options import PreprocessOptions
from pipeline.executors.processes import cores
from pipeline.executors.worker_count import workers_of
print(cores(), workers_of(PreprocessOptions(inputs=("x",), out="y")))
"""


def made(root: Path, files: dict[str, str]) -> CgroupLimits:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return cgroup_limits(root)


def test_version_2_states_cores_and_memory_and_the_limits_of_ancestors_apply(
    tmp_path: Path,
) -> None:
    files = {
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/b/cpu.max": "250000 100000\n",
        "sys/fs/cgroup/a/b/memory.max": "max\n",
        "sys/fs/cgroup/a/cpu.max": "max 100000\n",
        "sys/fs/cgroup/a/memory.max": "2147483648\n",
    }
    assert made(tmp_path, files) == CgroupLimits(cores=2.5, memory=2 << 30)


def test_version_1_states_cores_and_memory(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/x\n0::/\n",
        "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "1073741824\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
        "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "200000\n",
        "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    }
    assert made(tmp_path, files) == CgroupLimits(cores=2.0, memory=1 << 30)


def test_in_a_container_limits_are_found_although_proc_names_a_path_of_the_host(
    tmp_path: Path,
) -> None:
    files = {
        "proc/self/cgroup": "0::/kubepods/pod1/container2\n",
        "sys/fs/cgroup/cpu.max": "100000 100000\n",
        "sys/fs/cgroup/memory.max": "1000000000\n",
    }
    assert made(tmp_path, files) == CgroupLimits(cores=1.0, memory=1_000_000_000)


def test_without_cgroups_there_are_no_limits(tmp_path: Path) -> None:
    assert cgroup_limits(tmp_path) == CgroupLimits(cores=None, memory=None)


@pytest.fixture
def limited() -> Iterator[list[Path]]:
    """Yield the folders of new cgroups that may use one core and 700 MiB."""
    try:
        with cgroups(cores=1, memory=700 << 20) as folders:
            yield folders
    except OSError as error:
        pytest.skip(f"cgroups cannot be made here: {error}")


def test_a_process_in_a_cgroup_of_one_core_uses_one_worker(limited: list[Path]) -> None:
    done = run(limited, "-c", PROGRAM)
    assert done.stdout.split() == ["1", "1"]


def test_a_build_in_a_cgroup_stays_within_its_memory(limited: list[Path], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    letters = rng.choice(np.frombuffer(b"ACDEFGHIKLMNPQRSTVWY", np.uint8), 40_000_000)
    with open(tmp_path / "made.fasta", "wb") as file:
        for number in range(100_000):
            part = letters[400 * number : 400 * number + 400]
            file.write(b">p%d\n%b\n" % (number, part.tobytes()))
    words = ("preprocess", tmp_path / "made.fasta", "--out", tmp_path / "dataset")
    done = run(limited, "-c", f"{ENTER}\nfrom pipeline.cli.main import main; main()", *words)
    assert "verified" in done.stdout
    assert killed_for_memory(limited) == 0


def run(limited: list[Path], *words: object) -> subprocess.CompletedProcess[str]:
    """Run Python in the cgroups, and check that it succeeds."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=REPO,
        env={**os.environ, "CGROUPS": ":".join(map(str, limited))},
        capture_output=True,
        text=True,
        check=True,
    )
