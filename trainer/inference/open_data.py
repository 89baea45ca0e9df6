"""Open DATA: a dataset, or files that a subprocess first makes into a temporary dataset."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipeline.storage.read_manifest import read_manifest
from pipeline.storage.urls import local_path
from schemas.errors import ManifestError, OptionError, ThdpackError
from schemas.manifest import MANIFEST_NAME
from schemas.python_environment import python_environment

DATASET: Final = ".dataset-"
"""How the name of the folder of a temporary dataset begins. It ends with a hash of the inputs'
names, so that a command with other inputs does not touch the dataset of an interrupted run. The
hash also covers the names of columns that the user chose."""
_LONGEST: Final = 65_536
"""Maximum length of a sequence in a temporary dataset, in tokens. A longer record becomes several
sequences. The longest protein known has about 45,000 residues."""
_FASTA_OPTIONS: Final = (
    *("--split", "train=1"),
    *("--long", "split"),
    *("--capacity", str(_LONGEST)),
    *("--max-seq-len", str(_LONGEST)),
    *("--max-seqs", str(_LONGEST // 16)),
    *("--packer", "next-fit"),
)


def is_dataset(data: Sequence[str]) -> bool:
    """Return whether DATA is a dataset. Otherwise it is a list of FASTA files and tables.

    Raises:
        DatasetError: the store cannot be reached.
    """
    if len(data) != 1:
        return False
    path = local_path(data[0])
    if path is not None:
        return (path / MANIFEST_NAME).exists()
    try:
        read_manifest(data[0])
    except ManifestError:
        return False
    return True


def temporary_dataset(data: Sequence[str], out: Path, columns: Sequence[str] = ()) -> Path:
    """Return the folder of the temporary dataset of these inputs.

    Args:
        columns: options that name columns of tables.
    """
    paths = [local_path(name) for name in data]
    names = [
        name if path is None else str(path.resolve())
        for name, path in zip(data, paths, strict=True)
    ]
    key = chr(0).join([*names, *columns])
    return out / f"{DATASET}{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def build_dataset(
    data: Sequence[str], out: Path, *, columns: Sequence[str] = (), quiet: bool = False
) -> Path:
    """Build the temporary dataset in `out`, and return its folder. If it exists, it is checked.

    Args:
        columns: options of `thdpack preprocess` that name columns of tables.
        quiet: do not show the progress of the build.
    Raises:
        OptionError: an input is standard input, which could not be read again after an
            interruption.
        ThdpackError: the build has failed. With `quiet`, the message is that of the build;
            otherwise, that one is already on standard error.
    """
    if "-" in data:
        raise OptionError("DATA is standard input: write the FASTA to a file first")
    folder = temporary_dataset(data, out, columns)
    command = [sys.executable, "-m", "pipeline", "preprocess", *data, "--out", str(folder)]
    done = subprocess.run(
        [*command, *_FASTA_OPTIONS, *columns],
        env=python_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE if quiet else None,
        text=True,
        check=False,
    )
    if done.returncode and quiet and done.stderr.strip():
        said = done.stderr.splitlines()[-1].removeprefix("thdpack preprocess: ")
        remedy = ". Here, this option does not exist: convert the file to FASTA first"
        raise ThdpackError(f"{said}{remedy if ' --' in said else ''}")
    if done.returncode:
        raise ThdpackError(
            "the inputs could not be made into a dataset: see the lines above (`thdpack "
            f"preprocess` ended with exit code {done.returncode}). To use other options of "
            "`thdpack preprocess`, build a dataset with it first, and give this dataset as DATA"
        )
    return folder
