"""Run a command, and kill it with all its children when this script's standard input ends.

Standard input is a pipe from the process that starts this script. The operating system closes the
pipe when that process ends, even if it was killed. MMseqs2 runs shell scripts that start more
processes, so killing only the first process would leave the others running.

This script imports no other module of thdpack, so that it starts quickly.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def supervise(command: list[str]) -> int:
    """Run a command; return its exit code, or 128 + the number of the signal that killed it.

    This process must be the leader of a process group of its own.
    """
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    threading.Thread(target=_kill_group_after_input, daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


def _kill_group_after_input() -> None:
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(supervise(sys.argv[1:]))
