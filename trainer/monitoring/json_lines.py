"""Files of JSON lines that a resumed run appends to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TextIO

from trainer.checkpoints.atomic_write import write


def open_json_lines(path: Path, step: int) -> TextIO:
    """Open a file of JSON lines to append to it.

    Lines of steps after `step`, and a line that a crash cut off, are removed: the resumed run
    writes them again.
    """
    kept = []
    if path.exists():
        for line in path.read_text(errors="replace").splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except (ValueError, TypeError, KeyError, RecursionError):
                break
    write(path, "".join(kept))
    return open(path, "a")
