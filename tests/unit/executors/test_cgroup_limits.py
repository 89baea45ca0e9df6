"""A build stays within the cores and the memory of its cgroup, such as a container's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pipeline.executors.cgroup_limits import CgroupLimits, cgroup_limits
from tests.helpers.processes.command_line import REPO

PROGRAM = """
import os, sys
for folder in sys.argv[1:]:
    with open(folder + "/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))
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
def limited(request: pytest.FixtureRequest) -> Iterator[list[Path]]:
    """Yield the folders of new cgroups, of version 1 or 2, that may use one core and 700 MiB."""
    own = dict.fromkeys(("cpu", "memory"), "/")
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own |= dict.fromkeys(set(controllers.split(",")) & own.keys(), path)
    mount, name = Path("/sys/fs/cgroup"), f"thdpack-test-{os.getpid()}"
    old = (mount / "memory" / "memory.limit_in_bytes").exists()
    folders = (
        [mount / each / own[each].lstrip("/") / name for each in ("cpu", "memory")]
        if old
        else [mount / name]
    )
    try:
        for folder in folders:
            folder.mkdir()
        if old:
            (folders[0] / "cpu.cfs_quota_us").write_text("100000")
            (folders[1] / "memory.limit_in_bytes").write_text(str(700 << 20))
        else:
            (folders[0] / "cpu.max").write_text("100000 100000")
            (folders[0] / "memory.max").write_text(str(700 << 20))
    except OSError as error:
        for folder in folders:
            with suppress(OSError):
                folder.rmdir()
        pytest.skip(f"cgroups cannot be made here: {error}")
    yield folders
    for folder in folders:
        folder.rmdir()


def test_a_process_in_a_cgroup_of_one_core_uses_one_worker(limited: list[Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, limited)],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1", "1"]
