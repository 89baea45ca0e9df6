"""The files of Nextflow and Snakemake in deploy/: their shell code runs, and their files agree.

Neither is installed. `make test-workflows` runs the Snakemake wrappers.
"""

from __future__ import annotations

import ast
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import yaml

from tests.conftest import REPO

MODULES = REPO / "deploy" / "nextflow" / "thdpack"
SNAKEMAKE = REPO / "deploy" / "snakemake"


def shell_code(module: str, block: str, **values: str) -> str:
    """Return the shell code of a block (script or stub), with Groovy's variables and escapes
    replaced."""
    text = (MODULES / module / "main.nf").read_text()
    found = re.search(rf'{block}:.*?"""\n(.*?)"""', text, flags=re.DOTALL)
    assert found is not None
    code = re.sub(r"^ {4}", "", found[1], flags=re.MULTILINE)
    replaced = re.sub(
        r"(?<!\\)\$(?:\{([\w.]+)\}|([\w.]+))", lambda match: values[match[1] or match[2]], code
    )
    return replaced.replace("\\\\", "\\").replace("\\$", "$")


@pytest.mark.parametrize("block", ["script", "stub"])
def test_the_shell_code_of_the_nextflow_modules_writes_their_outputs(
    tmp_path: Path, block: str
) -> None:
    shown = {"task.cpus": "1", "args": "", "prefix": "sample", "task.process": "THDPACK"}
    values = {**shown, "fasta": str(REPO / "data" / "sample.fasta"), "dataset": "sample"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for module, files in (
        ("preprocess", ["sample/manifest.json"]),
        ("stats", ["sample.html", "sample.json"]),
    ):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", shell_code(module, block, **values)],
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        for name in (*files, "versions.yml"):
            assert (tmp_path / name).exists(), name
        versions = yaml.safe_load((tmp_path / "versions.yml").read_text())
        assert re.fullmatch(r"\d+\.\d+\.\d+\S*", versions["THDPACK"]["thdpack"])


@pytest.mark.parametrize("module", ["preprocess", "stats"])
def test_the_meta_file_names_each_output_of_a_nextflow_module(module: str) -> None:
    meta = yaml.safe_load((MODULES / module / "meta.yml").read_text())
    emitted = re.findall(r"emit: (\w+)", (MODULES / module / "main.nf").read_text())
    assert meta["name"] == f"thdpack_{module}"
    assert list(meta["output"]) == emitted


def test_an_environment_does_not_install_thdpack_from_an_index() -> None:
    """Anybody could register the name there."""
    files = [*MODULES.rglob("environment.yml"), *SNAKEMAKE.rglob("environment.yaml")]
    assert len(files) == 4
    for path in files:
        *_, pip = yaml.safe_load(path.read_text())["dependencies"]
        assert pip == {"pip": ["/PATH/OF/CHECKOUT[report]"]}, path


def run_wrapper(monkeypatch: pytest.MonkeyPatch, name: str, **job: object) -> dict[str, object]:
    """Run a Snakemake wrapper without its command; return its variables."""
    shell = ModuleType("snakemake.shell")
    shell.shell = lambda command: None  # type: ignore[attr-defined] # stands in for Snakemake's
    monkeypatch.setitem(sys.modules, "snakemake", ModuleType("snakemake"))
    monkeypatch.setitem(sys.modules, "snakemake.shell", shell)
    given = SimpleNamespace(log_fmt_shell=lambda **_: "", params={}, threads=2, **job)
    return runpy.run_path(str(SNAKEMAKE / name / "wrapper.py"), {"snakemake": given})


@pytest.mark.parametrize("manifest", ["manifest.json", "results/uniref.json"])
def test_the_snakemake_wrapper_refuses_an_output_that_no_build_writes(
    monkeypatch: pytest.MonkeyPatch, manifest: str
) -> None:
    output = SimpleNamespace(manifest=manifest)
    with pytest.raises(ValueError, match=f"is '{manifest}': write FOLDER/manifest.json"):
        run_wrapper(monkeypatch, "preprocess", output=output)


def test_the_snakemake_wrapper_of_stats_accepts_a_blank_in_a_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used = run_wrapper(
        monkeypatch,
        "stats",
        input=SimpleNamespace(manifest="manifest.json"),
        output={"json": "my report.json"},
    )
    assert (used["dataset"], used["table"]) == (".", "--json 'my report.json'")


def test_the_snakemake_log_keeps_the_faults_that_verify_finds(tmp_path: Path) -> None:
    """Snakemake removes the output of a failed job, but not its log."""
    rule = (SNAKEMAKE / "Snakefile").read_text().split("rule verify:")[1].split("\nrule ")[0]
    command = ast.literal_eval(f"({rule.split('shell:')[1]})")
    code = command.format(threads=1, log="log", output="output")
    thdpack = "thdpack() { echo damaged.arrow; return 1; }\n"
    done = subprocess.run(["bash", "-c", thdpack + code], cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert (tmp_path / "log").read_text() == "damaged.arrow\n"
