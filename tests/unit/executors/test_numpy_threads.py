"""numpy starts without threads for linear algebra."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import REPO

VARIABLE = "OPENBLAS_NUM_THREADS"
CODE = f"""
import os
from pipeline.executors.numpy_threads import no_numpy_threads
with no_numpy_threads():
    import numpy
    print(os.environ.get({VARIABLE!r}), end=" ")
print(os.environ.get({VARIABLE!r}), len(os.listdir("/proc/self/task")))
"""


@pytest.mark.parametrize("by_user", [None, "2"])
def test_numpy_starts_no_threads_unless_the_user_has_set_their_number(by_user: str | None) -> None:
    """The environment is as before afterwards, because hooks of `thdpack watch` inherit it."""
    ours = (VARIABLE, "OMP_NUM_THREADS")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    if by_user is not None:
        environment[VARIABLE] = by_user
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=REPO,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    inside, after, threads = done.stdout.split()
    assert (inside, after) == (by_user or "1", str(by_user))
    assert by_user is not None or threads == "1"
