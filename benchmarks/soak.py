"""Run the tests under conditions that must not change their outcome, and print a table.

    make soak
    make soak OPTS="--only threads"

Numerical tests (unit, golden, property) run with several instruction sets, numbers of threads and
seeds. The whole suite runs three times under normal conditions, and once under each special
condition: in shuffled order, beside busy loops, on one pytest worker, as a user who is not root,
with a small temporary disk, without ../shared (the folder of real corpora that some tests need),
without a network, on other versions of Python, and so on. Each of these runs is a row of the table.
All rows together take hours. If this machine cannot run a row, the table gives the reason.
docs/soak.md has results.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import tyro
from rich.console import Console
from rich.table import Table

from pipeline.executors.processes import cores

REPO: Final = Path(__file__).parents[1]
NUMERICAL: Final = ("tests/unit", "tests/golden", "tests/property")
NOBODY: Final = 65534
IN_A_NAMESPACE: Final = ("unshare", "--mount", "--net", "--", "bash", "-euc")
"""Beginning of a command that runs a script in new mount and network namespaces. Needs root."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Run the tests under conditions that must not change their outcome."""

    only: str = ""
    """Run only rows whose name matches this regular expression."""
    seeds: int = 20
    """Number of seeds for the numerical tests."""
    busy: int = 4
    """Number of busy loops that run beside the suite."""
    tmp_bytes: int = 3 << 30
    """Size of the small temporary disk, in bytes."""
    pythons: tuple[str, ...] = ("python3.12", "python3.13", "python3.14")
    """Names or paths of Python interpreters. Setting up an environment for each takes minutes."""
    out: Path | None = None
    """Markdown file. Each row of the table is appended to this file when the row's tests end."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the table: one way to run the tests.

    command: command to run, unless `prepare` returns one
    env: additional environment variables
    why_not: reason why this machine cannot run the row; empty if it can
    busy: number of busy loops that run beside the command
    """

    name: str
    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    why_not: str = ""
    busy: int = 0
    prepare: Callable[[Path], tuple[str, ...]] | None = None
    """Function that prepares an empty folder, in which the command then runs. The function returns
    the command, or () to use the field `command`."""


def pytest_command(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "pytest", *arguments)


def numerical_rows(options: Options) -> Iterator[Row]:
    variables = {
        "ATEN_CPU_CAPABILITY": ("default", "avx2", "avx512"),
        "ONEDNN_MAX_CPU_ISA": ("SSE41", "AVX2", "AVX512_CORE"),
        "MKL_ENABLE_INSTRUCTIONS": ("SSE4_2", "AVX2", "AVX512"),
        "THDPACK_TEST_THREADS": ("1", "2", "8"),
    }
    for name, values in variables.items():
        for value in values:
            yield Row(
                name=f"numerical, {name}={value}",
                command=pytest_command(*NUMERICAL),
                env={name: value},
            )
    for seed in range(options.seeds):
        seeds = {"THDPACK_TEST_SEED": str(seed), "PYTHONHASHSEED": str(seed)}
        command = pytest_command(*NUMERICAL, f"--hypothesis-seed={seed}")
        yield Row(name=f"numerical, seed {seed}", command=command, env=seeds)


def whole_rows(options: Options) -> Iterator[Row]:
    for number in (1, 2, 3):
        yield Row(name=f"whole suite, run {number} of 3", command=pytest_command())
    yield Row(
        name="whole suite, shuffled", command=pytest_command(), env={"THDPACK_TEST_ORDER": "1"}
    )
    yield Row(
        name=f"whole suite, {options.busy} busy loops", command=pytest_command(), busy=options.busy
    )
    yield Row(name="whole suite, one worker", command=pytest_command("--numprocesses", "1"))
    yield Row(
        name="whole suite, one worker per core",
        command=pytest_command("--numprocesses", str(cores())),
    )
    yield Row(
        name="whole suite, SIGINT ignored",
        command=("bash", "-c", 'trap "" INT; exec "$@"', "bash", *pytest_command()),
    )
    root = "" if os.geteuid() == 0 and shutil.which("unshare") else "needs root and unshare"
    tmpfs = f'mount -t tmpfs -o size={options.tmp_bytes} none /mnt; TMPDIR=/mnt exec "$0" "$@"'
    for name, script in {
        f"a temporary disk of {options.tmp_bytes >> 30} GiB": tmpfs,
        "without ../shared": 'mount -t tmpfs none ../shared; exec "$0" "$@"',
        "without a network": 'exec "$0" "$@"',
    }.items():
        if name == "without ../shared" and not (REPO.parent / "shared").is_dir():
            continue  # ../shared does not exist, so every row runs without it
        command = (*IN_A_NAMESPACE, f"ip link set lo up; {script}", *pytest_command())
        yield Row(name=f"whole suite, {name}", command=command, why_not=root)
    yield Row(
        name="whole suite, as a guest: not root, shuffled, small temporary disk, no ../shared, "
        "no network",
        command=(),
        env={"THDPACK_TEST_ORDER": "2", "SOAK_TMP_BYTES": str(options.tmp_bytes)},
        why_not=root,
        prepare=as_nobody,
    )
    for python in options.pythons:
        found = shutil.which(python) or ""
        runs = (
            bool(found)
            and subprocess.run([found, "--version"], capture_output=True, check=False).returncode
            == 0
        )
        yield Row(
            name=f"whole suite, {Path(python).name}",
            command=("make", "test", f"PYTHON={found}"),
            why_not="" if runs else "not installed",
            prepare=clone,
        )


def clone(folder: Path) -> tuple[str, ...]:
    """Copy all files that git does not ignore, with uncommitted changes, to `folder`; return ()."""
    names = subprocess.check_output(
        ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=REPO
    ).decode()
    for name in filter(None, names.split("\0")):
        if (REPO / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, folder / name)
    return ()


def as_nobody(folder: Path) -> tuple[str, ...]:
    """Copy the repository and its compiled Cython modules for a user who is not root; return the
    beginning of that user's command.

    Python may be installed under /root. If /root has mode 700, other users cannot enter it. The
    command then hides /root behind an empty file system, in which only the Python installation is
    visible.
    """
    clone(folder)
    for package in ("packers", "pipeline"):
        for kernel in (REPO / package).rglob("*.so"):
            shutil.copy(kernel, folder / kernel.relative_to(REPO))
    subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(folder)], check=True)
    folder.chmod(0o755)
    folder.parent.chmod(0o755)
    base = Path(sys.base_prefix)
    script = f"""
        ip link set lo up
        if [ "$(stat -c %a /root)" = 700 ]; then
            mkdir -p /mnt/{base.name}; mount --bind {base} /mnt/{base.name}
            mount -t tmpfs -o mode=755 none /root
            mkdir -p {base}; mount --bind /mnt/{base.name} {base}
        fi
        export HOME={folder} TMPDIR={folder}/tmp PYTHONPATH={folder}; mkdir {folder}/tmp
        mount -t tmpfs -o mode=777,size=$SOAK_TMP_BYTES none {folder}/tmp
        exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups "$0" "$@"
    """
    return (*IN_A_NAMESPACE, script, *pytest_command())


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(count):
            loop = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(loop.kill)
        yield


def run(row: Row) -> tuple[str, str, float]:
    """Run a row.

    Returns:
        outcome: `passed`, `FAILED` or `not run`
        detail: pytest's summary line and the failed tests, or the reason why the row was not run
        duration, in seconds
    """
    if row.why_not:
        return "not run", row.why_not, 0.0
    with tempfile.TemporaryDirectory(prefix="soak-") as made, busy_loops(row.busy):
        folder, command = REPO, row.command
        if row.prepare:
            folder = Path(made) / "thdpack"
            folder.mkdir()
            command = row.prepare(folder) or command
        began = time.monotonic()
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **row.env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.monotonic() - began
    lines = [
        line
        for line in done.stdout.splitlines()
        if re.match(r"(\d+ (failed|passed|error)|FAILED|ERROR)", line)
    ]
    said = lines[-1] if lines else (done.stderr.strip().splitlines() or ["nothing"])[-1]
    failed = [line.partition(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR"))]
    if done.returncode:
        with Path(tempfile.gettempdir(), "soak-failed.log").open("a") as log:
            log.write(f"=== {row.name}\n{done.stdout[-20_000:]}{done.stderr[-5_000:]}\n")
    return ("passed" if done.returncode == 0 else "FAILED"), "; ".join([said, *failed]), seconds


def main() -> None:
    options = tyro.cli(Options, prog="python -m benchmarks.soak")
    console = Console()
    table = Table("tests", "outcome", "pytest says", "seconds")
    bad = 0
    for row in [*numerical_rows(options), *whole_rows(options)]:
        if not re.search(options.only, row.name):
            continue
        outcome, said, seconds = run(row)
        bad += outcome == "FAILED"
        table.add_row(row.name, outcome, said, f"{seconds:.0f}")
        console.print(
            f"{outcome:8} {row.name}: {said} ({seconds:.0f} s)", highlight=False, markup=False
        )
        if options.out:
            with options.out.open("a") as file:
                file.write(f"| {row.name} | {outcome} | {said} | {seconds:.0f} |\n")
    console.print(table)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
