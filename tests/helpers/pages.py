"""Commands that pages of the documentation show."""

from __future__ import annotations

import re
import shlex

from tests.helpers.processes.command_line import REPO


def shell_commands(page: str, *programs: str) -> list[list[str]]:
    """Find a page's commands, indented or after `$ `, that run one of `programs`; return the words
    of each."""
    joined = (REPO / page).read_text().replace("\\\n", " ")
    lines = re.findall(rf"^(?:    |\$ )((?:{'|'.join(programs)}) .*)", joined, flags=re.MULTILINE)
    return [shlex.split(line) for line in lines]
