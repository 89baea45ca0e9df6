"""Options of `thdpack card`. The docstrings are the help texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Optional

import tyro

from pipeline.cli.subcommand_options import Dataset


@dataclass(frozen=True, kw_only=True, slots=True)
class CardOptions:
    """Describe a dataset for publication, in two files.

    croissant.json has Croissant 1.0 metadata, and README.md is a dataset card of the Hugging Face
    Hub. Both are computed from the manifest: options, inputs, counts, release and licence.

    Example: thdpack card data/uniref50
    """

    dataset: Dataset
    """Folder or URL of the dataset."""
    out: Annotated[Optional[str], tyro.conf.arg(metavar="DIR")] = None  # noqa: UP045 (see options.py)
    """Write the files into this folder, a path or URL. Default: the dataset's folder."""
    overwrite: bool = False
    """Also replace files that thdpack did not write, or that were edited since."""
