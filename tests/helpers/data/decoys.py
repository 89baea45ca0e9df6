"""Decoys: modules with the names of our packages and of numpy. Importing a decoy fails."""

from __future__ import annotations

from pathlib import Path


def write_decoys(folder: Path) -> Path:
    """Write the decoys into a folder, and return the folder."""
    packages = ("schemas/__init__.py", "packers/__init__.py", "pipeline.py", "trainer.py")
    for name in (*packages, "numpy.py"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("raise RuntimeError(f'imported a decoy: {__file__}')\n")
    return folder
