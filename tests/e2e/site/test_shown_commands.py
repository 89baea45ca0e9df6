"""Commands that pages show, and that no other test runs, run on 60 records.

tests/e2e/site/test_snippets.py lists the tests of all snippets.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.helpers.pages import PAGES, shell_commands, snippets
from tests.helpers.processes.command_line import REPO, run_here

TRAINING_PAGES = ["README.md", "docs/guides/training.md", "docs/guides/inference.md"]
TRAINING_PAGES += ["docs/coming-from.md", "docs/tutorial.md"]
TINY = "esm2-tiny --layers 1 --hidden-size 16 --heads 2 --ffn-size 16"
SHORT = "--steps 1 --warmup-steps 0 --buckets-per-step 1 --validate-every 1 --backend torch"


@pytest.fixture
def folder(tmp_path: Path, sample: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with FASTA files, and with datasets of the names on the pages."""
    monkeypatch.chdir(tmp_path)
    records = [f">{record}" for record in sample.read_text().split(">")[1:61]]
    (tmp_path / "data").mkdir()
    for name in ("uniref50.fasta.gz", "uniref90.fasta", "data/sample.fasta", "INPUT"):
        (tmp_path / name).write_text("".join(records))
    (tmp_path / "test.fasta").write_text("".join(records[:3]))
    options = "--capacity 4096 --split valid=0.3,test=0.3 --out data/uniref50"
    build(tmp_path, "preprocess", "uniref90.fasta", *options.split())
    for name in ("DATASET", "A", "B", "data/v1", "data/v2", "data/sample", "data/mine"):
        shutil.copytree(tmp_path / "data" / "uniref50", tmp_path / name)
    return tmp_path


def build(folder: Path, *words: str) -> str:
    """Run a command of thdpack, which must succeed. Return what it prints."""
    done = run_here(*words, where=folder)
    assert done.returncode == 0, f"thdpack {shlex.join(words)}\n{done.stderr}"
    return done.stdout


def without_comment(words: list[str]) -> list[str]:
    """Return a command without the comment at its end."""
    return words[: words.index("#")] if "#" in words else words


def test_the_commands_of_the_page_on_statistics_run(folder: Path) -> None:
    commands = shell_commands("docs/reference/statistics.md", "thdpack")
    assert len(commands) >= 5
    for _, *words in commands:
        assert build(folder, *without_comment(words))
    assert all((folder / name).exists() for name in ("report.html", "report.json", "tables"))


def test_the_commands_of_plan_on_all_pages_print_a_command(folder: Path) -> None:
    pages = ["docs/guides/training.md", "docs/reference/cli.md"]
    commands = [words for page in pages for words in shell_commands(page, "thdpack plan")]
    assert len(commands) == 4
    for _, *words in commands:
        text = re.sub(r"[][]", "", shlex.join(without_comment(words)).replace("'", ""))
        if "--model" not in text:
            text += " --model esm2-650m --gpus 8xH200"
        assert "thdpack train" in build(folder, *text.split())


def test_builds_and_the_task_list_of_the_page_on_clusters_run(folder: Path) -> None:
    page = "docs/guides/clusters.md"
    local = [*shell_commands(page, "thdpack preprocess")]
    local += shell_commands("docs/coming-from.md", "thdpack preprocess")
    builds = [words for words in local if "s3://" not in " ".join(words)]
    assert len(builds) == 2
    for _, *words in builds:
        shutil.rmtree(words[words.index("--out") + 1], ignore_errors=True)
        build(folder, *without_comment(words))
    shutil.rmtree("DATASET")
    printed = build(folder, "plan-tasks", "INPUT", "--out", "DATASET")
    [digest, *_] = re.findall(r"[0-9a-f]{16}-[0-9a-f]{16}", printed)
    commands = shell_commands(page, "thdpack run-task", "thdpack commit")
    assert [words[1] for words in commands] == ["run-task", "run-task", "commit"]
    values = {"DIGEST": digest, "N": "0", "I": "0", "A": "1"}
    reduce = "thdpack run-task DATASET --plan DIGEST --stage reduce --index I"
    for _, *words in (*commands[:2], reduce.split(), commands[2]):
        build(folder, *(values.get(word, word) for word in without_comment(words)))
    build(folder, "verify", "DATASET")


def test_the_synopses_of_the_page_on_commands_name_options_that_exist_and_run(
    folder: Path,
) -> None:
    """Run each synopsis without its optional parts. Each option must be in the command's help."""
    elsewhere = ["watch", "push", "plan", "plan-tasks", "run-task", "commit", "compact", "append"]
    values = {"INPUT": "uniref90.fasta", "N": "0", "NAME": "", "…": ""}
    values["NAME"] = (folder / "test.fasta").read_text()[1:].split()[0]
    ran = []
    for snippet in snippets("docs/reference/cli.md"):
        for command in snippet.commands:
            text = re.sub(r"\s+# .*", "", command)
            _, name, *_ = words = text.split()
            if name == "score":  # its help would import torch; see the test of inference.md
                continue
            shown = build(folder, name, "--help")
            for option in re.findall(r"--[a-z][a-z-]+", text):
                assert re.search(rf"{option}(?![\w-])", shown), (
                    f"{option} is not in `thdpack {name} --help`"
                )
            if name in elsewhere or "--serve" in words:
                continue
            while "[" in text:
                text = re.sub(r"\[[^][]*\]", "", text)
            words = [values.get(word, word) for word in text.replace("DATASET|", "").split()]
            if name == "preprocess":
                words[words.index("DATASET")] = "data/new"
            words += ["--seconds", "0.1"] if name == "bench-reader" else []
            build(folder, *filter(None, words[1:]))
            ran.append(name)
    assert set(ran) == {
        "preprocess",
        "generations",
        "gc",
        "verify",
        "inspect",
        "stats",
        "card",
        "bench-reader",
    }


def test_training_commands_of_pages_run_with_a_tiny_model(
    folder: Path, numerics: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run each command with the options of its page, except model, batch and number of steps."""
    from trainer.config import parse
    from trainer.train import main

    shutil.copy("test.fasta", "new.fasta")
    sequence = "".join(Path("test.fasta").read_text().split(">")[1].split("\n")[1:])
    mutants = [f"{sequence[1]}2{x},{sequence[0]}{x}{sequence[2:]},{ord(x)}\n" for x in "CW"]
    Path("gfp.csv").write_text("mutant,mutated_sequence,DMS_score\n" + "".join(mutants))
    ran = 0
    for page in TRAINING_PAGES:
        for words in shell_commands(page, "thdpack train", "torchrun"):
            if "train" not in words:
                continue
            flags = without_comment(words)[words.index("train") + 2 :]
            if "--nnodes" in words:  # for several machines
                parse([*TINY.split(), "--data", "A", *(flag for flag in flags if flag != "…")])
                continue
            for flag in ("--steps", "--tokens-per-step", "--warmup-steps", "--wandb-project"):
                if flag in flags:
                    del flags[flags.index(flag) : flags.index(flag) + 2]
            shutil.rmtree("runs", ignore_errors=True)
            main([*TINY.split(), *flags, *SHORT.split()])
            [made] = Path("runs").iterdir()
            assert (made / "export" / "model.safetensors").exists(), words
            if not ran:
                shutil.copytree(made / "export", "esm2_650m")  # for --init-from
            ran += 1
    assert ran >= 10


def test_make_targets_variables_and_extras_on_pages_exist() -> None:
    makefile = (REPO / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    seen = 0
    for page in PAGES:
        commands = [each for snippet in snippets(page) for each in snippet.commands]
        for command in commands:
            words = shlex.split(command, comments=True) if command.startswith("make ") else []
            for word in words[1:]:
                name, is_variable, _ = word.partition("=")
                assert f"$({name})" in makefile if is_variable else name in targets, command
                seen += 1
            if command.startswith("pip install"):
                extras = {
                    name for group in re.findall(r"\[(.*?)\]", command) for name in group.split(",")
                }
                assert extras <= set(project["optional-dependencies"]), command
    assert seen >= 15


def test_benchmarks_on_pages_exist() -> None:
    """Benchmarks take minutes or need a GPU, so the test does not run them."""
    seen = set()
    for page in PAGES:
        for snippet in snippets(page):
            text = "\n".join(snippet.commands)
            for name, *_ in re.findall(r"(?<!\S)(benchmarks(\.\w+)+)", text):
                base = REPO / name.replace(".", "/")
                sources = [base.with_suffix(".py"), *base.glob("*.py")]
                code = "".join(path.read_text() for path in sources if path.exists())
                assert code, f"{page}: no module {name}"
                seen.add(name)
    assert len(seen) >= 20
