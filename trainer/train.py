"""Train an ESM-2 model on shards, in a single process or in the processes that torchrun starts.

    thdpack train esm2-8m --data data/uniref50
    torchrun --nproc-per-node 8 -m thdpack train esm2-650m --data s3://bucket/uniref50

`python -m trainer.train` does the same, unless Python finds another package `trainer` first.
This module has the training loop, `train`. `run.py` sets up a run, and `step.py` implements one
optimizer step.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

from torch import Tensor

from trainer.checkpoints.checkpoint import CHECKPOINTS
from trainer.checkpoints.latest import last_checkpoint, latest_content
from trainer.checkpoints.new_folder import new_cache_removed, removed_if_empty
from trainer.config import TrainOptions, parse
from trainer.distributed.agreement import run_on_main
from trainer.distributed.run_command import run_command
from trainer.distributed.stop_signals import StopRequest
from trainer.distributed.topology import Topology
from trainer.export import export
from trainer.feed import Row
from trainer.monitoring.divergence import Divergence
from trainer.monitoring.meter import Meter, StepMetrics
from trainer.monitoring.run_log import RunLog
from trainer.monitoring.run_time import RunTime
from trainer.monitoring.step_progress import StepProgress
from trainer.monitoring.trace import profiler
from trainer.optimizer import learning_rate
from trainer.readers.mixing import announcements
from trainer.readers.open_readers import refuse_missing_shards
from trainer.run import TrainingError, TrainingRun
from trainer.start.run_description import describe, notes, time_left
from trainer.start.starting_point import prepare


def train(options: TrainOptions, topology: Topology) -> None:
    """Train until the last step or a signal, and write checkpoints. After the last step, export the
    model.

    Raises:
        OptionError (a ValueError): options contradict each other, or do not suit this machine, the
            number of ranks, the dataset or the run that is resumed.
        ThdpackError: the dataset, the checkpoint or the initial model cannot be used.
        CaptureError (a ThdpackError): the step cannot be captured in a CUDA graph.
        TrainingError (a ThdpackError): too many steps in a row had a loss or gradient that was not
            finite, or the last validation had a loss that was not finite.
    """
    with ExitStack() as stack:
        stack.enter_context(removed_if_empty(Path(options.output.out), topology))
        run = TrainingRun(options, topology, stack)
        options = run.options
        log = stack.enter_context(RunLog(options, topology, step=run.step))
        log.say(describe(run.start))
        for note in notes(run.start):
            log.say(note)
        if options.output.init_from and run.step == 0:
            run.validate_start(log)
        run.validate_missing(log)
        meter = Meter(
            options,
            topology,
            step=run.step,
            tokens=run.tokens,
            epoch_buckets=run.start.readers.epoch_buckets,
        )
        stop = stack.enter_context(StopRequest(topology))
        trace = stack.enter_context(profiler(options, topology))
        rows = StepProgress(
            run.feed,
            log,
            micro_batches=run.micro_batches,
            tokens=run.tokens_per_micro_batch,
            check=stop.raise_if_pressed_again,
        )
        run_time = RunTime(
            topology.device,
            step=run.step,
            steps=options.optimizer.steps,
            warmup=options.optimizer.warmup,
        )

        divergence = Divergence(options.optimizer)
        mixtures = announcements(options.data)
        stopping = False
        while run.step < options.optimizer.steps and not stopping:
            rate = learning_rate(run.step, options.optimizer)
            scalars, counts = train_step(run, rows, rate)
            run.statistics.step()
            if run.step in mixtures and run.step < options.optimizer.steps:
                log.say(mixtures[run.step])
            estimate = run_time.step(run.step)
            if estimate and not stop.requested:
                log.say(estimate)
            last = run.step == options.optimizer.steps
            due = last or run.is_due(options.output.validate_every)
            stopping = stop.agreed(wait=due)  # a signal is known before a validation
            last |= stopping
            validating = due and not stopping
            saving = run.is_due(options.output.checkpoint_every) or last
            for line in meter.step(
                run.step,
                scalars=scalars,
                counts=counts,
                rate=rate,
                waited=run.feed.waited,
                flush=validating or saving,
            ):
                log.metrics(line)
                if warning := divergence.warning(line):
                    log.say(warning)
                run.tokens = line.tokens
                if line.bad_in_a_row >= options.optimizer.max_bad_steps:
                    _give_up(run, line)
            log.step(run.step)
            if validating:
                saving |= run.validate(log)  # save a checkpoint of the best model so far
                stopping = stop.agreed(wait=True)  # a signal now needs no further step
                last |= stopping
                saving |= stopping
            if saving:
                run.save(wait=last)
            if validating or saving:
                meter.resume()
                run_time.resume()
            run.checkpoints.poll()
            trace.step()

        # a signal from here on comes too late to stop the export
        stop.last_work = "the export of the model, which completes the run"
        if stop.agreed(wait=True):
            log.say(_stopped(run))
        else:
            log.say(export(run))
            if warning := divergence.summary():
                log.say(warning)
        run.step_once.close()


def dry_run(options: TrainOptions, topology: Topology) -> None:
    """Check a run, and print the first lines of its output. Nothing is trained or written.

    Raises:
        OptionError, ThdpackError: see `train`.
    """
    with ExitStack() as stack:
        stack.enter_context(new_cache_removed(options.data.cache_dir, topology))
        start = prepare(options, topology, stack)
        run_on_main(topology, lambda: refuse_missing_shards(options, start.readers))
        if topology.is_main:
            for line in (describe(start), *notes(start), time_left(start)):
                print(line)
            print("dry run: nothing was trained or written")


def _give_up(run: TrainingRun, line: StepMetrics) -> NoReturn:
    """End a run after too many steps in a row whose loss or gradient is not finite.

    Raises:
        TrainingError: always. The message says how to resume.
    """
    # All ranks call this function, so that they can complete a checkpoint in progress together.
    run.checkpoints.wait()
    rate, precision = run.options.optimizer.learning_rate, run.options.compute.precision
    other = "" if precision in ("fp32", "bf16") else f" or --precision bf16, not {precision}"
    lower = f"run the same command with a lower --learning-rate (it is {rate:g}){other}"
    latest = latest_content(run.out / CHECKPOINTS).strip()
    remedy = (
        f"{latest} is the last checkpoint: to resume from it, {lower}; if steps are skipped again, "
        "start again in another --out"
        if latest
        else f"there is no checkpoint yet: to start again, {lower}"
    )
    raise TrainingError(
        f"{line.bad_in_a_row} steps in a row, up to step {line.step}, were skipped, because their "
        f"loss or gradient was not finite (--max-bad-steps is "
        f"{run.options.optimizer.max_bad_steps}); {remedy}"
    )


def _stopped(run: TrainingRun) -> str:
    """Return the last line of a run that a signal has stopped.

    A stopped run writes a checkpoint, but begins no validation and does not export. A validation
    might take longer than the time between SIGTERM and SIGKILL. The next run makes up for both.
    """
    resumes = "run the same command to resume"
    if run.step >= run.options.optimizer.steps:
        resumes = "that was the last step: run the same command to export the model"
    return f"stopped by a signal after step {run.step:,}; {resumes}"


def train_step(run: TrainingRun, rows: Iterator[Row], rate: float) -> tuple[Tensor, Tensor]:
    """Launch one optimizer step without waiting for the device, and count the step (see `Step`)."""
    results = run.step_once(rows, rate)
    run.step += 1
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; see `run_command` for exit codes."""
    words = sys.argv[1:] if arguments is None else arguments
    run_command(
        "thdpack train",
        lambda: parse(words),
        lambda options, topology: (dry_run if options.output.dry_run else train)(options, topology),
        timeout_minutes=lambda options: options.compute.timeout_minutes,
        place=lambda options: options.output.out,
        rest=_last_checkpoint,
        interrupted="interrupted without finishing the step",
    )


def _last_checkpoint(options: TrainOptions) -> str:
    return last_checkpoint(Path(options.output.out) / CHECKPOINTS)


if __name__ == "__main__":
    main()
