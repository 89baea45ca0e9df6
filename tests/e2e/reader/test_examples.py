"""The scripts in examples/ run on a CPU, resume, and print losses that fall.

One process runs all scripts, because importing Lightning and transformers takes several seconds.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import REPO
from tests.helpers.processes.ranks import Job

SCRIPTS = sorted((REPO / "examples").glob("*.py"))
RUN = """
import runpy, sys, warnings
warnings.simplefilter("ignore")
folder, dataset = sys.argv[1:3]
sys.path.insert(0, folder)
for script in sys.argv[3:]:
    print("SCRIPT", script, flush=True)
    sys.argv[1:] = [dataset]
    runpy.run_path(folder + "/" + script, run_name="__main__")
"""


@pytest.mark.long
def test_each_example_resumes_and_its_losses_fall(many_shards: Path) -> None:
    names = [path.name for path in SCRIPTS if path.name != "tiny_model.py"]
    assert len(names) == 4
    said = Job(RUN, [str(REPO / "examples"), str(many_shards), *names]).finish()
    for part in said.split("SCRIPT ")[1:]:
        before, *resumed = re.split("^resumed .*", part, flags=re.MULTILINE)
        losses = [float(loss) for loss in re.findall(r"step +\d+  loss ([\d.]+)", before)]
        assert resumed, part
        assert len(losses) >= 8, part
        assert sum(losses[6:8]) < sum(losses[:2]) - 0.2, part
