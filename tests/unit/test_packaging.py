"""Files that describe the package agree with pyproject.toml, and kernels need no other library."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from typing import Any

import pytest
import yaml

import schemas
from tests.conftest import REPO

PROJECT: dict[str, Any] = tomllib.loads((REPO / "pyproject.toml").read_text())
IN_CONDA = {"isal": "python-isal", "xxhash": "python-xxhash"}
"""Names in conda-forge that differ from those in pyproject.toml."""


def bounds(requirements: list[str]) -> set[str]:
    """Return requirements as conda writes them, without conditions: `numpy >=2.0`."""
    split = [re.split(r"(?=>=)", each.partition(";")[0], maxsplit=1) for each in requirements]
    return {f"{IN_CONDA.get(name, name)} {bound}".lower() for name, bound in split}


def test_the_conda_recipe_requires_what_pyproject_requires() -> None:
    recipe = yaml.safe_load((REPO / "deploy/conda/recipe.yaml").read_text())
    needed = recipe["requirements"]
    run = {each["then"] if isinstance(each, dict) else each for each in needed["run"]}
    [python] = [each for each in run if each.startswith("python ")]
    assert python == f"python {PROJECT['project']['requires-python']}"
    assert run - {python} == bounds(PROJECT["project"]["dependencies"])
    assert set(needed["host"]) > bounds(PROJECT["build-system"]["requires"])
    assert recipe["build"]["python"]["entry_points"] == [
        f"{name} = {target}" for name, target in PROJECT["project"]["scripts"].items()
    ]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("deploy/conda/recipe.yaml", '  version: "{}"'),
        ("deploy/service/kubernetes.yaml", "          image: thdpack-watch:{}"),
        ("CITATION.cff", "version: {}"),
    ],
)
def test_files_state_the_version_of_the_package(file: str, line: str) -> None:
    assert line.format(schemas.__version__) in (REPO / file).read_text().splitlines()


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("test_versions.sh newer python3 '' tests", "Run instead: make test-lowest, or: make"),
        ("bare_pythons.sh trixie", "trixie is neither SUITE:VERSION, such as trixie:3.13, nor"),
        ("bare_pythons.sh --examples sid:/none", "sid:/none names a folder that does not exist"),
    ],
)
def test_a_script_refuses_wrong_arguments_before_it_installs(command: str, message: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"deploy/packaging/{command}"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_the_same_versions_of_python_are_declared_built_and_tested() -> None:
    classifiers = " ".join(PROJECT["project"]["classifiers"])
    declared = re.findall(r"Python :: (3\.\d+)", classifiers)
    assert PROJECT["project"]["requires-python"] == f">={declared[0]}"
    built = re.findall(r"cp3(\d+)-", PROJECT["tool"]["cibuildwheel"]["build"])
    assert [f"3.{minor}" for minor in built] == declared
    jobs = yaml.safe_load((REPO / ".github/workflows/ci.yml").read_text())["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == declared
    assert jobs["wheel"]["strategy"]["matrix"]["python"] == declared


def test_the_make_targets_of_workflows_exist() -> None:
    text = "".join(path.read_text() for path in (REPO / ".github/workflows").iterdir())
    named = set(re.findall(r"run: make ([a-z-]+)", text))
    assert {"check", "test", "test-lowest", "try-wheel"} <= named
    targets = re.findall(r"^([a-z-]+):", (REPO / "Makefile").read_text(), flags=re.MULTILINE)
    assert named <= set(targets)


@pytest.mark.skipif(sys.platform != "linux", reason="readelf reads the libraries of Linux")
def test_kernels_need_no_library_but_that_of_c() -> None:
    """A kernel that needed a library of pyarrow would work with one version of pyarrow only."""
    kernels = [
        path for package in ("packers", "pipeline") for path in (REPO / package).rglob("*.so")
    ]
    assert len(kernels) >= len(list(REPO.glob("p*/**/*.pyx"))) + 1  # memoryviews has no .pyx file
    shown = subprocess.run(
        ["readelf", "--dynamic", *kernels], capture_output=True, text=True, check=True
    )
    needed = set(re.findall(r"\(NEEDED\).*\[(.*?)\.so", shown.stdout))
    assert {"libc"} <= needed <= {"libc", "libm", "libpthread"}


def test_the_context_of_container_builds_has_every_file_that_a_wheel_needs() -> None:
    lines = (REPO / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    assert all((REPO / name).exists() for name in kept)
    packages = {
        pattern.removesuffix("*")
        for pattern in PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    }
    modules = {f"{name}.py" for name in PROJECT["tool"]["setuptools"]["py-modules"]}
    described = {"pyproject.toml", "setup.py", "MANIFEST.in", PROJECT["project"]["readme"]}
    files = {*described, *PROJECT["project"]["license-files"], "constraints.txt"}
    assert kept == packages | modules | files
