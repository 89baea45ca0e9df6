"""Train an ESM-2 on shards, in one process or in as many as torchrun starts.

    thdpack train esm2-8m --data data/uniref50
    torchrun --nproc-per-node 8 -m thdpack train esm2-650m --data s3://bucket/uniref50

`python -m trainer.train` is the same as `thdpack train`, if no other `trainer` is in the way.
`train` is the training loop. `run.py` sets up the run that the loop steps, and `step.py` is one
optimizer step.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import NoReturn

from torch import Tensor

from schemas.errors import ThdpackError
from schemas.redact import without_credentials
from trainer.config import TrainOptions, parse
from trainer.distributed.rank_message import say
from trainer.distributed.stop_signals import StopRequest
from trainer.distributed.topology import Topology, process_group
from trainer.feed import Row
from trainer.monitoring.meter import Meter, StepMetrics
from trainer.monitoring.run_log import RunLog
from trainer.monitoring.trace import profiler
from trainer.run import TrainingError, TrainingRun
from trainer.run_description import describe
from trainer.schedule import learning_rate


def train(options: TrainOptions, topology: Topology) -> None:
    """Train until the last step or a signal; write checkpoints, and finally export the model.

    Raises:
        ValueError: options contradict each other, or do not suit this machine or number of ranks.
        ThdpackError: the dataset, the checkpoint or the initial model cannot be used, the step
            cannot be captured in a CUDA graph, or too many steps in a row have a loss or gradient
            that is not finite.
    """
    with ExitStack() as stack:
        run = TrainingRun(options, topology, stack)
        options = run.options
        log = stack.enter_context(RunLog(options, topology, step=run.step))
        log.say(describe(run))
        meter = Meter(options, topology, step=run.step, tokens=run.tokens)
        stop = stack.enter_context(StopRequest(topology))
        trace = stack.enter_context(profiler(options, topology))

        stopping = False
        while run.step < options.optimizer.steps and not stopping:
            rate = learning_rate(run.step, options.optimizer)
            scalars, counts = train_step(run, run.feed, rate)
            run.statistics.step()
            stopping = stop.agreed()
            last = stopping or run.step == options.optimizer.steps
            validating = run.is_due(options.output.validate_every) or (last and not stopping)
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
                run.tokens = line.tokens
                if line.bad_in_a_row >= options.optimizer.max_bad_steps:
                    _give_up(run, line)
            if validating:
                saving |= run.validate(log)  # save a checkpoint of the best model so far
            if saving:
                run.save(wait=last)
            if validating or saving:
                meter.resume()
            run.checkpoints.poll()
            trace.step()

        if stopping:
            log.say(f"stopped by a signal after step {run.step:,}; run the same command to resume")
        else:
            run.export()
            log.say(_exported(run))


def _give_up(run: TrainingRun, line: StepMetrics) -> NoReturn:
    """End a run of too many steps whose loss or gradient is not finite.

    Raises:
        TrainingError: says how to resume.
    """
    run.checkpoints.wait()  # all ranks get here, so the checkpoint under way can be completed
    raise TrainingError(
        f"{line.bad_in_a_row} steps in a row, up to step {line.step}, had a loss "
        "or gradient that is not finite and were skipped. "
        "The last checkpoint is complete: resume from it with a lower "
        "--learning-rate, or with --precision bf16 if the precision is lower"
    )


def _exported(run: TrainingRun) -> str:
    """Return the last line of a run that has exported its model."""
    done = f"done: {run.out / 'export'} loads with transformers' AutoModelForMaskedLM"
    if run.options.model.gelu == "tanh":
        done += (
            ", which computes GELU exactly: "
            "logits differ by about 1e-3 from those of this run, which used tanh"
        )
    return done


def train_step(run: TrainingRun, rows: Iterator[Row], rate: float) -> tuple[Tensor, Tensor]:
    """Run one optimizer step: launch its kernels, and wait for nothing (see `Step`)."""
    results = run.step_once(rows, rate)
    run.step += 1
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line.

    Exit codes: 0 done or stopped by a signal, 1 an error that the message explains, 2 wrong usage,
    130 interrupted twice.
    """
    options = parse(sys.argv[1:] if arguments is None else arguments)
    with process_group(timeout_minutes=options.compute.timeout_minutes) as topology:
        try:
            with topology.watching():
                train(options, topology)
        except (ThdpackError, ValueError, OSError) as error:
            say(topology.rank, without_credentials(str(error)))
            topology.exit_process(1)
        except KeyboardInterrupt:
            print(
                "trainer: interrupted; the last checkpoint is complete: run the same command to "
                "resume from it",
                file=sys.stderr,
            )
            topology.exit_process(130)


if __name__ == "__main__":
    main()
