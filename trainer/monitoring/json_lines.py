"""Files of JSON lines that a resumed run appends to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TextIO

from trainer.checkpoints.atomic_write import write


def open_json_lines(path: Path, step: int) -> TextIO:
    """A file of JSON lines, open at its end, without lines of steps after `step`, or one that a crash cut off."""
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
