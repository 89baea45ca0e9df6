"""`thdpack plan` of a mixture: the plan of the whole, and the share of each dataset."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

from pipeline.planning.mixture import datasets_of, mixed
from tests.helpers.data.corpus import fasta, made_records, read_manifest
from tests.helpers.processes.command_line import Run, preprocess


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build a dataset and a smaller one, with buckets of the same size."""
    folder = tmp_path_factory.mktemp("pair")
    paths = []
    for name, count in (("large", 300), ("small", 60)):
        (folder / f"{name}.fasta").write_bytes(fasta(made_records(count, seed=count)))
        words = ("--capacity", "1024", "--max-seq-len", "512")
        paths.append(preprocess(folder / f"{name}.fasta", folder / name, *words))
    return paths[0], paths[1]


def test_a_plan_of_a_mixture_reports_the_whole_and_each_dataset(
    pair: tuple[Path, Path], run: Run
) -> None:
    large, small = pair
    data = (f"{large}=3", f"{small}=1")
    words = ("plan", "--data", data[0], "--data", data[1], "--model", "esm2-8m", "--gpus", "1xH200")
    told = json.loads(run(*words, "--json").stdout)
    manifests = [read_manifest(path) for path in pair]
    weights = datasets_of(data)
    assert list(weights.values()) == [Fraction(3), Fraction(1)]
    whole = mixed(manifests, list(weights.values()), list(weights)).splits["train"]
    assert told["epoch"]["tokens"] == whole.tokens
    buckets = told["run"]["tokens"] / whole.tokens * whole.buckets
    for part, path, share, manifest in zip(
        told["datasets"], pair, (0.75, 0.25), manifests, strict=True
    ):
        train = manifest.splits["train"]
        assert (part["data"], part["share"]) == (str(path), share)
        assert part["epoch_tokens"] == train.tokens
        assert part["run_epochs"] == pytest.approx(buckets * share / train.buckets, rel=1e-3)
        assert part["run_tokens"] == pytest.approx(part["run_epochs"] * train.tokens, rel=1e-3)
    assert sum(part["run_tokens"] for part in told["datasets"]) == pytest.approx(
        told["run"]["tokens"], abs=1
    )
    assert f" train esm2-8m --data {large}=3 --data {small}=1 --out " in told["command"]
    text = " ".join(run(*words).stdout.split())
    assert f"of the run 75 % from {large}: " in text
    assert f"25 % from {small}: {told['datasets'][1]['run_tokens']:,} tokens, " in text


def test_a_plan_refuses_the_mixtures_that_the_trainer_refuses(
    pair: tuple[Path, Path], run: Run, sample: Path, tmp_path: Path
) -> None:
    large, small = pair
    done = run("plan", "--data", large, "--data", f"{small}=1")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--data {large} has no weight above 0: give each of several datasets" in done.stderr
    done = run("plan", "--data", large, "--log-json")
    assert (done.returncode, "no option --log-json: use --json" in done.stderr) == (2, True)
    other = preprocess(sample, tmp_path / "other", "--capacity", "4096")
    done = run("plan", "--data", f"{large}=1", "--data", f"{other}=1")
    assert done.returncode == 2
    assert f"differ in their number of tokens (1024 in {large}, 4096 in {other})" in done.stderr
