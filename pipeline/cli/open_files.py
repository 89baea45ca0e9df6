"""Raise the limit of open files if it is too low, and recognize errors that this limit caused."""

from __future__ import annotations

import errno
import resource
from typing import Final

from schemas.errors import BuildError

_FEWEST_FILES: Final = 64
"""Limit that a build needs. A build with a few workers has about twenty files open at once."""


def raise_limit() -> None:
    """Raise the limit of open files to the number that a build needs, before workers start.

    Raises:
        BuildError: the limit is too low, and this process may not raise it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= _FEWEST_FILES:
        return
    if hard != resource.RLIM_INFINITY and hard < _FEWEST_FILES:
        raise BuildError(too_few_files())
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FEWEST_FILES, hard))


def lacks_files(error: BaseException | None) -> bool:
    """Return whether an error, or one of its causes, means that too many files are open."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return True
        error = error.__cause__ or error.__context__
    return False


def too_few_files() -> str:
    """Return the error message, with the limit and the remedy."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        f"too many open files: this process may open {most}; "
        "raise the limit, as in `ulimit -n 1024`, and run the same command"
    )
