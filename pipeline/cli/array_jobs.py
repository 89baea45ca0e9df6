"""`thdpack run-task` and `thdpack commit`, what they and `plan-tasks` print, and the summary of a build."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal, Optional

import tyro

from pipeline.build.options import PreprocessOptions
from schemas.redact import without_credentials

if TYPE_CHECKING:
    from pipeline.build.build_dataset import Built

KNOWN: Final = "already built from these inputs and options"


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTaskOptions:
    """Run one task of a planned job, or one array element's share of a stage. A task that has run before is skipped.

    Example: thdpack run-task data/uniref50 --stage map --index $SLURM_ARRAY_TASK_ID --array-size $SLURM_ARRAY_TASK_COUNT
    """

    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
    """Folder of the dataset, as --out of plan-tasks named it."""
    index: int
    """Which task, from 0. Without --stage it counts through the whole list."""
    stage: Optional[Literal["map", "reduce"]] = None  # noqa: UP045
    """Count within this stage. Stage reduce needs all of stage map."""
    array_size: Optional[int] = None  # noqa: UP045
    """Run the tasks index, index + array-size, … of the stage: an array need not be as long as the list."""
    plan: Optional[str] = None  # noqa: UP045
    """The plan that this task is of, as plan-tasks printed it: if another took its place, that is an error."""
    log_json: bool = False
    """One JSON object a line on standard output instead of text, for machines."""

    def __post_init__(self) -> None:
        if self.index < 0:
            raise ValueError(f"--index is {self.index}, expected at least 0")
        if self.array_size is not None and self.stage is None:
            raise ValueError(
                "--array-size is given without --stage: tasks of stage reduce cannot run beside those of stage map"
            )
        if self.array_size is not None and not self.index < self.array_size:
            raise ValueError(
                f"--index is {self.index}, expected less than --array-size {self.array_size}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class CommitOptions:
    """Finish a planned job whose tasks have all run: pack what is left, read everything back, write manifest.json.

    Example: thdpack commit data/uniref50
    """

    dataset: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATASET")]
    """Folder of the dataset, as --out of plan-tasks named it."""
    workers: Optional[int] = None  # noqa: UP045
    """Processes to use. Default: all cores."""
    plan: Optional[str] = None  # noqa: UP045
    """The plan to commit, as plan-tasks printed it: if another took its place, that is an error."""
    log_json: bool = False
    """One JSON object a line on standard output instead of text, for machines."""

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"--workers is {self.workers}, expected at least 1")


def run_array_command(options: PreprocessOptions | RunTaskOptions | CommitOptions) -> int:
    """Do what was asked, and say so; an exit code."""
    from pipeline.build.array_jobs.task_list import commit, load_task_list, plan_tasks, run_tasks
    from pipeline.build.build_dataset import Built
    from pipeline.build.progress import reporter
    from pipeline.storage.read_manifest import read_manifest

    with reporter(as_json=options.log_json) as report:
        if isinstance(options, PreprocessOptions):
            planned = plan_tasks(options, report)
            _print_plan(planned.digest, planned.counts, options)
            return 0
        listed = load_task_list(options.dataset, options.plan)
        if isinstance(options, CommitOptions):
            built = (
                commit(listed, options.workers, report)
                if listed is not None
                else Built(manifest=read_manifest(options.dataset), fresh=False)
            )
            print_built(
                built,
                options.dataset,
                as_json=options.log_json,
                known="nothing is planned here, and a dataset is there"
                if listed is None
                else KNOWN,
            )
            return 0
        count = (
            run_tasks(listed, options.stage, options.index, options.array_size, report)
            if listed is not None
            else 0
        )
        if not options.log_json:
            print(f"{count} tasks run" if count else "nothing to do")
    return 0


def _print_plan(digest: str, counts: dict[str, int], options: PreprocessOptions) -> None:
    if options.log_json:
        print(
            json.dumps({"event": "plan", "dataset": options.out, "plan": digest, **counts}),
            flush=True,
        )
        return
    print(f"{'plan':>16}  {digest}")
    for name, count in counts.items():
        print(f"{name:>16}  {count} tasks")
    print(
        f"{'next':>16}  thdpack run-task {options.out} --plan PLAN --stage STAGE --index N, stage map first; then thdpack commit {options.out} --plan PLAN"
    )
    print(f"{'on Slurm':>16}  docs/preprocess.sbatch does all of it")


def print_built(
    built: Built, dataset: str, *, as_json: bool, seconds: float | None = None, known: str = KNOWN
) -> None:
    """The summary of a dataset that is there now.

    Args:
        seconds: that the whole build took, if one process did it.
        known: why nothing was built.
    """
    from pipeline.cli.summary import summary_lines

    manifest, dataset = built.manifest, without_credentials(dataset)
    size = sum(entry.bytes for entry in manifest.inputs)
    if as_json:
        summary = {
            "event": "summary",
            "fresh": built.fresh,
            "dataset": dataset,
            "manifest_digest": manifest.digest,
        }
        timed = {} if seconds is None else {"seconds": round(seconds, 3)}
        print(
            json.dumps(
                {
                    **summary,
                    **timed,
                    "records": dict(manifest.records_by_status),
                    "input_bytes": size,
                }
            ),
            flush=True,
        )
        return
    if not built.fresh:
        print(f"{known}; nothing to do")
    for name, value in summary_lines(manifest):
        print(f"{name:>16}  {value}")
    if built.fresh and seconds is not None:
        print(
            f"{'speed':>16}  {size / seconds / 1e6:,.0f} MB/s of input ({size / 1e6:,.1f} MB in {seconds:.1f} s), verified"
        )
    print(f"{'dataset':>16}  {dataset}")
