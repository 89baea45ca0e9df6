"""A wrong command line gives one line without a frame: the command, the mistake and the remedy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from schemas.text.option_help import InvalidOptionError
from schemas.text.option_words import one_line_errors, unframed
from tests.helpers.processes.command_line import REPO, Run, environment
from trainer.config import parse

DATASET_MISSING = "DATASET is missing: give the dataset's folder or URL, as in `thdpack"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("verify", f"{DATASET_MISSING} verify data/uniref50`"),
        ("inspect --bucket 0", f"{DATASET_MISSING} inspect data/uniref50`"),
        ("card", f"{DATASET_MISSING} card data/uniref50`"),
        ("bench-reader", f"{DATASET_MISSING} bench-reader data/uniref50`"),
        ("commit", f"{DATASET_MISSING} commit data/uniref50`"),
        ("run-task --index 0", f"{DATASET_MISSING} run-task data/uniref50`"),
        ("run-task d", "--index is missing: add --index INT, a whole number"),
        ("stats", "name a dataset, two datasets to compare, or sequence files"),
        (
            "preprocess x --out",
            "--out has no value: write --out DATASET, the dataset's folder or URL",
        ),
        ("preprocess x --exclude --out d", "--exclude has no value: write --exclude FILE"),
        ("preprocess x --out d --seed", "--seed has no value: write --seed INT, a whole number"),
        ("inspect d --split", "--split has no value: write --split train, valid or test"),
        (
            "verify -d d",
            "no option -d: name the dataset alone, as in `thdpack verify d`",
        ),
        ("verify d -q", "no option -q: the options are --deep, --workers"),
        ("verify d --deep=yes", "--deep takes no value: omit =yes"),
        ("preprocess a --out d b", "b comes after --out: write all arguments together, before the"),
        ("stats d --json r e", "e comes after --json: write all arguments together"),
        ("preprocess x --Out d", "no option --Out: did you mean --out?"),
        ("append d a --workers 2 b", "b comes after --workers: write all arguments together"),
        ("watch in data", "too many arguments: to name the dataset, write --dataset data"),
        ("verify d --deep yes", "too many arguments: remove yes"),
        ("bench-reader d --cache-bytes lots", "--cache-bytes is 'lots', expected a size, such as"),
        ("preprocess x --out d --bogus", "no option --bogus: `thdpack preprocess --help` lists"),
        ("preprocess x --out d --capacity 16k", "--capacity is '16k', expected a whole number wit"),
        (
            "preprocess x --out d --executor slurm",
            "--executor is 'slurm', expected processes or ray",
        ),
        (
            "verify s3://b/d --endpoint-url x",
            "no option --endpoint-url: set the environment",
        ),
        (
            "preprocess x --out d --endpoint u",
            "no option --endpoint: set the environment variable A",
        ),
        ("plan d", "d: write an option before it: --data d"),
        ("preprocess", "INPUT and --out are missing: write `thdpack preprocess INPUT --out DATASE"),
        ("append", f"{DATASET_MISSING} append data/uniref50 INPUT`"),
        ("gc d --dry-run", "no option --dry-run: without --delete, `thdpack gc` only lists the fi"),
        ("watch", "INBOX and --dataset are missing: write `thdpack watch INBOX --dataset D"),
        ("bench-reader d --rank 2", "--rank is 2, expected less than --world-size, which is 1"),
        ("plan --data d --precision fp8", "--precision is 'fp8': did you mean fp8-delayed?"),
        ("append d x --capacity 4096", "no option --capacity: a dataset keeps its build's values"),
        ("compact d x --split valid=0.1", "no option --split: a dataset keeps its build's values"),
        ("compact d --out e", "no option --out: the dataset is rewritten in place. To keep it"),
        ("inspect d --record=", "--record is empty: is a shell variable unset? If not, omit the"),
        ("append --out d x", "no option --out: the dataset is the first argument, before the"),
        ("card d --license=", "--license is empty: is a shell variable unset? If not, omit the"),
        ("preprocess x --out d --valid 0.05", "no option --valid: use --split, as in --split val"),
        ("preprocess x --out d --test=0.1", "no option --test: use --split, as in --split valid="),
        ("preprocess x no/x1", "--out is missing: did you mean --out no/x1?"),
        ("preprocess x1", "--out is missing: add --out DATASET, the dataset's folder or URL"),
        ("preprocess x y.fasta", "--out is missing: add --out DATASET, the dataset's folder or U"),
        ("preprocess x docs", "--out is missing: add --out DATASET, the dataset's folder or URL"),
        ("preprocess x *", "--out is missing: add --out DATASET, the dataset's folder or URL"),
        ("preprocess x --out d --force", "no option --force: use --overwrite"),
        ("preprocess x --outdir d", "no option --outdir: use --out"),
        ("plan-tasks x --out d --min-length 9", "no option --min-length: use --min-residues"),
        ("preprocess x --out d --out e", "--out is given more than once: remove all but one"),
        ("verify d --deep --deep", "--deep is given more than once: remove all but one"),
        ("preprocess x --out=~/d", "--out is ~/d: the shell has not replaced ~/: write $HOME/"),
        ("preprocess x --out d --exclude mmseqs:~/t", "--exclude is mmseqs:~/t: the shell has not"),
        ("preprocess ~/none.fasta --out d", "~/none.fasta: the shell has not replaced ~/: write"),
        ("plan --data d --tokens 9Q", "--tokens is '9Q', expected a whole number, such as 100B; "),
    ],
)
def test_wrong_words_give_one_line_that_names_the_command_and_the_remedy(
    run: Run, words: str, said: str
) -> None:
    done = run(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"thdpack {words.split()[0]}: {said}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--verison", "no option --verison: did you mean --version?"),
        ("-v", "no option -v: write --version"),
        ("version", "no command version: write --version"),
        ("retire d", "no command retire: use `thdpack append DATASET --retire FILE`"),
        ("validate d", "no command validate: use `thdpack verify DATASET`"),
        ("check d", "no command check: use `thdpack verify DATASET`"),
        ("info d", "no command info: use `thdpack inspect DATASET`"),
        ("build x", "no command build: use `thdpack preprocess INPUT --out DATASET`"),
        (
            "merge a b",
            "no command merge: use `thdpack append DATASET INPUT` to add records to a da",
        ),
        ("help verfy", "no command verfy: did you mean verify?"),
        ("-d verify", "a command comes before -d: `thdpack help` lists the commands"),
        ("frobnicate", "no command frobnicate: the commands are preprocess, append, "),
    ],
)
def test_a_wrong_first_word_gives_one_line(run: Run, words: str, said: str) -> None:
    done = run(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert line.startswith(f"thdpack: {said}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--data d extra", "too many arguments: remove extra, or write --data before it"),
        ("--data d --lr 1e-3 extra", "extra: write an option before it: --data extra"),
        ("--data d --lr abc", "--lr is 'abc', expected a number, such as 0.0004"),
        ("--data d --lr=abc", "--lr is 'abc', expected a number, such as 0.0004"),
        ("--data d --learning-rate abc", "--learning-rate is 'abc', expected a number"),
        ("--data d --lr", "--lr has no value: write --lr FLOAT"),
        ("--data", "--data has no value: write --data DATASET, the dataset's folder or URL"),
        ("--backend --data d", "--backend has no value: write --backend auto, te or torch"),
        ("-d d", "no option -d: `thdpack train esm2-tiny --help` lists all options"),
        ("--bogus", "no option --bogus: `thdpack train esm2-tiny --help` lists all options"),
        ("--tokens-given --data d", "no option --tokens-given: `thdpack train esm2-tiny --help`"),
        ("--data ~/d", "--data is ~/d: the shell has not replaced ~/: write $HOME/ instead"),
        ("--dry-run=1 --data d", "--dry-run takes no value: omit =1"),
        ("--buckets-per-micro-batch x --data d", "--buckets-per-micro-batch is 'x', expected auto"),
    ],
)
def test_wrong_words_of_train_give_one_line(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        parse(["esm2-tiny", *words.split()])
    assert stopped.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    assert line.startswith(f"thdpack train: {said}")


@pytest.mark.parametrize("module", [("thdpack", "train"), ("trainer.train",)])
def test_both_commands_that_train_print_the_same_line(module: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *module, "esm2-tiny", "--data", "d", "extra"],
        cwd=REPO,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    said = "thdpack train: too many arguments: remove extra, or write --data before it\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_the_version_and_the_help_of_a_command_have_two_spellings(run: Run) -> None:
    assert run("-V").stdout == run("--version").stdout
    assert run("help", "verify").stdout == run("verify", "--help").stdout


def test_help_train_shows_the_help_of_train() -> None:
    shown = [
        subprocess.run(
            [sys.executable, "-m", "thdpack", *words],
            cwd=REPO,
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for words in (("help", "train"), ("train", "--help"), ("help", "train", "esm2-tiny"))
    ]
    assert shown[0] == shown[1]
    assert "--learning-rate" in shown[2]


def test_an_option_may_stand_between_the_dataset_and_the_inputs(run: Run) -> None:
    done = run("append", "none", "--workers", "1", "a", "b")
    assert done.returncode == 1
    assert done.stderr.startswith("thdpack append: none: there is no such folder")


@pytest.mark.parametrize("command", ["append", "compact"])
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_file_in_place_of_the_dataset_is_refused(
    run: Run, sample: Path, command: str, more: tuple[str, ...]
) -> None:
    done = run(command, sample, "d", *more)
    said = f"{sample} is a file, but the dataset comes first, as in `thdpack {command} DATASET INP"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"thdpack {command}: {said}")


def test_an_input_in_a_folder_named_like_the_home_folder_is_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "~").mkdir()
    (tmp_path / "~" / "x.fasta").write_bytes(b">a\nMK\n")
    done = run("preprocess", "~/x.fasta", "--out", "d", "--dry-run", where=tmp_path)
    assert done.returncode == 0, done.stderr


def test_an_option_after_two_hyphens_is_an_input(run: Run) -> None:
    done = run("preprocess", "--out", "d", "--dry-run", "--", "--no-such-file.fasta")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no such file" in done.stderr


def test_an_error_that_tyro_prints_in_a_frame_becomes_one_line() -> None:
    import tyro

    with pytest.raises(InvalidOptionError) as caught, one_line_errors():
        tyro.cli(tuple[int, int], args=["1", "two"])
    said = str(caught.value)
    assert "two" in said
    assert "\n" not in said
    assert not set("│╭╰─") & set(said)


def test_a_frame_of_ascii_characters_is_removed() -> None:
    framed = (
        "+- Value error ---+\n| Error parsing x |\n| --------------- |\n| help |\n+---------+\n"
    )
    assert unframed(framed) == "Error parsing x"
