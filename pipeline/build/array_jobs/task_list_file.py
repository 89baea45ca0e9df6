"""The file that `thdpack plan-tasks` writes and every `thdpack run-task` reads."""

from __future__ import annotations

from importlib.metadata import version

import msgspec

from pipeline.build.build_plan import Plan, plan_digest
from pipeline.build.options import PreprocessOptions
from pipeline.inputs.formats.registry import FORMATS
from pipeline.storage.signed_json import read_signed
from schemas import __version__
from schemas.code_digest import code_digest
from schemas.errors import BuildError


class NotedList(msgspec.Struct, forbid_unknown_fields=True):
    """Content of the file.

    code: digest of the source code of thdpack
    pyarrow: version of pyarrow, on which the bytes of the files depend
    digest: name of the plan, which is made of two digests (see `plan_digest`)
    version_at_start: version of the manifest when the tasks were planned; see `Destination`
    first_variant: see `TaskList`
    """

    thdpack: str
    code: str
    pyarrow: str
    digest: str
    version_at_start: str | None
    first_variant: int
    options: PreprocessOptions
    plan: Plan


def read_list(content: bytes, where: str) -> NotedList:
    """Return a task list. The same source code of thdpack must have written the list.

    Args:
        where: path or URL of the file, for errors.
    Raises:
        BuildError: the file is damaged or inconsistent, or the source code or pyarrow differs.
    """
    again = "run `thdpack plan-tasks --overwrite`"
    task_list = read_signed(content, NotedList)
    if task_list is None:
        raise BuildError(f"{where}: not a task list of thdpack {__version__}, or damaged; {again}")
    if task_list.thdpack != __version__:
        raise BuildError(
            f"{where}: planned by thdpack {task_list.thdpack}, this is {__version__}; {again}"
        )
    if task_list.code != code_digest():
        codes = f"{task_list.code}, here {code_digest()}"
        raise BuildError(
            f"{where}: planned by other code of thdpack {__version__} ({codes}); "
            f"install the same code on every machine, or {again}"
        )
    if task_list.pyarrow != version("pyarrow"):
        raise BuildError(
            f"{where}: planned with pyarrow {task_list.pyarrow}, here is {version('pyarrow')}: "
            f"install the same version on every machine, or {again}"
        )
    if (
        plan_digest(task_list.options, task_list.plan) != task_list.digest
        or not _consistent(task_list.plan)
        or task_list.options.scratch is not None
        or not 0 <= task_list.first_variant < task_list.options.variants
    ):
        raise BuildError(f"{where}: the task list is inconsistent; {again}")
    return task_list


def _consistent(planned: Plan) -> bool:
    """Return whether a plan has at least one partition, only sources of known formats, and only
    ranges inside its sources."""
    ranges = (*planned.ranges, *planned.hashed)
    return (
        planned.partitions > 0
        and all(source.format in FORMATS for source in planned.sources)
        and all(
            0 <= s < len(planned.sources) and 0 <= begin <= end <= planned.sources[s].bytes
            for s, begin, end in ranges
        )
    )
