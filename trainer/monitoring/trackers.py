"""Experiment trackers: TensorBoard, and Weights & Biases."""

from __future__ import annotations

import secrets
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from schemas.text.redact import without_credentials
from trainer.config import TrainOptions


class TensorBoard:
    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ValueError(
                "--tensorboard needs the package tensorboard: pip install tensorboard"
            ) from error
        self._writer = SummaryWriter(str(folder), purge_step=step + 1)

    def write(self, values: dict[str, Any], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    def __init__(self, options: TrainOptions, out: Path) -> None:
        try:
            import wandb
        except ImportError as error:
            raise ValueError(
                "--wandb-project needs the package wandb: pip install wandb"
            ) from error
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
