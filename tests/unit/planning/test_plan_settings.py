"""The settings of a plan: batch, steps, nodes, and the command that trains with them."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
import torch

from pipeline.planning import training_plan
from pipeline.planning.cluster import Cluster
from pipeline.planning.estimate import seconds
from pipeline.planning.training_plan import CACHE, plan_training
from schemas.models import ESM2_MODELS
from tests.helpers.data.corpus import read_manifest
from tests.helpers.pages import shell_commands
from tests.helpers.processes.command_line import Run
from trainer.batch import choose_batch, choose_steps
from trainer.config import PRESETS, DataOptions, parse
from trainer.distributed.topology import single_process


def test_the_command_of_a_plan_names_its_dataset_its_cache_folder_and_its_run_folder(
    dataset: Path, tmp_path: Path
) -> None:
    spaced = tmp_path / "my data"
    spaced.symlink_to(dataset)
    for data, cache in ((str(spaced), ""), (f"memory://plan{dataset}", CACHE)):
        if cache:
            fsspec.filesystem("memory").put(f"{dataset}/", f"/plan{dataset}", recursive=True)
        plan = plan_training([data], "esm2-8m", "1xH200", precision="bf16", tokens=10**9)
        options = parse(shlex.split(plan.command)[2:])
        assert options.data.data == (data,)
        assert options.data.cache_dir == cache
        assert options.output.out == "runs/esm2-8m"


@pytest.mark.parametrize(
    ("gpus", "nodes", "of_a_node"),
    [
        ("1xH200", 1, 1),
        ("6xH200", 1, 6),
        ("12xH200", 2, 6),
        ("20xH200", 4, 5),
        ("48xH200", 6, 8),
        ("11xH200", 11, 1),
        ("4x2xH200", 4, 2),
        ("2 x 1 × h100", 2, 1),
        ("1x16xH200", 1, 16),
    ],
)
def test_plans_keep_the_published_batch_and_number_of_tokens_on_any_number_of_gpus(
    large: Path,
    gpus: str,
    nodes: int,
    of_a_node: int,
) -> None:
    plan = plan_training([str(large)], "esm2-650m", gpus, precision="bf16", tokens=0)
    assert (plan.cluster.nodes, plan.cluster.gpus_per_node) == (nodes, of_a_node)
    options = parse(plan.command.partition(" train ")[2].split())
    assert (
        options.data.buckets_per_step % (plan.cluster.number * options.data.buckets_per_micro_batch)
        == 0
    )
    assert options.data.buckets_per_step * 4096 == pytest.approx(2_097_152, rel=0.15)
    assert options.optimizer.steps * plan.best.setting.step_tokens == pytest.approx(
        plan.tokens, rel=1e-3
    )
    assert ("--nnodes" in plan.command) == (nodes > 1)
    short = plan_training([str(large)], "esm2-650m", gpus, precision="bf16", tokens=10**8)
    assert parse(short.command.partition(" train ")[2].split()).optimizer.steps < 60


def test_a_plan_gives_torchrun_time_for_two_steps_and_a_checkpoint(large: Path, run: Run) -> None:
    slow = plan_training([str(large)], "esm2-15b", "8xH200", precision="bf16", tokens=0)
    needed = 2 * seconds(slow.best.setting) + 12 * ESM2_MODELS["esm2-15b"].parameters / 1e9
    words = slow.command.partition(" -m thdpack ")[0].split()
    given = int(words[words.index("--shutdown-timeout") + 1])
    assert needed <= given < needed + 30
    for gpus, model in (("8xH200", "esm2-8m"), ("1xH200", "esm2-3b")):
        plan = plan_training([str(large)], model, gpus, precision="bf16", tokens=0)
        assert "--shutdown-timeout" not in plan.command
    words = ["plan", "--data", str(large), "--model", "esm2-15b", "--gpus", "8xH200"]
    assert "all ranks together write 1 GB/s" in run(*words).stdout


def test_the_quickstart_shows_the_command_of_its_plan(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_plan, "read_manifest", lambda url: read_manifest(large))
    page = "docs/quickstart-pretrain.md"
    [planning] = [words for words in shell_commands(page, "thdpack") if words[1] == "plan"]
    data, model, gpus = planning[3::2]
    plan = plan_training([data], model, gpus, precision="bf16", tokens=0)
    planned = shlex.split(plan.command)
    [shown] = [words for words in shell_commands(page, "torchrun") if model in words]
    for flag in ("--buckets-per-step", "--steps"):  # these numbers depend on the dataset
        shown[shown.index(flag) + 1] = planned[planned.index(flag) + 1]
    assert shown == planned


@pytest.mark.parametrize("gpus", [1, 3, 8])
def test_a_plan_on_small_data_has_the_batch_and_steps_that_the_trainer_chooses(
    dataset: Path, large: Path, run: Run, gpus: int
) -> None:
    plan = plan_training([str(dataset)], "esm2-150m", f"{gpus}xH200", precision="bf16", tokens=0)
    options = parse(shlex.split(plan.command.partition(" train ")[2]))
    topology = replace(single_process(torch.device("cuda")), world_size=gpus)
    default = DataOptions(tokens_per_step=2_097_152, tokens_given=False)
    chosen = choose_batch(default, read_manifest(dataset), topology).data.buckets_per_step
    assert options.data.buckets_per_step == chosen < 20
    without_steps = replace(
        options, optimizer=replace(PRESETS["esm2-150m"][1].optimizer, steps_given=False)
    )
    trained, _ = choose_steps(without_steps, read_manifest(dataset))
    assert options.optimizer.steps == trained.optimizer.steps < 10_000
    words = ("plan", "--model", "esm2-150m", "--gpus", f"{gpus}xH200", "--data")
    assert "epochs of the dataset: the plan has a smaller batch" in run(*words, dataset).stdout
    assert "smaller batch" not in run(*words, large).stdout


def test_plans_replicate_small_models_on_each_gpu_and_large_models_on_each_node(
    large: Path,
) -> None:
    plan = plan_training([str(large)], "esm2-650m", "64 x h100", precision="bf16", tokens=0)
    assert plan.cluster == Cluster(number=64, gpu="H100", nodes=8)
    assert plan.best.setting.shard == "none"
    assert "--shard" not in plan.command  # not needed: the trainer chooses --shard none by itself
    plan = plan_training([str(large)], "esm2-15b", "64 x h100", precision="bf16", tokens=0)
    assert {each.replicate for each in plan.candidates} <= {1, 8}
    assert all(each.setting.shards * each.replicate == 64 for each in plan.candidates)
    assert "--nnodes 8 " in plan.command
    assert "--nproc-per-node 8 " in plan.command
    assert plan.best.replicate == 8


def test_runs_that_the_trainer_would_refuse_are_not_planned(
    sample: Path, run: Run, tmp_path: Path
) -> None:
    for name, flags, precision, words in (
        ("padded", ("--length-multiple", "8"), "bf16", "--length-multiple"),
        ("odd", ("--capacity", "4001"), "fp8-delayed", "multiple of 16"),
    ):
        assert run("preprocess", sample, "--out", tmp_path / name, *flags).returncode == 0
        with pytest.raises(ValueError, match=words):
            plan_training(
                [str(tmp_path / name)], "esm2-650m", "8xH200", precision=precision, tokens=0
            )
    assert (
        run("preprocess", sample, "--out", tmp_path / "wide", "--capacity", "65536").returncode == 0
    )
    with pytest.raises(ValueError, match="fewer GPUs"):
        plan_training([str(tmp_path / "wide")], "esm2-650m", "512xH200", precision="bf16", tokens=0)
