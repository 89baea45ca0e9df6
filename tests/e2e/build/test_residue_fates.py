"""The summary accounts for every residue: in buckets, in records left out, or cropped."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.processes.command_line import Run, use_few_small_tasks


def left_out(printed: str) -> tuple[int, int, dict[str, int]]:
    """Return a summary's numbers of residues: read, in buckets, and left out for each reason."""
    total = re.search(r"residues  ([\d,]+) in, ([\d,]+) in buckets", printed)
    assert total is not None, printed
    lines = re.findall(r"^ *([a-z ]+?)  (?:.*: )?([\d,]+) residues left out", printed, re.MULTILINE)
    numbers = {name: int(value.replace(",", "")) for name, value in lines}
    return int(total[1].replace(",", "")), int(total[2].replace(",", "")), numbers


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("words", "names"),
    [
        ((), {"in duplicates", "cropped"}),
        (("--long", "split", "--min-residues", "30"), {"in duplicates", "in too short"}),
        (("--long", "drop", "--on-invalid", "skip"), {"in too long", "in invalid"}),
        (("--dedup", "cropped"), {"in duplicates", "cropped"}),
    ],
)
def test_residues_in_buckets_and_residues_left_out_add_up_to_the_input(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    large: bool,
    words: tuple[str, ...],
    names: set[str],
) -> None:
    use_few_small_tasks(monkeypatch)
    if large:
        for name in ("WHOLE_BYTES", "RUN_BYTES"):
            monkeypatch.setattr(f"pipeline.build.reduce_stage.spilled_records.{name}", 9_000)
    records = made_records(60)
    long = "".join(residues for _, residues in records)[:700]
    extra = [("a", long), ("b", long[:400]), ("c", records[3][1]), ("d", "MKT1"), ("e", long)]
    path, out = tmp_path / "made.fasta", tmp_path / "out"
    path.write_bytes(fasta([*records, *extra]))
    limits = ("--capacity", "1024", "--max-seq-len", "256")
    done = run("preprocess", path, "--out", out, *limits, *words)
    assert done.returncode == 0, done.stderr
    found = left_out(done.stdout)
    total, in_buckets, lines = found
    assert total == sum(len(residues) for _, residues in [*records, *extra])
    assert total == in_buckets + sum(lines.values())
    assert names <= set(lines), done.stdout
    assert left_out(run("inspect", out).stdout) == found
    assert left_out(run("preprocess", path, "--out", out, *limits, *words).stdout) == found
