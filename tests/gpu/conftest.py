"""GPU tests: `pytest -o addopts= --confcutdir tests/gpu tests/gpu`.

They do not need thdpack's compiled C kernels. The environment variable THDPACK_DATASET names the
dataset that they read.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = (
        ""
        if torch.cuda.is_available() and find_spec("transformer_engine")
        else "needs an NVIDIA GPU and Transformer Engine"
    )
    for item in items:
        if "tests/gpu" in item.path.as_posix():
            item.add_marker(pytest.mark.gpu)
            if missing:
                item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture
def dataset() -> Path:
    """Return the dataset that THDPACK_DATASET names. It must have been built from
    ../shared/data/uniref90_10000.fasta.gz with default options.
    """
    if "THDPACK_DATASET" not in os.environ:
        pytest.skip("THDPACK_DATASET does not name a dataset")
    return Path(os.environ["THDPACK_DATASET"])
