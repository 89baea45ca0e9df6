"""The estimate of memory and time agrees with measured steps, and each option changes the
estimate in the right direction.

Held-out settings were not used to fit the estimate.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest
import torch
from rich.console import Console

from benchmarks.training.fit_estimate import MEASURED, setting_of
from pipeline.planning import training_plan
from pipeline.planning.choices import choose_reshard
from pipeline.planning.cluster import Cluster
from pipeline.planning.estimate import Setting, memory, seconds
from pipeline.planning.search_settings import WORTH_NO_FLAGS
from pipeline.planning.training_plan import CACHE, plan_training
from schemas.models import ESM2_MODELS
from tests.helpers.data.corpus import read_manifest
from tests.helpers.pages import shell_commands
from tests.helpers.processes.command_line import Run, preprocess
from trainer.batch import choose_batch, choose_steps
from trainer.config import PRESETS, DataOptions, parse
from trainer.distributed.topology import single_process
from trainer.start.fit import check_memory

ROWS = json.loads(MEASURED.read_text())
SETTING = Setting(
    model=ESM2_MODELS["esm2-650m"],
    tokens=16384,
    real_tokens=16000.0,
    squares=8e6,
    max_seqlen=1024,
    fp8=False,
)


@pytest.fixture(scope="module")
def dataset(sample: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sample in buckets of 4096 tokens. Tests do not change it."""
    return preprocess(sample, tmp_path_factory.mktemp("plan") / "d", "--capacity", "4096")


@pytest.fixture(scope="module")
def large(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the manifest of a dataset 1,000 times as large, without its shards."""
    manifest = read_manifest(dataset)
    train = manifest.splits["train"]
    sums = ("buckets", "sequences", "tokens", "cost_sum", "cost_square_sum")
    grown = replace(train, **{name: 1_000 * getattr(train, name) for name in sums})
    folder = tmp_path_factory.mktemp("large")
    text = replace(manifest, splits={**manifest.splits, "train": grown}).to_json()
    (folder / "manifest.json").write_text(text)
    return folder


def total(setting: Setting) -> float:
    return sum(memory(setting).values())


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if not row["fit"]],
    ids=lambda row: "-".join(str(value) for value in row.values()),
)
def test_estimates_for_held_out_settings_are_within_10_percent_of_measurements(
    row: dict[str, float],
) -> None:
    setting = setting_of(row)
    assert 1e3 * seconds(setting) == pytest.approx(row["ms"], rel=0.1)
    assert total(setting) / 2**30 == pytest.approx(row["gib"], rel=0.1)


def test_there_are_held_out_settings_of_each_kind() -> None:
    held = [row for row in ROWS if not row["fit"]]
    assert {row["preset"] for row in held} >= {"esm2-150m", "esm2-650m", "esm2-3b", "esm2-15b"}
    assert {row.get("ranks", 1) for row in held} == {1, 2, 4}
    assert {row.get("recompute", "none") for row in held} == {"none", "selective", "full"}


def test_each_option_changes_the_estimated_time_and_memory_in_the_right_direction() -> None:
    many = replace(SETTING, ranks=4, shards=4)
    for setting in (SETTING, many):
        assert seconds(replace(setting, micro_batches=4)) > 3 * seconds(setting)
        assert seconds(replace(setting, squares=1e8)) > seconds(setting)
        assert total(replace(setting, tokens=32768)) > total(setting)
        assert (
            total(replace(setting, recompute="full"))
            < total(replace(setting, recompute="selective"))
            < total(setting)
        )
        assert (
            seconds(replace(setting, recompute="full"))
            > seconds(replace(setting, recompute="selective"))
            > seconds(setting)
        )
    assert total(many) < total(SETTING)
    assert total(replace(many, context_parallel=2)) < total(many)
    assert total(replace(many, shards=2)) > total(many)
    assert many.step_tokens == 4 * SETTING.step_tokens
    assert replace(many, context_parallel=4).step_tokens == SETTING.step_tokens


def test_the_error_for_a_run_that_does_not_fit_names_options_to_change() -> None:
    large = replace(SETTING, model=ESM2_MODELS["esm2-15b"])
    assert check_memory(SETTING, available=150e9).startswith("about 30 of 140 GiB")
    with pytest.raises(ValueError, match=r"masters and Adam.*use more GPUs"):
        check_memory(large, available=150e9)
    with pytest.raises(ValueError, match="for activations: use --recompute full"):
        check_memory(replace(SETTING, tokens=16 * 16384), available=150e9)
    with pytest.raises(ValueError, match=r"gathered.*use --(shard full|reshard layer)"):
        check_memory(
            replace(large, ranks=64, shards=64, micro_batches=2, tokens=1024), available=80e9
        )


def test_reshard_auto_gathers_parameters_once_a_step_if_memory_allows() -> None:
    many = replace(SETTING, ranks=4, shards=4, micro_batches=8)
    assert choose_reshard(many, available=150e9) == "step"
    assert choose_reshard(replace(many, model=ESM2_MODELS["esm2-15b"]), available=150e9) == "layer"
    three = replace(many, model=ESM2_MODELS["esm2-3b"], ranks=2, shards=2)
    assert choose_reshard(three, available=150e9) == "step"
    # with --reshard step, this run does not fit in memory
    assert choose_reshard(three, available=85e9) == "layer"


def test_a_plan_names_flags_that_the_trainer_accepts(
    large: Path,
    run: Run,
    run_process: Run,
) -> None:
    words = ("plan", "--data", large, "--model", "esm2-3b", "--gpus", "4xH200")
    said = json.loads(run_process(*words, "--json").stdout)
    launcher, _, flags = said["command"].partition(" train ")
    wait = f"--shutdown-timeout {said['shutdown_timeout']}"
    assert launcher == f"torchrun --nproc-per-node 4 {wait} -m thdpack"
    options = parse(flags.split())
    assert options.model == PRESETS["esm2-3b"][1].model
    assert options.data.buckets_per_step % (4 * options.data.buckets_per_micro_batch) == 0
    assert options.data.buckets_per_step * 4096 == pytest.approx(2_097_152, rel=0.1)
    assert said["settings"]["shard"] == "none"
    assert said["settings"]["cuda_graph"]
    assert said["memory_gib"] == pytest.approx(sum(said["memory_bytes"].values()) / 2**30)
    assert said["epoch"]["gpu_hours"] == pytest.approx(4 * said["epoch"]["hours"])
    rates = [
        said["tokens_per_second"],
        *(each["tokens_per_second"] for each in said["alternatives"]),
    ]
    assert rates[1:] == sorted(rates[1:], reverse=True)
    # a plan has the trainer's default settings unless other settings are faster by this factor
    assert rates[0] >= rates[1] / WORTH_NO_FLAGS
    assert len(rates) > 1
    text = run(*words).stdout
    assert "GPU-hours" in text
    assert "which is 100 epochs of the data; the preset's 500,000 would be" in text
    assert "for a run from random weights (--init-from: at most 20)" in text
    assert "warning" not in text
    assert said["command"] in text
    assert rates[1] > rates[0]
    assert "the trainer chooses the settings above by itself; this plan prefers another" in text
    epoch = said["epoch"]["tokens"]
    text = run(*words, "--tokens", str(300 * epoch)).stdout
    assert "warning: this run is 300 epochs" in text
    assert f"--tokens {20 * epoch} plans 20 epochs" in text
    assert "warning" not in run(*words, "--tokens", str(20 * epoch)).stdout


def test_a_plan_for_unmeasured_gpus_shows_times_of_h200s(dataset: Path, run: Run) -> None:
    measured = run("plan", "--data", dataset, "--gpus", "8xH200").stdout
    assert "tokens/s   " in measured
    assert "was measured" not in measured
    others = run("plan", "--data", dataset, "--gpus", "8xH100").stdout.splitlines()
    assert others[0].startswith("esm2-650m on 8 H100, bf16")
    assert others[1].startswith("tokens/s and times below are those of H200s")
    assert "takes 1 to 1.43 times as long" in others[1]
    assert others[2].startswith("tokens/s of H200  ")
    assert others[-1].endswith("does not apply to H100, which was not measured.")


@pytest.mark.parametrize("gpus", ["8xH100", "1xH200"])
def test_a_plan_marks_the_trainers_default_and_no_line_ends_between_a_number_and_its_unit(
    dataset: Path, run: Run, monkeypatch: pytest.MonkeyPatch, gpus: str
) -> None:
    for columns in range(60, 100, 3):
        monkeypatch.setattr(Console, "width", columns)
        lines = run("plan", "--data", dataset, "--gpus", gpus).stdout.splitlines()
        table = [line for line in lines if re.match(r"tokens/s( of|  )|settings  |  +\S", line)]
        assert len(table) > 5
        assert not [line for line in table if re.search(r"\d$", line)]
        assert sum("(the trainer's default)" in line for line in lines) <= 1
    assert sum("(the trainer's default)" in line for line in lines) == 1


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


def test_a_run_that_cannot_be_planned_is_an_error_with_the_reason(
    dataset: Path, run: Run, tmp_path: Path
) -> None:
    for arguments, words in (
        (("--model", "esm2-15b", "--gpus", "1xH200"), "needs at least"),
        (("--model", "x", "--gpus", "1xH200"), "the presets are esm2-8m"),
        (("--precision", "fp8"), "thdpack plan: --precision is 'fp8': did you mean fp8-delayed?"),
        (("--model", "esm2-650", "--gpus", "1xH200"), "did you mean esm2-650m?"),
        (("--model", "esm2_t33_650M_UR50D"), "its preset is esm2-650m (--init-from"),
        (("--model", "esm2-tiny"), "Run `thdpack train esm2-tiny --data"),
        (("--gpus", "H200"), "such as 8xH200"),
        (("--gpus", "8xB200"), "B200 is unknown; there are plans for H200 and H100. For a CPU or"),
        (("--gpus", "cpu"), "run `thdpack train` with --dry-run"),
        (("--gpus", "H100:8"), "thdpack plan: --gpus is 'H100:8': write 8xH100\n"),
        (("--gpus", "2*8 h200"), "write 2x8xH200\n"),
        (("--gpus", "0xH200"), "expected a number and a kind"),
    ):
        found = run("plan", "--data", dataset, *arguments)
        assert found.returncode == 2
        assert words in found.stderr
    missing = run("plan", "--data", tmp_path / "none")
    assert missing.returncode == 1
    assert os.fspath(tmp_path / "none") in missing.stderr


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


def test_a_plan_on_tiny_data_has_no_zeros_and_no_wrong_plurals(dataset: Path, run: Run) -> None:
    words = ("plan", "--model", "esm2-8m", "--gpus", "8xH200", "--data", dataset)
    for tokens in ("0", "1000"):
        text = " ".join(run(*words, "--tokens", tokens).stdout.split())
        assert "1 micro-batch of 1 bucket, " in text
        assert ": under a minute, under 0.01 GPU-hours the run" in text
        assert not re.search(r"(?<![\d.,])1 (steps|buckets|micro-batches|GPUs)\b", text)
        assert not re.search(r"(?<![\d.,])0(\.0+)? (s|GiB|GPU-hours|seconds|steps)\b", text)
    assert "the run 1,000 tokens, 1 step: under a minute" in text
    told = json.loads(run("plan", "--data", dataset, "--tokens", "1000", "--json").stdout)
    assert told["run"]["steps"] == 1


def test_a_plan_says_which_gpus_it_assumes_without_the_option(dataset: Path, run: Run) -> None:
    words = ("plan", "--data", dataset)
    assert "on 8 H200 (assumed, as --gpus is missing), bf16" in run(*words).stdout
    assert "on 8 H200, bf16" in run(*words, "--gpus", "8xH200").stdout


def test_a_plan_for_several_nodes_says_how_to_use_its_command(dataset: Path, run: Run) -> None:
    plan = ("plan", "--data", dataset, "--model", "esm2-8m", "--gpus")
    text = run(*plan, "16xH200").stdout
    assert text.startswith("esm2-8m on 16 H200 (2 nodes of 8 GPUs), bf16")
    assert "NODE0:29500" in text
    assert "on each of the 2 nodes; in all of them, replace NODE0 by the name" in text
    assert "--out must be a folder that all nodes share" in text
    assert "NODE0" not in run(*plan, "8xH200").stdout


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
