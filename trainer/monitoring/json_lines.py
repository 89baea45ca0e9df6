"""JSON Lines files that a resumed run continues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TextIO

from trainer.checkpoints.atomic_write import write


def open_json_lines(path: Path, step: int) -> TextIO:
    """Open a JSON Lines file for appending.

    First remove the lines of steps after `step`, and an incomplete last line that a crash has left.
    The resumed run writes these lines again.
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
