"""An option of BioNeMo or MosaicML Streaming is an error with advice.

The page docs/coming-from.md lists these options.
"""

from __future__ import annotations

import re

import pytest

from tests.helpers.processes.command_line import REPO
from trainer.config import parse

PAGE = (REPO / "docs" / "coming-from.md").read_text()


def names_in(title: str) -> list[tuple[str, str]]:
    """Return (name, right cell) for each option in the first column of a section's first table."""
    table = PAGE.split(f"\n## {title}", 1)[1].split("|---|---|\n", 1)[1].split("\n\n", 1)[0]
    rows = [line.strip("|").split(" | ", 1) for line in table.splitlines()]
    return [
        (name, right)
        for left, right in rows
        for name in re.findall(r"`([a-z][a-z0-9_.]*)`", left)
        if not name.endswith((".py", ".json"))
    ]


BIONEMO, STREAMING = names_in("NVIDIA BioNeMo"), names_in("MosaicML Streaming")


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as left:
        parse(["esm2-8m", "--data", "d", *words])
    assert left.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize(("name", "right"), BIONEMO + STREAMING)
def test_a_flag_and_a_name_with_equals_sign_get_the_same_advice(
    name: str, right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal(capsys, f"--{name}", "1")
    short = refusal(capsys, f"--{name.rpartition('.')[2].replace('_', '-')}=1")
    setting = refusal(capsys, f"{name}=1")
    advice = said.split(": ", 2)[2]
    assert said.startswith("thdpack train: no option --")
    assert "docs/coming-from.md" not in advice
    assert short.endswith(advice)
    assert setting.endswith(advice)
    ours = re.findall(r"`(--[a-z-]+)", right) if (name, right) in BIONEMO else []
    assert not ours or any(flag in advice for flag in ours)


def test_the_page_lists_options_of_bionemo_and_of_streaming() -> None:
    assert {"grad_acc_steps", "cp_size", "checkpoint.ckpt_dir"} <= {name for name, _ in BIONEMO}
    assert {"cache_limit", "predownload"} <= {name for name, _ in STREAMING}


@pytest.mark.parametrize("word", ["dataset.buffer_size=9", "--dataset.buffer-size", "+a.b=1"])
def test_the_error_for_an_unknown_dotted_option_names_the_page(
    word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "docs/coming-from.md" in refusal(capsys, word)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["use_te=true"], "use_te=true: options begin with two hyphens: use --backend te"),
        (["--fsdp"], "no option --fsdp: use --shard full"),
        (["--dtype", "bf16"], "no option --dtype: use --precision bf16"),
        (["--deepspeed", "ds.json"], "no option --deepspeed: use --shard optimizer"),
        (["--threads", "2"], "no option --threads: torch chooses the number of threads: to change"),
        (["--num-threads=2"], "set the environment variable OMP_NUM_THREADS, as in OMP_NUM_THREA"),
        (["--max-epochs", "3"], "no option --max-epochs: use --epochs"),
        (["--save-every", "5"], "no option --save-every: use --checkpoint-every"),
        (["--log-interval", "5"], "no option --log-interval: use --log-every"),
        (["--ddp"], "no option --ddp: use --shard none"),
        (["--device", "cpu"], "no option --device: not needed"),
        (["--capacity", "512"], "use --capacity of thdpack preprocess"),
        (["--variants", "2"], "use --variants of thdpack preprocess"),
        (
            ["--max-restarts", "3"],
            "an option of torchrun: write it before -m",
        ),
        (
            ["--nproc-per-node=8"],
            "an option of torchrun: write it before -m",
        ),
        (
            ["--endpoint-url", "u"],
            "set the environment variable AWS_ENDPOINT_URL",
        ),
        (["--devices", "8"], "no option --devices: use torchrun --nproc-per-node N -m thdpack"),
    ],
)
def test_the_error_for_an_option_of_another_trainer_names_ours(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in refusal(capsys, *words)


def test_a_setting_inside_a_group_gets_the_advice_for_the_group(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "use --learning-rate, --beta1" in refusal(capsys, "adamw_kwargs.lr=1e-4")
    said = refusal(capsys, "dataset.load_dataset_kwargs.path=x")
    assert "run thdpack preprocess once" in said
