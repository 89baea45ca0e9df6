"""The Nextflow modules in deploy/nextflow/: their shell code runs, and their files agree.

Nextflow itself is not installed. `make test-workflows` runs the Snakemake wrappers.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPO

MODULES = REPO / "deploy" / "nextflow" / "thdpack"


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
