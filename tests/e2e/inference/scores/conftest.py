"""A random model in the format of transformers, and its plain forward pass."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.oracles.slow_scores import LogP, transformers_log_p

if TYPE_CHECKING:
    from transformers import EsmForMaskedLM


@pytest.fixture(scope="session", name="plain")
def _plain() -> EsmForMaskedLM:
    """Return a random EsmForMaskedLM."""
    import torch  # lazy: slow to import

    from tests.helpers.models import SMALL, esm

    torch.manual_seed(0)
    return esm(SMALL)


@pytest.fixture(scope="session")
def model(plain: EsmForMaskedLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the model `plain`. Tests must not modify it."""
    folder = tmp_path_factory.mktemp("model") / "esm"
    plain.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def log_p(plain: EsmForMaskedLM) -> LogP:
    return transformers_log_p(plain)
