"""Coverage in `thdpack stats`: the share of the residues that the variants hold together."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.manifest import Manifest
from tests.helpers.data.corpus import fasta, made_records, read_buckets, read_records, sequences_in
from tests.helpers.processes.command_line import Run, use_few_small_tasks

MOST = 62


def held_by_first_variants(out: Path, variants: int) -> dict[str, set[tuple[int, int]]]:
    """Return the residues, as (ordinal, index), in the first 1, 2, 4 and `variants` variants."""
    residues: set[tuple[int, int]] = set()
    found = {}
    for variant in range(variants):
        for bucket in read_buckets(out, variant):
            for ordinal, start, text in sequences_in(bucket):
                residues |= {(ordinal, start + i) for i in range(len(text))}
        if variant + 1 in (1, 2, 4, variants):
            found[str(variant + 1)] = set(residues)
    return found


@pytest.mark.parametrize(
    ("long", "variants"), [("crop", 1), ("crop", 7), ("truncate", 4), ("split", 3), ("drop", 2)]
)
def test_stats_counts_the_residues_in_the_first_variants(
    run: Run,
    build_here: Callable[..., Manifest],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    long: str,
    variants: int,
) -> None:
    use_few_small_tasks(monkeypatch)
    monkeypatch.setattr("pipeline.report.gather.records.coverage._BATCH_WINDOWS", 300)
    corpus, out = tmp_path / "made.fasta", tmp_path / "out"
    corpus.write_bytes(fasta(made_records(300, longest=6 * MOST)))
    build_here(corpus, out, long=long, variants=variants, capacity=512, max_seq_len=MOST + 2)
    counts = {first: len(held) for first, held in held_by_first_variants(out, variants).items()}
    kept = sum(row["residues"] for row in read_records(out) if row["status"] == "kept")
    done = run("stats", out, "--json", tmp_path / "stats.json")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "stats.json").read_text())["coverage"]
    assert found == {"variants": variants, "residues": kept, "shown": counts, "sampled": None}
    if long == "crop":
        share = f"1 variant shows {100 * counts['1'] / kept:.1f} % of the residues of kept records"
        assert share in " ".join(run("stats", out).stdout.split())


@pytest.mark.parametrize(("long", "variants"), [("crop", 5), ("truncate", 1), ("split", 2)])
def test_stats_counts_the_cluster_members_and_residues_in_the_first_variants(
    run: Run,
    build_here: Callable[..., Manifest],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    long: str,
    variants: int,
) -> None:
    use_few_small_tasks(monkeypatch)
    corpus, out, table = tmp_path / "made.fasta", tmp_path / "out", tmp_path / "clusters.tsv"
    records = made_records(200, longest=4 * MOST)
    corpus.write_bytes(fasta(records))
    names = [header.split()[0] for header, _ in records[:150]]
    table.write_text("".join(f"{names[i - i % 3]}\t{name}\n" for i, name in enumerate(names)))
    shape = {"capacity": 512, "max_seq_len": MOST + 2}
    build_here(corpus, out, long=long, variants=variants, sample_clusters=str(table), **shape)
    rows = read_records(out)
    kept = {row["ordinal"]: row["cluster"] for row in rows if row["status"] == "kept"}
    members = {ordinal for ordinal, cluster in kept.items() if cluster is not None}
    held = held_by_first_variants(out, variants)
    counts = {first: len(residues) for first, residues in held.items()}
    of_members = {
        first: len(members & {ordinal for ordinal, _ in residues})
        for first, residues in held.items()
    }
    done = run(
        *("stats", out, "--json", tmp_path / "stats.json", "--html", tmp_path / "stats.html"),
        *("--csv", tmp_path / "csv"),
    )
    assert done.returncode == 0, done.stderr
    total = sum(row["residues"] for row in rows if row["status"] == "kept")
    clusters = len({kept[ordinal] for ordinal in members})
    sampled = {"clusters": clusters, "members": len(members), "shown": of_members}
    assert json.loads((tmp_path / "stats.json").read_text())["coverage"] == {
        "variants": variants,
        "residues": total,
        "shown": counts,
        "sampled": sampled,
    }
    share = f"{100 * of_members['1'] / len(members):.1f} % of the {len(members)} kept records"
    for text in (run("stats", out).stdout, (tmp_path / "stats.html").read_text()):
        assert f"1 variant shows {share} in clusters" in " ".join(text.split())
    head, *lines = (tmp_path / "csv" / "coverage.csv").read_text().splitlines()
    assert head == "variants,residues,shown,members,members_shown"
    assert lines[0] == f"1,{total},{counts['1']},{len(members)},{of_members['1']}"


def test_a_dataset_without_variants_or_windows_has_no_coverage(
    run: Run, sample: Path, tmp_path: Path
) -> None:
    assert run("preprocess", sample, "--out", tmp_path / "out").returncode == 0
    done = run("stats", tmp_path / "out", "--json", tmp_path / "stats.json")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "stats.json").read_text())["coverage"] is None
