"""The scripts for clusters in deploy/: their settings are documented, their examples run.

Shell functions replace the programs of the cluster.
"""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from tests.conftest import REPO
from tests.helpers.pages import PAGES

PAGE_OF = {
    "deploy/slurm/preprocess.sbatch": ("docs/guides/clusters.md", "### On Slurm"),
    "deploy/slurm/train.sbatch": ("docs/guides/training.md", "### Under torchrun and Slurm"),
    "deploy/kubernetes/preprocess.sh": ("docs/guides/clusters.md", "### On Kubernetes"),
}
"""Page and heading of the table of settings of each script."""
INTERNAL = {"STAGE", "DIGEST", "OPTION_WORDS", "BEGAN_AT"}
"""Variables that a script sets itself."""
FUNCTIONS = {
    "sbatch": 'if [ -n "${STAGE:-}" ]; then echo 17; else bash "${!#}"; fi',
    "thdpack": r"printf 'plan d\n map 2 tasks\n reduce 2 tasks\n'",
    "kubectl": "echo 'no cluster' >&2; return 1",
    "torchrun": ":",
    "scontrol": "echo node1",
    "srun": 'echo "$@"',
}
SLURM = {"SLURM_JOB_ID": "7", "SLURM_GPUS_ON_NODE": "8", "SLURM_NNODES": "2"}
ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    **SLURM,
    "SLURM_JOB_NODELIST": "node[1-2]",
    **{f"BASH_FUNC_{name}%%": f"() {{ {body}\n}}" for name, body in FUNCTIONS.items()},
}


def comment(script: str) -> str:
    """Return the comment at the top of a script, without #."""
    lines = (REPO / script).read_text().splitlines()
    ends = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    return "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines[1:ends])


def documented(script: str) -> list[str]:
    """Return the settings in the table of a script."""
    page, heading = PAGE_OF[script]
    section = (REPO / page).read_text().split(f"{heading}\n")[1].split("\n#")[0]
    rows = re.findall(r"^\| (`[A-Z].*?) \|", section, flags=re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([A-Z_]+)`", row)]


@pytest.mark.parametrize("script", PAGE_OF)
def test_each_setting_of_a_script_is_documented_and_each_documented_setting_is_read(
    script: str,
) -> None:
    files = [REPO / script]
    if script.startswith("deploy/kubernetes/"):
        files.append(files[0].with_name("settings.sh"))
    code = "".join(re.sub(r"^#.*", "", file.read_text(), flags=re.MULTILINE) for file in files)
    read = set(re.findall(r"\$\{([A-Z][A-Z_]+):[-+]", code)) - INTERNAL
    settings = {name for name in read if not name.startswith("SLURM_")}
    assert set(documented(script)) == settings
    missing = [name for name in settings if not re.search(rf"\b{name}\b", comment(script))]
    assert not missing, f"explain these in the comment at the top of {script}: {missing}"


@pytest.mark.parametrize(
    ("script", "setting"), [(script, name) for script in PAGE_OF for name in documented(script)]
)
def test_windows_line_endings_in_any_setting_are_one_line(script: str, setting: str) -> None:
    needed = {"INPUTS": "s3://b/a", "DATASET": "s3://b/set", "RUN": "run", "IMAGE": "thdpack"}
    env = {**ENVIRONMENT, **needed, setting: "1\r"}
    done = run(f"bash {script}", env)
    assert done.returncode == 2
    assert re.fullmatch(rf"\S+: {setting} contains a carriage return.*\n", done.stderr)


EXAMPLE = r"(?:[A-Z_]+=(?:\"[^\"]*\"|\S+) )+(?:sbatch (?:--nodes 2 )?)?deploy/\S+"
EXAMPLES = [
    example
    for text in (*((REPO / page).read_text() for page in PAGES), *map(comment, PAGE_OF))
    for example in re.findall(EXAMPLE, re.sub(r"\s*\\\n\s*", " ", text))
]


def test_there_is_an_example_of_each_script() -> None:
    assert {example.split()[-1] for example in EXAMPLES} == set(PAGE_OF)


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_of_the_scripts_run(example: str) -> None:
    done = run(example, ENVIRONMENT)
    if example.endswith("preprocess.sh"):  # all settings are accepted, then the cluster is asked
        assert done.stderr.startswith("preprocess.sh: kubectl cannot read Jobs (no cluster)")
    else:
        assert done.returncode == 0, done.stderr
        shown = r"commit, has succeeded: job 17|-m thdpack train esm2-650m .*--steps 100000"
        assert re.search(shown, done.stdout)


def run(command: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a command in the root of the repository, as bash does."""
    return subprocess.run(
        ["bash", "-c", command], cwd=REPO, env=env, capture_output=True, text=True, check=False
    )
