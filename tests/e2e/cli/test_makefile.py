"""`make` shows the progress and the expected time of an installation."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from tests.helpers.processes.command_line import REPO


def test_make_prints_the_latest_step_of_pip_while_pip_runs(tmp_path: Path) -> None:
    (tmp_path / "install.log").write_text("Collecting numpy\nDownloading pyarrow\n")
    rule = "wait-for-pip:\n\t@$(SHOW_PIP); until [ -e $(VENV)/seen ]; do sleep 0.05; done"
    words = ["make", "--no-print-directory", "--eval", rule, "wait-for-pip"]
    settings = [f"VENV={tmp_path}", "SHOW_EVERY=0.1"]
    with subprocess.Popen([*words, *settings], cwd=REPO, stdout=subprocess.PIPE) as making:
        assert making.stdout is not None
        line = making.stdout.readline().decode()
        assert line.endswith(" s: Downloading pyarrow\n")
        began = time.monotonic()
        (tmp_path / "seen").touch()
        making.stdout.read()  # returns when every process has closed the output
        assert making.wait() == 0
        assert time.monotonic() - began < 60


def test_make_train_names_the_cpu_build_of_torch_before_it_installs_cuda(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text("#!/bin/sh\nexit 7\n")  # this Python has no packages
    python.chmod(0o755)
    words = ["make", "--no-print-directory", f"VENV={tmp_path}", str(tmp_path / "train")]
    hint = "/bin/pip install torch=="
    done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert (hint in done.stdout) == (sys.platform == "linux")
    (tmp_path / "lib" / "python3" / "site-packages" / "torch").mkdir(parents=True)
    assert hint not in subprocess.run(words, cwd=REPO, capture_output=True, text=True).stdout


def test_make_prints_the_expected_time_of_an_installation_as_a_range(tmp_path: Path) -> None:
    for target in ("preprocess", "stats", "train", "setup"):
        words = ["make", "--dry-run", f"VENV={tmp_path}", f"OUT={tmp_path}", target]
        done = subprocess.run(words, cwd=REPO, capture_output=True, text=True, check=True)
        times = re.findall(r"\(once; about ([^)]*)\)", done.stdout)
        assert times
        assert all(re.fullmatch(r"\d+ (s )?to \d+ (s|minutes)", time) for time in times), times
