"""`thdpack plan-tasks`, `run-task` and `commit`: build a dataset by array jobs of a scheduler."""

from __future__ import annotations

import json

from pipeline.build.array_jobs.run_listed import commit, run_tasks
from pipeline.build.array_jobs.task_list import load_task_list, plan_tasks
from pipeline.build.build_dataset import Built
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress import reporter
from pipeline.cli.subcommand_options import CommitOptions, RunTaskOptions
from pipeline.cli.summary import print_built
from pipeline.storage.read_manifest import read_manifest


def run_plan_tasks(options: PreprocessOptions) -> int:
    """Write a task list, print the next commands to run, and return an exit code.

    Raises:
        ThdpackError: see `plan_tasks`.
    """
    with reporter(as_json=options.log_json) as report:
        planned = plan_tasks(options, report)
    digest, counts, out = planned.digest, planned.counts, options.out
    if options.log_json:
        print(json.dumps({"event": "plan", "dataset": out, "plan": digest, **counts}), flush=True)
        return 0
    print(f"{'plan':>16}  {digest}")
    for name, count in counts.items():
        print(f"{name:>16}  {count} tasks")
    task = f"thdpack run-task {out} --plan PLAN --stage STAGE --index N, for map, then reduce"
    print(f"{'next':>16}  {task}; then thdpack commit {out} --plan PLAN")
    print(f"{'on Slurm':>16}  deploy/slurm/preprocess.sbatch does all of it")
    return 0


def run_run_task(options: RunTaskOptions) -> int:
    """Run tasks of a list, print their number, and return an exit code.

    Raises:
        ThdpackError: see `run_tasks`.
    """
    with reporter(as_json=options.log_json) as report:
        listed = load_task_list(options.dataset, options.plan)
        count = 0
        if listed is not None:
            count = run_tasks(listed, options.stage, options.index, options.array_size, report)
    if not options.log_json:
        print(f"{count} tasks run" if count else "nothing to do")
    return 0


def run_commit(options: CommitOptions) -> int:
    """Commit a planned build, print its summary, and return an exit code.

    Raises:
        ThdpackError: see `commit`.
    """
    with reporter(as_json=options.log_json) as report:
        listed = load_task_list(options.dataset, options.plan)
        if listed is None:
            built = Built(manifest=read_manifest(options.dataset), fresh=False)
            known = "the plan is gone, but its dataset is complete"
            print_built(built, options.dataset, as_json=options.log_json, known=known)
        else:
            built = commit(listed, options.workers, report)
            print_built(built, options.dataset, as_json=options.log_json)
    return 0
