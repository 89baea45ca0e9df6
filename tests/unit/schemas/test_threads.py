"""Several threads may decode JSON of a new type at the same time."""

from __future__ import annotations

import subprocess
import sys

from tests.helpers.processes.command_line import REPO, environment

DECODE = """
import sys, threading
from dataclasses import make_dataclass
from typing import Annotated
import msgspec
from schemas.untrusted_json import decoded
THREADS = 8
if sys.argv[1] == "plain":
    decoded = lambda text, kind: msgspec.json.decode(text, type=kind)
count = Annotated[int, msgspec.Meta(ge=0)]
sys.setswitchinterval(1e-6)
for number in range(150):
    inner = make_dataclass("Inner", [(f"field{i}", "count") for i in range(20)])
    globals()["Inner"] = inner
    inner.__module__ = "__main__"
    outer = make_dataclass("Outer", [("inner", "Inner"), ("others", "list[Inner]")])
    outer.__module__ = "__main__"
    barrier = threading.Barrier(THREADS)
    found = []
    one = {f"field{i}": i for i in range(20)}
    text = msgspec.json.encode({"inner": one, "others": [one]})
    def run():
        barrier.wait()
        found.append(decoded(text, outer).inner.field19)
    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert found == [19] * THREADS, found
"""


def test_several_threads_can_decode_a_new_type_at_the_same_time() -> None:
    """Without our lock, msgspec raised an error or crashed the process in fewer than 150 rounds."""
    done = subprocess.run(
        [sys.executable, "-c", DECODE, "ours"],
        cwd=REPO,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
