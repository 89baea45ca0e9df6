"""Build a dataset in a cgroup of a few cores and little memory, and print what it used.

    python -m benchmarks.limits INPUT --cores 2 --memory-gb 2

Needs root, because it makes a real cgroup. Columns of the output: number of processes that the
kernel killed for lack of memory, peak memory of all processes without the page cache (sampled ten
times a second), seconds, and MB/s of the input.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.helpers.processes.cgroups import ENTER, anonymous_bytes, cgroups, killed_for_memory


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("input")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory-gb", type=float, default=2.0)
    asked = parser.parse_args()
    with (
        cgroups(cores=asked.cores, memory=int(asked.memory_gb * 1e9)) as folders,
        tempfile.TemporaryDirectory(dir=Path(asked.input).parent) as out,
    ):
        program = f"{ENTER}\nfrom pipeline.cli.main import main; main()"
        started = time.perf_counter()
        build = subprocess.Popen(
            [sys.executable, "-c", program, "preprocess", asked.input, "--out", f"{out}/dataset"],
            env={**os.environ, "CGROUPS": ":".join(map(str, folders))},
            stderr=subprocess.DEVNULL,
        )
        peak = 0
        while build.poll() is None:
            peak = max(peak, anonymous_bytes(folders))
            time.sleep(0.1)
        seconds = time.perf_counter() - started
        size = Path(asked.input).stat().st_size
        print(
            f"exit code {build.returncode}, {killed_for_memory(folders)} killed, peak "
            f"{peak / 1e9:.2f} GB of {asked.memory_gb:g} GB, {seconds:.1f} s, "
            f"{size / seconds / 1e6:,.0f} MB/s"
        )


if __name__ == "__main__":
    main()
