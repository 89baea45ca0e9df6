"""Try a wheel of thdpack in a new virtual environment and an empty folder.

    python deploy/packaging/try_wheel.py dist/thdpack-0.1.0-cp312-cp312-linux_x86_64.whl
    python deploy/packaging/try_wheel.py dist/thdpack-0.1.0-cp312-cp312-linux_x86_64.whl --examples

The Python that runs this script makes the virtual environment. First, pip installs the wheel alone,
and five commands run that need no extra. Then pip installs the extra `report`, and the commands
shown in README.md run. Their output must be what README.md shows. The test suite compares the
output in the same way, with `shown_commands` and `pattern`.

With `--examples`, pip also installs the extra `examples` and Jupyter's runner of notebooks. Then
the notebook of the tutorial and each script in examples/ run.

The script takes about one minute, and four more with `--examples`. It needs a package index, but no
compiler, and it imports nothing from the repository. From the repository, it reads only README.md,
data/sample.fasta and, with `--examples`, docs/tutorial.ipynb and examples/.

The builds of torch at the package index include CUDA (about 6 GB). To use a build for CPUs, set
pip's variables PIP_FIND_LINKS and PIP_CONSTRAINT.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
SAMPLE = "data/sample.fasta"
NOTEBOOK = "docs/tutorial.ipynb"
WITHOUT_EXTRAS = (
    "--version",
    f"preprocess {SAMPLE} --out data/core",
    "verify data/core --deep",
    f"stats {SAMPLE}",
    "inspect data/core --bucket 0",
)
"""Commands that need no extra."""
FOUND = "import thdpack, packers, pipeline, schemas, trainer; print(thdpack.__version__)"


def shown_commands(page: str) -> list[tuple[str, str]]:
    """Return the commands in the console blocks of a page, each with the output shown."""
    shown = "".join(re.findall(r"```console\n(.*?)```", page, flags=re.DOTALL))
    pairs = [text.partition("\n") for text in re.split(r"^\$ ", shown, flags=re.MULTILINE)[1:]]
    return [(line, output) for line, _, output in pairs]


def pattern(output: str) -> str:
    """Return a regular expression that matches the output that a page shows.

    The line `…` matches any number of lines. At the end of a line, `…` matches any text.
    """
    lines = [
        r"(?:.*\n)*"
        if line == "…"
        else re.escape(line.removesuffix("…").rstrip())
        + (r".*\n" if line.endswith("…") else r" *\n")
        for line in output.splitlines()
    ]
    return "".join(lines)


def printed_by(done: subprocess.CompletedProcess[str]) -> str:
    """Return standard output, followed by the names of written files, as a terminal shows them.

    Commands print these names to standard error.
    """
    wrote = re.findall(r"^wrote .*\n", done.stderr, flags=re.MULTILINE)
    return "".join((done.stdout, *wrote))


def try_wheel(
    wheel: Path, page: str, sample: bytes, folder: Path, *, examples: bool = False
) -> None:
    """Install `wheel` into an environment in `folder`, and run the commands in an empty folder.

    With `examples`, also run the notebook and the scripts in examples/.

    Raises:
        SystemExit: a command failed, or its output is not what the page shows.
    """
    print(f"Python {sys.version.split()[0]}: {wheel.name}", flush=True)
    venv.create(folder / "env", with_pip=True)
    programs = folder / "env" / "bin"
    where = folder / "empty"
    (where / SAMPLE).parent.mkdir(parents=True)
    (where / SAMPLE).write_bytes(sample)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(programs / words[0]), *words[1:]],
            cwd=where,
            env={**os.environ, "COLUMNS": "120", "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(f"{shlex.join(words)} failed:\n{done.stdout}{done.stderr}")
        return done

    # one `--only-binary :all:` for both calls: a machine without a compiler needs wheels
    install = ("python", "-m", "pip", "install", "--only-binary", ":all:", "--quiet")
    run(*install, str(wheel))
    run("python", "-c", FOUND)
    for line in WITHOUT_EXTRAS:
        done = run("thdpack", *line.split())
        print(f"  thdpack {line}: {done.stdout.strip().splitlines()[0].strip()}", flush=True)
    run(*install, f"{wheel}[report]")
    for line, output in shown_commands(page):
        printed = printed_by(run(*shlex.split(line)))
        if not re.fullmatch(pattern(output), printed):
            sys.exit(f"{line} prints\n{printed}\nbut README.md shows\n{output}")
        print(f"  {line}: as README.md shows", flush=True)
    if not examples:
        return
    run(*install, f"{wheel}[report,examples]", "ipykernel", "nbclient")
    torch = run("python", "-c", "import torch; print(torch.__version__)").stdout.strip()
    print(f"  torch {torch}", flush=True)
    (where / NOTEBOOK).parent.mkdir()
    shutil.copy(REPO / NOTEBOOK, where / NOTEBOOK)
    shutil.copytree(REPO / "examples", where / "examples")
    scripts = sorted((where / "examples").glob("*.py"))
    tried = [("jupyter", "execute", NOTEBOOK)]
    tried += [
        ("python", f"examples/{script.name}") for script in scripts if script.stem != "tiny_model"
    ]
    for words in tried:
        began = time.monotonic()
        run(*words)
        print(f"  {shlex.join(words)}: {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    """Read the command line and try the wheel."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", type=Path, help="Wheel to try.")
    parser.add_argument(
        "--examples", action="store_true", help="Also run the notebook and the examples."
    )
    arguments = parser.parse_args()
    wheel = arguments.wheel.resolve()
    page = (REPO / "README.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        sample = (REPO / SAMPLE).read_bytes()
        try_wheel(wheel, page, sample, Path(folder), examples=arguments.examples)


if __name__ == "__main__":
    main()
