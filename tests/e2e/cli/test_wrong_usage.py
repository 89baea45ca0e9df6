"""Wrong usage: the exit code is 2, and the error names the mistake and the right option."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.processes.command_line import Run


def test_the_exit_code_of_the_process_is_2_for_wrong_usage(
    run_process: Run, tmp_path: Path
) -> None:
    for arguments, message in (
        (("--capacity", "2"), "--capacity is 2"),
        (("--nonsense",), "nonsense"),
    ):
        done = run_process("preprocess", "x.fasta", "--out", tmp_path / "out", *arguments)
        assert done.returncode == 2
        assert message in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--capacity", "2"], "--capacity is 2"),
        (["--capacity", "100000000000"], "at most 16777216, the limit of the dataset format: a"),
        (["--max-seq-len", "20000"], "does not fit --capacity"),
        (["--length-multiple", "7"], "not a multiple of"),
        (["--split", "valid=1.5"], "expected a number from 0 to 1"),
        (["--memory", "lots"], "expected something like 512M"),
        (["--packer", "magic"], "magic"),
        (["--nonsense"], "nonsense"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_what_is_wrong(
    run: Run, sample: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = run("preprocess", sample, "--out", tmp_path / "out", *arguments)
    assert done.returncode == 2
    assert message in re.sub(r"\s+", " ", done.stderr + done.stdout)
    assert "Traceback" not in done.stderr
    assert "Arguments" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_error_for_a_misspelt_command_suggests_the_right_one(run: Run) -> None:
    done = run("prepocess", "x.fasta")
    assert done.returncode == 2
    assert done.stderr == "thdpack: no command prepocess: did you mean preprocess?\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("preprocess", "x.fasta", "--output", "o"), "no option --output: use --out"),
        (("preprocess", "x.fasta", "-o", "o"), "no option -o: use --out"),
        (("plan-tasks", "x.fasta", "--max_length=9"), "no option --max-length: use --max-seq-len"),
        (("stats", "x.fasta", "--output", "o"), "no option --output: use --html FILE, --json"),
        (("preprocess", "x.fasta", "-out", "o"), "no option -out: write --out, with two hyphens"),
        (("plan", "--dataset", "d"), "no option --dataset: use --data"),
        (("preprocess", "--filter", "f", "x.fasta"), "no option --filter: use --where"),
        (("verify", "--depp", "d"), "no option --depp: did you mean --deep?"),
        (("verify", "--gen", "3", "d"), "no option --gen: did you mean --generation?"),
        (("inspect", "--buckt", "0", "d"), "no option --buckt: did you mean --bucket?"),
        (
            ("verify", "--dataset", "d"),
            "no option --dataset: name the dataset alone, as in `thdpack verify d`",
        ),
        (("verify", "d", "e"), "too many arguments: remove e"),
        (("plan", "--data", "d", "--steps", "9"), "no option --steps: use --tokens"),
    ],
)
def test_the_error_for_a_wrong_option_or_argument_names_it_and_the_right_one(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    done = run(*words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"thdpack {words[0]}: {said}")


def test_an_input_name_may_contain_an_equals_sign(run: Run, sample: Path, tmp_path: Path) -> None:
    path = tmp_path / "date=2024.fasta"
    path.symlink_to(sample)
    done = run("preprocess", path.name, "--out", tmp_path / "out", where=tmp_path)
    assert done.returncode == 0


def test_a_sequence_file_given_as_dataset_is_an_error_that_says_how_to_build_one(
    run: Run, sample: Path
) -> None:
    for words in (("verify", sample), ("inspect", sample), ("plan", "--data", sample)):
        said = f"thdpack {words[0]}: {sample}: a file, not a dataset: build a dataset with `thdpack"
        assert run(*words).stderr.startswith(said)
