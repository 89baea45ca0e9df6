"""Export the models of a finished run in the format of Hugging Face: the model of the last step,
and the model with the best validation loss.
"""

from __future__ import annotations

import shutil

from trainer.checkpoints.checkpoint import CHECKPOINTS, Checkpoints
from trainer.checkpoints.latest import LATEST
from trainer.checkpoints.new_folder import BEST, LAST
from trainer.distributed.agreement import run_on_main
from trainer.distributed.fsdp import full_tensor
from trainer.model import huggingface
from trainer.model_card import NAME, model_card, step_row, write_card
from trainer.run import TrainingError, TrainingRun
from trainer.validate import no_model


def export(run: TrainingRun) -> str:
    """Write the model of the last step to OUT/export, in a format that plain transformers loads.
    If an earlier step had a lower validation loss, write the model of that step to OUT/export-best.
    Return the last line of the run.

    The run cannot train afterwards, because it may have the weights of the earlier step.

    Raises:
        TrainingError: the loss of the last validation was not finite.
        CheckpointError: the checkpoint of the best validation is damaged.
    """
    if not run.sound:
        raise TrainingError(no_model(run.step, run.best, run.out / CHECKPOINTS / LATEST))
    loss = run.best.loss if run.best.step == run.step else run.last_loss
    _write(run, LAST, step=run.step, tokens=run.tokens, loss=loss)
    best = _export_best(run)
    done = f"done: {run.out / LAST} loads with transformers' AutoModelForMaskedLM"
    if run.best.loss is not None:
        done += f"; the best validation loss is {run.best.loss:.4f}, of step {run.best.step:,}"
        done += f", whose model is in {run.out / BEST}" if best else ""
    if run.options.model.gelu == "tanh":
        done += (
            ". transformers computes the exact GELU, and this run used the tanh approximation: "
            "logits differ by about 1e-3"
        )
    return done


def _export_best(run: TrainingRun) -> bool:
    """Write the model with the best validation loss to OUT/export-best, and return True.

    If that is the model of the last step, or if its checkpoint is missing, remove the
    OUT/export-best of an earlier and shorter run, and return False.
    """
    name = run.best.checkpoint
    path = run.out / CHECKPOINTS / name
    differs = name not in ("", Checkpoints.name(run.step))
    found: bool = run_on_main(run.topology, lambda: differs and path.is_dir())
    if found:
        run.checkpoints.load(name, run.model_tensors(), optional={})
        _write(run, BEST, step=run.best.step, tokens=None, loss=run.best.loss)
    elif run.topology.is_main and (run.out / BEST).is_dir():
        shutil.rmtree(run.out / BEST)  # an earlier part of the run wrote it
    return found


def _write(
    run: TrainingRun, folder: str, *, step: int, tokens: int | None, loss: float | None
) -> None:
    """Write the present model, and its card, to a folder inside the folder of the run.

    Args:
        step, tokens, loss: see `model_card`.
    """
    tensors = {}
    for name, tensor in run.model_tensors().items():
        assembled = full_tensor(tensor)  # gathers one tensor at a time, to save memory
        if run.topology.is_main:
            tensors[name.removeprefix("model.")] = assembled.cpu()
    if run.topology.is_main:
        run.lock.check()
        longest = run.manifest.max_seq_len
        huggingface.export(run.out / folder, tensors, run.options.model, max_seq_len=longest)
        card = run.out / folder / NAME
        if run.start.is_finished and card.is_file() and step_row(step) in card.read_text():
            return  # no step is left, so the card of this model stays
        text = model_card(
            run.trained,
            digests=tuple(manifest.digest for manifest in run.start.readers.manifests),
            step=step,
            tokens=tokens,
            loss=loss,
        )
        write_card(run.out / folder, text)
