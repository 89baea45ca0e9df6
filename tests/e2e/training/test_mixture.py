"""Training on a mixture of datasets."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.planning.mixture import datasets_of, mixed
from pipeline.reader import Mixture, ShardReader
from tests.helpers.data.corpus import fasta, made_records
from tests.helpers.data.many_shards import LONGEST, OPTIONS
from tests.helpers.processes.command_line import preprocess
from tests.helpers.processes.runs import ROUNDING, cut, losses, start, train
from trainer.config import DataOptions
from trainer.readers.mixing import announcements, dataset_names, latest_announcement
from trainer.train import main


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a second dataset with the same capacity as `many_shards`."""
    folder = tmp_path_factory.mktemp("other")
    (folder / "other.fasta").write_bytes(fasta(made_records(200, longest=LONGEST, seed=5)))
    return preprocess(folder / "other.fasta", folder / "dataset", *OPTIONS)


def test_a_mixture_resumed_on_two_ranks_gives_the_losses_of_one_rank(
    many_shards: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = f"{many_shards}=0.75"
    flags = ("--data", f"{other}=0.25", "--reweight", "3=0.5,0.5")
    flags += ("--checkpoint-every", "2", "--validate-every", "2")
    whole = train(first, tmp_path / "whole", *flags, steps=4)
    begin, before, rest = capsys.readouterr().err.split("datasets: ")
    assert begin.endswith("\nthe run mixes buckets of 2 ")
    assert before.startswith(f"75 % from {many_shards}, 25 % from {other}\n")
    assert before.endswith("\n--reweight: from step 4 on, the run mixes buckets of 2 ")
    assert rest.startswith(f"50 % from {many_shards}, 50 % from {other}\nstep 3 ")
    resumed = cut(whole, tmp_path / "resumed", 2)
    start(first, resumed, *flags, ranks=2, steps=4).finish()
    names = [f"valid/{name}" for name in dataset_names([str(many_shards), str(other)])]
    for kind in ("train", "valid", *names):
        expected, found = losses(whole, kind), losses(resumed, kind)
        assert found.keys() == expected.keys()
        assert max(abs(found[step] - expected[step]) for step in expected) < ROUNDING
    lines = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    both, *parts = [
        line for line in lines if line["kind"].startswith("valid") and line["step"] == 4
    ]
    assert [line["kind"] for line in parts] == names
    assert both["tokens"] == sum(line["tokens"] for line in parts)
    mean = sum(line["loss"] * line["tokens"] for line in parts) / both["tokens"]
    assert both["loss"] == pytest.approx(mean)
    alone = train(many_shards, tmp_path / "alone", "--init-from", str(whole / "export"), steps=1)
    assert losses(alone, "valid")[0] == pytest.approx(parts[0]["loss"], abs=ROUNDING)
    assert not losses(alone, names[0])
    said = json.loads((whole / "options.json").read_text())["data"]["data"]
    assert said == [first, f"{other}=0.25"]


def test_datasets_are_named_by_the_last_part_of_their_url_if_the_names_differ() -> None:
    assert dataset_names(["s3://b/uniref50/", "data/new"]) == ["uniref50", "new"]
    assert dataset_names(["a/set", "b/set"]) == ["a/set", "b/set"]


def test_a_run_does_not_resume_with_other_weights_of_its_datasets(
    many_shards: Path, other: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(f"{many_shards}=0.5", tmp_path / "run", "--data", f"{other}=0.5", steps=2)
    then = f"use --data {many_shards}=0.5 --data {other}=0.5 without --reweight, or choose another"
    for first, second, changed in (
        ("0.6", ("0.4",), "other weights"),
        ("1", ("1", "--reweight", "3=1,2"), "another --reweight"),
    ):
        with pytest.raises(SystemExit):
            train(f"{many_shards}={first}", run, f"--data={other}={second[0]}", *second[1:])
        said = capsys.readouterr().err
        assert f"a run on the same datasets with {changed}: {then}" in said
    with pytest.raises(SystemExit):
        train(f"{many_shards}", run)
    assert "a run on another dataset, " in capsys.readouterr().err


def test_shares_of_a_mixture_are_printed_as_percentages_for_any_sum_of_weights() -> None:
    data = DataOptions(data=("a=2", "s3://key:secret@b/c=1"), reweight=("5=1,7",))
    first, second = announcements(data).values()
    assert first.endswith(": 66.67 % from a, 33.33 % from s3://b/c")
    assert second.startswith("--reweight: from step 6 on, ")
    assert latest_announcement(data, 4) == first
    assert latest_announcement(data, 5) == second
    assert latest_announcement(DataOptions(data=("a",)), 5) == ""


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ("--data={other}", "has no weight above 0"),
        ("--data={other}=0", "has no weight above 0"),
        ("--data={many}=1", "twice"),
        ("--reweight=3=1,1", "--reweight is for several datasets"),
    ],
)
def test_invalid_mixtures_are_refused_with_the_reason(
    many_shards: Path,
    other: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    second: str,
    said: str,
) -> None:
    words = second.format(other=other, many=many_shards)
    with pytest.raises(SystemExit):
        train(f"{many_shards}=1", tmp_path / "run", words, steps=2)
    assert said in capsys.readouterr().err


def test_the_predicted_tokens_per_bucket_of_a_mixture_match_the_buckets_that_are_read(
    many_shards: Path, other: Path
) -> None:
    weights = datasets_of((f"{many_shards}=3", f"{other}=1"))
    with ShardReader(many_shards) as one, ShardReader(other) as two:
        manifest = mixed([one.manifest, two.manifest], list(weights.values()), list(weights))
        epoch = min(len(one) * 4 // 3, len(two) * 4)
    train_split = manifest.splits["train"]
    assert train_split.buckets == epoch
    with Mixture(list(weights.items())) as reader:
        tokens = [next(reader).num_tokens for _ in range(epoch)]
    assert np.mean(tokens) == pytest.approx(train_split.tokens / epoch, rel=0.02)


def test_the_error_for_buckets_of_different_sizes_names_the_datasets(
    sample: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {str(tmp_path / "a"): 2048, str(tmp_path / "b"): 4096}
    for folder, capacity in sizes.items():
        preprocess(sample, Path(folder), "--capacity", str(capacity))
    data = [word for folder in sizes for word in ("--data", f"{folder}=1")]
    with pytest.raises(SystemExit):
        main(["esm2-tiny", *data, "--out", str(tmp_path / "run")])
    said = " ".join(capsys.readouterr().err.split())
    assert ", ".join(f"{capacity} in {folder}" for folder, capacity in sizes.items()) in said
