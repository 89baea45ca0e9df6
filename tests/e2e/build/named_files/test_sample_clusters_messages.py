"""Messages of `--sample-clusters`: errors, summary, `inspect` and card."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.data.corpus import fasta, made_records, read_manifest, read_records
from tests.helpers.oracles.slow_clusters import made_table
from tests.helpers.processes.command_line import Run


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sampled") / "made.fasta"
    path.write_bytes(fasta(made_records(300, seed=3, longest=300)))
    return path


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a table in which each record has the weight 40."""
    path = tmp_path_factory.mktemp("weighted") / "clusters.tsv"
    headers = [header for header, _ in made_records(300, seed=3, longest=300)]
    rows = dict.fromkeys(made_table(headers, seed=4))
    path.write_text("".join(f"{one}\t{other}\t40\n" for one, other in rows))
    return path


def test_weights_that_are_too_large_together_are_an_error(
    run: Run, corpus: Path, clusters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.build.clusters.member_files.MOST_WEIGHT", 50 << 30)
    words = ("--out", tmp_path / "out", "--sample-clusters", clusters)
    done = run("preprocess", corpus, *words)
    assert done.returncode == 1
    assert "the weights of a cluster add up to more than 50; divide all weights" in done.stderr


def test_clusters_and_sample_clusters_together_are_a_usage_error(
    run: Run, corpus: Path, clusters: Path, tmp_path: Path
) -> None:
    words = ("--out", tmp_path / "out", "--sample-clusters", clusters, "--clusters", clusters)
    done = run("preprocess", corpus, *words)
    assert done.returncode == 2
    assert "--sample-clusters includes --clusters: omit --clusters" in done.stderr


def test_the_commands_show_how_many_members_were_drawn(
    run: Run, corpus: Path, clusters: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    words = ("--out", out, "--sample-clusters", clusters, "--variants", 2)
    done = run("preprocess", corpus, *words)
    assert done.returncode == 0, done.stderr
    found = read_manifest(out).sampled_clusters
    assert found is not None
    lost = [row for row in read_records(out) if row["status"] == "kept" and row["shard"] is None]
    residues = sum(row["residues"] for row in lost)
    again = run("preprocess", corpus, *words)
    assert "nothing to do" in again.stdout
    for text in (done.stdout, again.stdout):
        counts = f"{found.clusters} clusters with {found.members} members"
        assert f"{counts}; a variant has one member of each, and 2 variants show" in text
        assert f"not drawn  {len(lost)} records with {residues:,} residues left out" in text
    shown = run("inspect", out, "--record", lost[0]["id"])
    assert "kept, but not drawn: " in shown.stdout
    assert run("card", out).returncode == 0
    card = (out / "README.md").read_text()
    assert f"{found.clusters:,} of the {found.members:,} kept records in clusters" in card
