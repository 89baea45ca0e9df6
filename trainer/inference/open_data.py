"""Open DATA: a dataset, or files that a subprocess first makes into a temporary dataset."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pipeline.storage.read_manifest import read_manifest
from pipeline.storage.urls import local_path
from schemas.errors import ManifestError, OptionError, ThdpackError
from schemas.manifest import MANIFEST_NAME
from schemas.python_environment import ERRORS_ON_STDOUT, python_environment

DATASET: Final = ".dataset-"
"""How the name of the folder of a temporary dataset begins. It ends with a hash of the inputs'
names, sizes and modification times, so that a command with other inputs does not touch the dataset
of an interrupted run. The hash also covers the names of columns that the user chose."""
DATASETS: Final = DATASET + 16 * "[0-9a-f]"
"""Glob pattern of the folders of temporary datasets."""
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
_OPTION: Final = re.compile(r"(?<!\S)--[a-z]+(?:-[a-z]+)*")
_SHARED: Final = {"--out", "--sequence-column", "--id-column"}
"""Options of `thdpack preprocess` that `thdpack embed` and `thdpack score` have, too."""
_BUILD_IT: Final = "build a dataset with it, and give the dataset as DATA"


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Inputs:
    """Names and sizes of the inputs of a temporary dataset, found without reading the inputs.

    digest: hash of names, sizes and modification times; "" if these are not known for all inputs,
        because one is a URL, a glob or a list.
    bytes: total size; 0 if not all inputs are local files.
    """

    digest: str
    bytes: int


def find_inputs(data: Sequence[str], columns: Sequence[str] = ()) -> Inputs:
    """Find names and sizes of the inputs.

    Args:
        columns: options that name columns of tables.
    """
    paths = [local_path(name) for name in data]
    found = [path for path in paths if path is not None and path.exists()]
    files = [path for path in found if path.is_file()]
    return Inputs(
        digest=_digest(data, columns) if len(found) == len(data) else "",
        bytes=sum(path.stat().st_size for path in files) if len(files) == len(data) else 0,
    )


def temporary_dataset(data: Sequence[str], out: Path, columns: Sequence[str] = ()) -> Path:
    """Return the folder of the temporary dataset of these inputs.

    Args:
        columns: options that name columns of tables.
    """
    return out / f"{DATASET}{_digest(data, columns)}"


def _digest(data: Sequence[str], columns: Sequence[str]) -> str:
    key = chr(0).join([*map(_version, data), *columns])
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def _version(name: str) -> str:
    """Return a text that changes if an input is replaced. For a URL or a glob, this is its name."""
    path = local_path(name)
    if path is None or not path.exists():
        return name
    found = sorted(path.rglob("*")) if path.is_dir() else [path]
    files = [(str(file), file.stat()) for file in found if file.is_file()]
    return f"{path.resolve()} {[(file, s.st_size, s.st_mtime_ns) for file, s in files]}"


def build_dataset(
    data: Sequence[str],
    out: Path,
    *,
    columns: Sequence[str] = (),
    quiet: bool = False,
    options: Collection[str] = _SHARED,
    remedy: str = _BUILD_IT,
) -> Path:
    """Build the temporary dataset in `out`, and return its folder. If it exists, it is checked.

    Args:
        columns: options of `thdpack preprocess` that name columns of tables.
        quiet: do not show the progress of the build.
        options: options of `thdpack preprocess` that this command has, too.
        remedy: advice instead of other options.
    Raises:
        OptionError: an input is standard input, which could not be read again after an
            interruption, or an option is wrong.
        ThdpackError: the build has failed.
    """
    if "-" in data:
        raise OptionError("DATA is standard input: write the FASTA to a file first")
    folder = temporary_dataset(data, out, columns)
    build = [sys.executable, "-m", "pipeline", "preprocess", *data, "--out", str(folder)]
    done = subprocess.run(
        [*build, *_FASTA_OPTIONS, *columns],
        env=python_environment({ERRORS_ON_STDOUT: "1"}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if quiet else None,
        text=True,
        check=False,
    )
    if not done.returncode:
        return folder
    said = done.stdout.strip()
    if not said:  # the build has crashed, or was killed
        lines = (done.stderr or "").splitlines()
        said = lines[-1] if lines else "the dataset of the inputs could not be built"
        raise ThdpackError(f"{said} (exit code {done.returncode} of `thdpack preprocess`)")
    error = OptionError if done.returncode == 2 else ThdpackError
    missing = [word for word in advised(said, data) if word not in options]
    if missing:
        said += f" (only `thdpack preprocess` has {' and '.join(missing)}: {remedy})"
    raise error(said)


def advised(said: str, data: Sequence[str]) -> list[str]:
    """Return the options that an error of `thdpack preprocess` names.

    Args:
        data: inputs. Their names may look like options.
    """
    for name in data:
        said = said.removeprefix(name)
    return list(dict.fromkeys(_OPTION.findall(said)))
