"""Train an ESM-2 on shards: one process, or as many as torchrun starts. The loop is in `train`; everything it calls is named for what it does.

python -m trainer.train esm2-8m --data data/uniref50
torchrun --nproc-per-node 8 -m trainer.train esm2-650m --data s3://bucket/uniref50
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from torch import Tensor

from schemas.errors import ThdpackError
from schemas.redact import without_credentials
from trainer.config import TrainOptions, parse
from trainer.distributed.rank_message import say
from trainer.distributed.stop_signals import StopRequest
from trainer.distributed.topology import Topology, process_group
from trainer.feed import Row
from trainer.monitoring.meter import Meter
from trainer.monitoring.run_log import RunLog
from trainer.monitoring.trace import profiler
from trainer.run import TrainingError, TrainingRun
from trainer.schedule import learning_rate


def train(options: TrainOptions, topology: Topology) -> None:
    """Train to the last step, or to a signal; leave a checkpoint, and at the end an exported model.

    Raises:
        ValueError: options that do not go together, or not with this machine or this number of ranks.
        ThdpackError: the dataset, the checkpoint or the model to start from cannot be used, the step cannot be captured, or the loss stays infinite.
    """
    with ExitStack() as stack:
        run = TrainingRun(options, topology, stack)
        options = run.options
        report = stack.enter_context(RunLog(options, topology, step=run.step))
        report.say(run.description)
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
                report.line(line)
                run.tokens = line.tokens
                if line.bad_in_a_row >= options.optimizer.max_bad_steps:
                    run.checkpoints.wait()  # all ranks are here: what is being written can be finished
                    raise TrainingError(
                        f"{line.bad_in_a_row} steps in a row, up to step {line.step}, had a loss or gradient that is not finite; they were skipped. "
                        f"The last checkpoint is whole: go on from it with a lower --learning-rate, or with --precision bf16 if this one is lower"
                    )
            if validating:
                saving |= run.validate(report)  # the best so far is kept
            if saving:
                run.save(wait=last)
            if validating or saving:
                meter.resume()
            run.checkpoints.poll()
            trace.step()

        if stopping:
            report.say(
                f"stopped by a signal after step {run.step:,}; the same command goes on from here"
            )
        else:
            run.export()
            note = (
                ""
                if options.model.gelu == "erf"
                else ", which computes GELU exactly: logits differ from this run's tanh by about 1e-3"
            )
            report.say(
                f"done: {run.out / 'export'} loads with transformers' AutoModelForMaskedLM{note}"
            )


def train_step(run: TrainingRun, rows: Iterator[Row], rate: float) -> tuple[Tensor, Tensor]:
    """One optimizer step. It launches work and waits for nothing; see `Step`."""
    results = run.step_once(rows, rate)
    run.step += 1
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Exit codes: 0 done or stopped by a signal, 1 an error that the message explains, 2 wrong usage, 130 interrupted twice."""
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
                "trainer: interrupted; the last checkpoint is whole, the same command goes on from it",
                file=sys.stderr,
            )
            topology.exit_process(130)


if __name__ == "__main__":
    main()
