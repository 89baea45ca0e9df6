"""Experiment trackers: TensorBoard, and Weights & Biases."""

from __future__ import annotations

import secrets
import sys
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from schemas.text.redact import without_credentials
from trainer.config import TrainOptions


def check_trackers(options: TrainOptions) -> None:
    """Check that the packages of the trackers are installed.

    Raises:
        ValueError: a package is missing.
    """
    for option, package, wanted in (
        ("--tensorboard", "tensorboard", options.output.tensorboard),
        ("--wandb-project", "wandb", options.output.wandb_project),
    ):
        loaded = sys.modules.get(package) is not None
        if wanted and not loaded and find_spec(package) is None:
            raise ValueError(f"{option} needs the package {package}: pip install {package}")


class TensorBoard:
    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder), purge_step=step + 1)

    def write(self, values: dict[str, Any], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    def __init__(self, options: TrainOptions, out: Path) -> None:
        import wandb

        # The id is stored in OUT, so that a resumed run continues the same run on the server.
        identity = out / "wandb-id"
        if not identity.exists():
            identity.write_text(secrets.token_hex(8))
        # wandb also sends the command line, which may hold credentials
        sys.argv = [without_credentials(word) for word in sys.argv]
        project, config = options.output.wandb_project, asdict(options.public())
        self._run = wandb.init(
            project=project,
            name=out.name,
            id=identity.read_text(),
            resume="allow",
            dir=str(out),
            config=config,
        )

    def write(self, values: dict[str, Any], step: int) -> None:
        self._run.log(values, step=step)

    def close(self) -> None:
        self._run.finish()
