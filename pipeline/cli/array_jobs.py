"""`thdpack plan-tasks`, `run-task` and `commit`: build a dataset with a scheduler's array jobs."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict

from pipeline.build.array_jobs.run_listed import TasksRun, commit, run_tasks
from pipeline.build.array_jobs.task_list import load_task_list, plan_tasks, refuse_unlistable
from pipeline.build.assemble_manifest import Built
from pipeline.build.options import PreprocessOptions
from pipeline.build.progress.reporter import reporter
from pipeline.cli.arguments import NO_INPUT, UsageError
from pipeline.cli.dry_run import print_dry_run
from pipeline.cli.options.subcommand_options import CommitOptions, RunTaskOptions
from pipeline.cli.summary import print_built
from pipeline.storage.read_manifest import read_manifest
from schemas.text.phrases import plural
from schemas.text.redact import without_credentials


def run_plan_tasks(options: PreprocessOptions) -> int:
    """Write a task list, print the next commands to run, and return an exit code.

    Raises:
        ThdpackError: see `plan_tasks`.
        UsageError: no input is named.
    """
    if not options.inputs:
        raise UsageError(NO_INPUT)
    if options.dry_run:
        refuse_unlistable(options)
        return print_dry_run(options, task_list=True)
    with reporter(as_json=options.log_json) as report:
        planned = plan_tasks(options, report)
    digest, counts, out = planned.digest, planned.counts, options.out
    work = without_credentials(planned.work.where())
    if options.log_json:
        event = {"event": "plan", "dataset": out, "plan": digest, "work_folder": work, **counts}
        print(json.dumps(event), flush=True)
        return 0
    print(f"{'plan':>16}  {digest}")
    print(f"{'work folder':>16}  {work}")
    for name, count in counts.items():
        # preprocess.sbatch and preprocess.sh read these lines
        print(f"{name:>16}  {count} {'task' if count == 1 else 'tasks'}")
    dataset = shlex.quote(without_credentials(out))
    for stage, count in counts.items():
        task = f"thdpack run-task {dataset} --plan {digest} --stage {stage} --index"
        name = "first" if stage == "map" else "then"
        each = f"   # then each index up to {count - 1}" if count > 1 else ""
        print(f"{name:>16}  {task} 0{each}")
    print(f"{'finally':>16}  thdpack commit {dataset} --plan {digest}")
    print(f"{'on Slurm':>16}  deploy/slurm/preprocess.sbatch runs all of these commands")
    print(f"{'on Kubernetes':>16}  deploy/kubernetes/preprocess.sh runs all of these commands")
    return 0


def run_run_task(options: RunTaskOptions) -> int:
    """Run tasks of a task list, print how many were run, and return an exit code.

    Raises:
        ThdpackError: see `run_tasks`.
    """
    with reporter(as_json=options.log_json) as report:
        listed = load_task_list(options.dataset, options.plan)
        done = TasksRun(run=0, skipped=0)
        if listed is not None:
            done = run_tasks(listed, options.stage, options.index, options.array_size, report)
    if options.log_json:
        print(json.dumps({"event": "tasks", **asdict(done)}), flush=True)
    else:
        print(_told(done, committed=listed is None))
    return 0


def _told(done: TasksRun, *, committed: bool) -> str:
    """Return a line that says how many tasks were run, and how many had finished already."""
    if committed:
        return "the dataset is complete already; nothing to do"
    skipped = f"{plural(done.skipped, 'task')} skipped, because an earlier run finished them"
    if done.skipped == 1:
        skipped = "1 task skipped, because an earlier run finished it"
    if not done.run:
        return f"{skipped}; nothing to do" if done.skipped else "nothing to do"
    return f"{plural(done.run, 'task')} run" + (f"; {skipped}" if done.skipped else "")


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
