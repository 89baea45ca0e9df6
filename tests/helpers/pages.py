"""Commands that pages of the documentation show."""

from __future__ import annotations

import re
import shlex

from tests.helpers.processes.command_line import REPO


def shell_commands(page: str, *programs: str) -> list[list[str]]:
    """Return the commands of one of `programs` on a page, each as a list of words.

    A line is a command if it is indented by four spaces, begins with `$ `, or both.
    """
    joined = (REPO / page).read_text().replace("\\\n", " ")
    lines = re.findall(
        rf"^(?:    \$ |    |\$ )((?:{'|'.join(programs)}) .*)", joined, flags=re.MULTILINE
    )
    return [shlex.split(line) for line in lines]
