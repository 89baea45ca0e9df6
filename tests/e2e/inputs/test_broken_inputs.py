"""A broken, missing or repeated input gives a clear error, and so does a full disk."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.data.archives import bgzip, zstd
from tests.helpers.data.corpus import digest, fasta, made_records
from tests.helpers.processes.command_line import REPO, Run, environment

TEXT = fasta(made_records(300))


def test_the_error_for_an_unknown_protocol_names_the_protocol(run: Run, tmp_path: Path) -> None:
    done = run("preprocess", "nosuch://bucket/x.fa", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "nosuch://" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cut.fasta.gz", gzip.compress(TEXT, mtime=0)[:-2000], "truncated gzip archive"),
        ("cut.fasta.bgz", bgzip(TEXT)[:-3000], "truncated gzip archive"),
        ("cut.fasta.zst", zstd.compress(TEXT)[:-200], "truncated zstd archive"),
        ("cut.fasta.xz", lzma.compress(TEXT)[:-200], "truncated xz archive"),
        ("cut.fasta.bz2", bz2.compress(TEXT)[:-200], "truncated bzip2 archive"),
        (
            "bad.fasta.gz",
            gzip.compress(TEXT, mtime=0)[:3000]
            + b"\xff" * 500
            + gzip.compress(TEXT, mtime=0)[3500:],
            "gzip archive",
        ),
        ("cut.parquet", b"PAR1" + bytes(100), "not a readable parquet file"),
        ("empty.fasta", b"", "empty.fasta: the file is empty"),
        ("headers.fasta", b">a\n>b\n", "headers.fasta:2: no residue"),
        (
            "preamble.fasta",
            b"# hello\n>a\nMK\n",
            "1: expected '>' before residues: write a line such as >name",
        ),
        ("binary.fasta", b">a\nMK\nM\x00K\n", "binary.fasta:3: byte 0x00: binary data"),
        ("latin1.fasta", b">a\nMK\xe5\n", "latin1.fasta:2: byte 0xe5 is not UTF-8"),
    ],
)
def test_a_broken_input_is_a_clear_error_and_the_previous_dataset_stays(
    run: Run, tmp_path: Path, sample: Path, name: str, content: bytes, message: str
) -> None:
    out = tmp_path / "out"
    assert run("preprocess", sample, "--out", out).returncode == 0
    before = digest(out)
    good = tmp_path / "good.fasta"
    good.write_bytes(TEXT)
    (tmp_path / name).write_bytes(content)
    done = run("preprocess", good, tmp_path / name, "--out", out, "--overwrite")
    assert done.returncode == 1
    assert message in done.stderr
    assert str(tmp_path / name) in done.stderr
    assert "Traceback" not in done.stderr
    assert digest(out) == before


def test_the_text_of_an_error_is_the_same_from_a_worker_as_from_the_driver(
    run: Run,
    run_process: Run,
    tmp_path: Path,
) -> None:
    """The driver gets a worker's error from another process, with file and line."""
    for name, content in (
        ("cut.fasta.gz", gzip.compress(TEXT, mtime=0)[:-2000]),
        ("binary.fasta", b">a\nMK\nM\x00K\n"),
    ):
        (tmp_path / name).write_bytes(content)
        said = [
            way("preprocess", tmp_path / name, "--out", tmp_path / "out").stderr.splitlines()[-1]
            for way in (run, run_process)
        ]
        assert said[0] == said[1]
        assert name in said[0]


def test_the_option_on_invalid_error_reports_the_letter_and_its_line(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "x.fasta"
    path.write_text(">a\nMKT*\n\n>b\nMKT\n;1\nMK1T\n")
    done = run("preprocess", path, "--out", tmp_path / "out", "--on-invalid", "error")
    assert done.returncode == 1
    assert f"{path}:7: letter '1'" in done.stderr


def test_a_missing_input_and_an_input_named_twice_are_errors(
    run: Run, tmp_path: Path, sample: Path
) -> None:
    (tmp_path / "in").mkdir()
    sample = Path(shutil.copy(sample, tmp_path / "in"))

    def listed(lines: str) -> str:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.txt"
        path.write_text(lines)
        return f"@{path}"

    for arguments, code, message in (
        (["missing.fasta"], 2, "no such file"),
        (["missing*.fasta"], 2, "no file matches; check the pattern, or the current folder, whi"),
        (["missing/*.fasta"], 2, "no file matches; there is no folder missing: check its name"),
        ([listed("# list\n\nmissing.fasta")], 2, ".txt:3: missing.fasta: no such file"),
        ([listed("missing*.fasta")], 2, ".txt:1: missing*.fasta: no file matches"),
        ([listed("@other")], 1, ".txt:1: a list cannot name another list: give @other on"),
        ([listed("#")], 1, ".txt: this list names no input; write one file"),
        ([sample, listed(str(sample))], 2, ".txt:1 and the command line; its records would"),
        ([sample, sample], 2, "named twice among the inputs; its records"),
        ([sample.parent / ".." / "in", sample], 2, "named twice"),
    ):
        done = run("preprocess", *arguments, "--out", tmp_path / "out")
        assert done.returncode == code, done.stdout
        assert message in done.stderr
        assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_full_disk_is_a_clear_error(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The destination is a file system of 1 MB. Mounting it needs root, which CI has.

    Other programs may fill a disk during a build, so the check at the start is left out here.
    """
    monkeypatch.setattr("pipeline.build.build_dataset.check_free_space", lambda *_: None)
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)],
        capture_output=True,
        check=False,
    ).returncode:
        pytest.skip("mounting needs root")
    try:
        big = tmp_path / "big.fasta"
        big.write_bytes(fasta(made_records(6000)))
        done = run("preprocess", big, "--out", small / "out")
        assert done.returncode == 1
        assert "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr
        assert not (small / "out" / "manifest.json").exists()
        assert not list((small / "out").rglob("*.tmp"))
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_line_of_gigabytes_does_not_exhaust_the_memory(tmp_path: Path) -> None:
    """Limit memory to 4 GB, and read a sparse file of 8 GB."""
    path = tmp_path / "long.fasta"
    with path.open("wb") as file:
        file.write(b">")
        for _ in range(150):
            file.write(b"M" * (1 << 20))
        file.truncate(8 << 30)
    build = f"{sys.executable} -m pipeline preprocess {path} --workers 1 --out {tmp_path / 'out'}"
    done = subprocess.run(
        ["bash", "-c", f"ulimit -v 4000000; exec {build}"],
        cwd=REPO,
        env=environment(),
        capture_output=True,
        check=False,
    )
    os.truncate(path, 0)
    assert done.returncode == 1
    assert f"{path}:1: a record of more than 128 MiB".encode() in done.stderr
