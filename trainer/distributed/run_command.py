"""Run a command of the trainer in each rank: parse options, join the job, print errors.

| exit code | meaning |
|---|---|
| 0 | the command is complete, or a signal stopped it |
| 1 | an error, explained by the message |
| 2 | a wrong option, or options that do not suit this machine, number of ranks or dataset |
| 130 | the user pressed Ctrl-C |
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeVar

from schemas.errors import OptionError as SharedOptionError
from schemas.errors import ThdpackError
from schemas.text.redact import without_credentials
from trainer.config.checks import OptionError
from trainer.distributed.launch import check_launch
from trainer.distributed.lost_ranks import LostRankError
from trainer.distributed.rank_message import (
    first_rank_speaks,
    leave_error_file,
    name_command,
    say,
    say_error,
)
from trainer.distributed.topology import Topology, process_group

Options = TypeVar("Options")


def run_command(
    name: str,
    parse: Callable[[], Options],
    run: Callable[[Options, Topology], None],
    *,
    timeout_minutes: Callable[[Options], float] = lambda options: 10.0,
    place: Callable[[Options], str] = lambda options: "",
    rest: Callable[[Options], str] = lambda options: "run the same command to continue",
    interrupted: str = "interrupted",
) -> None:
    """Run a command, print its errors, and end the process if it fails.

    Args:
        name: name of the command, for messages.
        parse: function that returns the options.
        run: function that runs the command.
        timeout_minutes: minutes that a rank waits for another rank.
        place: folder that the command writes to, for the message about a full disk.
        rest: what remains after an interruption, and what to do, for messages.
        interrupted: what the user's Ctrl-C has done, for messages.
    """
    name_command(name)
    try:
        with first_rank_speaks():
            options = parse()
            check_launch(name)
    except SystemExit as stopped:
        if stopped.code:
            leave_error_file("the command line is wrong: see the lines above this traceback")
        raise
    with process_group(timeout_minutes=timeout_minutes(options)) as topology:
        try:
            with topology.watching():
                run(options, topology)
        except (ThdpackError, ValueError, OSError) as error:
            text = str(error)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                text = f"{place(options)}: {error.strerror}: make room on its disk; {rest(options)}"
            text = without_credentials(text)
            if isinstance(error, LostRankError):  # each rank reports what it has found
                say(topology.rank, text)
            else:
                say_error(topology.rank, text, topology.errors)
            wrong_usage = isinstance(error, (OptionError, SharedOptionError))
            topology.exit_process(2 if wrong_usage else 1)
        except KeyboardInterrupt:
            say_error(topology.rank, f"{interrupted}; {rest(options)}", topology.errors)
            topology.exit_process(130)
