"""The tutorial notebook runs, and has stored outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.helpers.processes.command_line import REPO, environment

NOTEBOOK = REPO / "docs" / "tutorial.ipynb"


def test_the_cells_of_the_notebook_run_one_after_another(tmp_path: Path) -> None:
    """The cells are plain Python, so the test needs no Jupyter. It trains for two steps."""
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if "outputs" in cell]
    assert all(cell["outputs"] for cell in cells[1:])
    program = "\n".join("".join(cell["source"]) for cell in cells)
    assert program.count("STEPS = 100 ") == 1
    done = subprocess.run(
        [sys.executable, "-c", program.replace("STEPS = 100 ", "STEPS = 2 ")],
        cwd=NOTEBOOK.parent,
        env={**os.environ, **environment(), "TMPDIR": str(tmp_path), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert len(done.stdout.splitlines()[-1].split()) == 2  # a residue and its probability
