"""The docs are correct: code runs, commands print the output shown, and links exist."""

from __future__ import annotations

import gzip
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.packaging.try_wheel import pattern, printed_by, shown_commands
from tests.helpers.pages import PAGES, shell_commands, snippets
from tests.helpers.processes.command_line import REPO, Run, environment, run_here
from tests.helpers.stores.object_store import object_store, point_s3_at, put


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/reference/reader.md", "docs/reference/statistics.md", "docs/tutorial.md"],
)
def test_the_code_on_a_page_runs(run: Run, tmp_path: Path, sample: Path, page: str) -> None:
    assert run("preprocess", sample, "--out", tmp_path / "data" / "sample").returncode == 0
    blocks = re.findall(r"```python\n(.*?)```", (REPO / page).read_text(), flags=re.DOTALL)
    assert blocks
    program = "\n".join(blocks)
    where = {
        "PYTHONPATH": str(REPO),
        "HF_DATASETS_CACHE": str(tmp_path / "cache"),
        "HF_HUB_OFFLINE": "1",
        "XDG_CACHE_HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, **environment(), **where},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


def test_the_code_on_pages_that_use_a_model_runs(
    tmp_path: Path, sample: Path, monkeypatch: pytest.MonkeyPatch, numerics: None
) -> None:
    """Run the pages one after another in one process, with a model of one step."""
    from trainer.embed import main as embed
    from trainer.train import main as train

    monkeypatch.chdir(tmp_path)
    assert run_here("preprocess", sample, "--out", "data", where=tmp_path).returncode == 0
    run = "--data data --out runs/esm2-tiny --steps 1 --warmup-steps 0 --buckets-per-step 1"
    train(["esm2-tiny", *shlex.split(run)])
    embed(["runs/esm2-tiny", "data", "--out", "embeddings"])
    for model in ("tuned", "esm2-650m"):
        shutil.copytree("runs/esm2-tiny", f"runs/{model}")
    pages = ["docs/quickstart-finetune.md", "docs/guides/training.md", "docs/guides/inference.md"]
    programs = {}
    for page in pages:
        blocks = re.findall(r"```python\n(.*?)```", (REPO / page).read_text(), flags=re.DOTALL)
        assert blocks
        # the model of the page has 33 layers, that of the test has two
        programs[page] = "\n".join(blocks).replace("mean_33", "mean_2")
    for page in ("docs/tutorial.md", "docs/quickstart-pretrain.md"):
        [program] = [each.text for each in snippets(page) if ".from_pretrained(" in each.text]
        programs[page] = f"from transformers import AutoModelForMaskedLM\n{program}"
    for page, program in programs.items():
        exec(compile(program, page, "exec"), {"__name__": "page"})
    _run_inference(tmp_path, sample)


def _run_inference(folder: Path, sample: Path) -> None:
    """Run the commands of the guide on inference, with the tiny model of runs/esm2-tiny."""
    from trainer.embed import main as embed
    from trainer.score import main as score

    for model in ("runs/first", "weights/esm2-650m"):
        shutil.copytree("runs/esm2-tiny", model)
    shutil.copytree("data", "data/sample")
    names = [record.split("\n")[0] for record in sample.read_text().split(">")[1:4]]
    sequence = "MKTAYIAKQRQISFVKSHFSRQLEERLGLIEV"
    Path("proteins.fasta").write_text("".join(f">{name}\n{sequence}\n" for name in names))
    mutant = f"{sequence[1]}2W,{sequence[0]}W{sequence[2:]},1.5"
    Path("assay.csv").write_text(f"mutant,mutated_sequence,DMS_score\n{mutant}\n")
    ran = []
    for _, command, *words in shell_commands("docs/guides/inference.md", "thdpack"):
        if "MODEL" not in words and command != "train":
            words = ["1,last" if word == "6,last" else word for word in words]
            {"embed": embed, "score": score}[command](words)
            assert (folder / words[words.index("--out") + 1]).exists()
            ran.append(command)
    assert ran == ["embed", "embed", "score", "score", "score", "score"]


def test_the_options_of_training_commands_on_all_pages_exist() -> None:
    from trainer.config import parse

    seen = 0
    for page in PAGES:
        for words in shell_commands(page, "thdpack train", "torchrun"):
            if "train" in words and "--data" in words:
                options = [word for word in words[words.index("train") + 1 :] if word != "…"]
                end = options.index("#") if "#" in options else len(options)
                parse(options[:end])
                seen += 1
    assert seen >= 10


def test_every_page_with_python_code_is_run_by_a_test() -> None:
    with_code = {page for page in PAGES if "```python" in (REPO / page).read_text()}
    text = Path(__file__).read_text()
    assert not [page for page in with_code if f'"{page}"' not in text]


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/quickstart-finetune.md"])
def test_commands_on_a_page_print_what_the_page_shows(
    tmp_path: Path, sample: Path, page: str
) -> None:
    (tmp_path / "data").mkdir()
    shutil.copy(sample, tmp_path / "data" / "sample.fasta")
    commands = shown_commands((REPO / page).read_text())
    assert commands
    for line, output in commands:
        program, *arguments = shlex.split(line)
        assert program == "thdpack"
        done = run_here(*arguments, where=tmp_path)
        assert done.returncode == 0, done.stderr
        printed = printed_by(done)
        assert re.fullmatch(pattern(output), printed), f"{line} prints\n{printed}"


def test_the_pre_training_quickstart_runs_from_s3_to_an_export(
    run: Run,
    sample: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    numerics: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Run each command on the page, with moto as the store. A tiny model trains for two steps."""
    from trainer.train import main

    page = "docs/quickstart-pretrain.md"
    monkeypatch.chdir(tmp_path)
    with object_store() as store:
        point_s3_at(store.endpoint, monkeypatch)
        put("s3://bucket/uniref50/sample.fasta.gz", gzip.compress(sample.read_bytes()))
        ran = []
        for words in shell_commands(page, "thdpack", "torchrun"):
            words = [word.replace("/tmp/thdpack-", f"{tmp_path}/") for word in words]
            if words[0] == "thdpack":
                for _ in range(2):  # a repeated command must succeed, too
                    done = run(*words[1:])
                    assert done.returncode == 0, done.stderr
            else:
                model = words[words.index("train") + 1]
                flags = words[words.index(model) + 1 :]
                for flag in ("--steps", "--buckets-per-step"):
                    if flag in flags:
                        del flags[flags.index(flag) : flags.index(flag) + 2]
                tiny = "esm2-tiny --layers 1 --hidden-size 16 --heads 2 --ffn-size 16"
                short = "--steps 2 --warmup-steps 0 --buckets-per-step 1"
                for _ in range(2):
                    main([*shlex.split(tiny), *flags, *shlex.split(short)])
                out = tmp_path / flags[flags.index("--out") + 1]
                assert (out / "export" / "model.safetensors").exists()
                assert list((tmp_path / "cache").iterdir())
            ran.append(" ".join(word for word in words[:2] if not word.startswith("-")))
    assert ran == ["thdpack preprocess", "thdpack verify", "thdpack plan", "torchrun", "torchrun"]
    assert "done: runs/esm2-650m/export loads with" in capsys.readouterr().err


NEEDED = {
    "report": r"thdpack stats data/(?!\S+\.(?:fasta|fa))|thdpack stats .*--html",
    "s3": r"thdpack .*s3://",
    "gcs": r"thdpack .*gs://",
    "ray": r"thdpack .*--executor ray",
    "train|gpu": r"(?:-m )?thdpack train ",
    "hf": r"hf download|import .*\btransformers|from transformers import",
}
"""For each extra, a regular expression that finds commands and code that need the extra."""
INSTALLED_BY = {"report": "make stats", "train|gpu": "make train"}


@pytest.mark.parametrize(
    "page",
    ["README.md", "docs/tutorial.md", *(page for page in PAGES if re.search("quick|guides", page))],
)
def test_a_page_installs_the_extras_that_its_commands_need(page: str) -> None:
    """A page installs an extra with pip or make, or it names the extra."""
    text = (REPO / page).read_text()
    shown = "\n".join(re.findall(r"^(?:    |\$ )(.*)", text.replace("\\\n", " "), re.MULTILINE))
    shown += "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    needed = {extra for extra, commands in NEEDED.items() if re.search(commands, shown)}
    missing = {
        extra
        for extra in needed
        if not re.search(rf"pip install -e '\.\[(?:\w+,)*(?:{extra})(?:,\w+)*\]'", text)
        and INSTALLED_BY.get(extra, "no command") not in text
        and not re.search(rf"extras? `(?:{extra})`", text)
    }
    assert not missing
    assert needed or page not in ("README.md", "docs/tutorial.md")


@pytest.mark.parametrize("page", PAGES)
def test_links_and_paths_on_a_page_exist(page: str) -> None:
    text = re.sub(r"```.*?```", "", (REPO / page).read_text(), flags=re.DOTALL)
    links = re.findall(r"\]\(([^)#\s]+)", text) + re.findall(r"src(?:set)?=\"([^\"]+)\"", text)
    missing = [
        link
        for link in links
        if "://" not in link and not (REPO / page).parent.joinpath(link).exists()
    ]
    named = re.findall(
        r"(?<![\w/.])((?:docs|deploy|schemas|packers|pipeline|trainer|benchmarks|tests)/[\w./-]+\.\w+)",
        text,
    )
    missing += [path for path in named if not (REPO / path).exists()]
    assert not missing


def test_documents_named_in_the_code_exist() -> None:
    folders = ("schemas", "packers", "pipeline", "trainer", "benchmarks", "deploy", "tests")
    files = [
        path
        for folder in folders
        for path in (REPO / folder).rglob("*.*")
        if path.suffix in (".py", ".pyx", ".sbatch", ".sh", ".yaml")
    ]
    named = {
        name
        for path in [*files, REPO / "Makefile"]
        for name in re.findall(r"(?<![\w/])(?:docs|deploy)/[\w./-]+\.\w+", path.read_text())
    }
    assert named
    assert not [name for name in named if not (REPO / name).exists()]


def test_the_file_tree_of_the_readme_names_every_folder() -> None:
    tree = (REPO / "README.md").read_text().split("## File tree")[1]
    rooms = {
        path.parent
        for package in ("schemas", "packers", "pipeline", "trainer")
        for path in (REPO / package).rglob("*.py")
    }
    assert not [
        room for room in rooms if not re.search(rf"^ +{room.name}/ ", tree, flags=re.MULTILINE)
    ]


def test_the_script_of_the_page_on_clusters_builds_a_dataset(
    run: Run, sample: Path, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    shutil.copy(sample, tmp_path / "data" / "sample.fasta")
    [script] = re.findall(
        r"```sh\n(.*?)```", (REPO / "docs/guides/clusters.md").read_text(), flags=re.DOTALL
    )
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        env={**environment(), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert run("verify", tmp_path / "data" / "listed").returncode == 0
