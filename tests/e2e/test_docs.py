"""The Python in README.md and docs/ runs as it stands, on the dataset that `make preprocess` builds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import REPO, Run, environment


@pytest.mark.parametrize("page", ["README.md", "docs/reference/reader.md", "docs/reference/statistics.md"])
def test_the_code_on_a_page_runs(run: Run, tmp_path: Path, sample: Path, page: str) -> None:
    assert run("preprocess", sample, "--out", tmp_path / "data" / "sample").returncode == 0
    blocks = re.findall(r"```python\n(.*?)```", (REPO / page).read_text(), flags=re.DOTALL)
    assert blocks
    program = "\n".join(blocks)
    where = {"PYTHONPATH": str(REPO), "HF_DATASETS_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1", "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, **environment(), **where}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
