"""The command `thdpack`. `python -m thdpack` and `torchrun … -m thdpack train` run it, too.

Importing this module puts the folder of our four packages first on sys.path. Otherwise another
project's `trainer`, or a `schemas` folder in the current folder, might be imported instead.
docs/decisions/0014-import-names.md has the reasons.

`from thdpack import ShardReader, Mixture, ShardDataset` works, too. The documented name is
`pipeline.reader`. `thdpack.__version__` is the version.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pipeline.reader import Mixture as Mixture
    from pipeline.reader import ShardDataset as ShardDataset
    from pipeline.reader import ShardReader as ShardReader
    from schemas import __version__ as __version__

__all__ = ["Mixture", "ShardReader", "__version__"]

_NEEDS_TORCH: Final = ("ShardDataset",)
"""Public names that are not in __all__, because `import *` must work without torch."""

_OF_TRAINER: Final = ("train", "embed", "score")
"""Commands that the package `trainer` runs."""
_PACKAGES: Final = ("packers", "pipeline", "schemas", "trainer")
_HERE: Final = os.path.dirname(os.path.abspath(__file__))
_INSTALLED: Final = os.path.join(_HERE, "thdpack_packages")
"""Folder of our packages if a wheel was installed (see setup.py)."""
FOLDER: Final = _INSTALLED if os.path.isdir(_INSTALLED) else _HERE
"""Folder that holds our packages. In the repository, they are beside this file."""


def _search_our_folder_first() -> None:
    if __name__ == "__main__" and not sys.flags.safe_path:
        del sys.path[0]  # the current folder, which `python -m` has put there
    sys.path[:] = [FOLDER, *(folder for folder in sys.path if folder != FOLDER)]


def _refuse_other_packages() -> None:
    """Check that no other project's package has been imported under a name of ours.

    Raises:
        ImportError: such a package has been imported. The message names both files.
    """
    for name in _PACKAGES:
        module = sys.modules.get(name)
        if module is None:
            continue
        ours = os.path.join(FOLDER, name, "__init__.py")
        # a package without __init__.py has a __path__, but no __file__
        found = getattr(module, "__file__", None) or next(iter(module.__path__))
        if os.path.realpath(found) != os.path.realpath(ours):
            raise ImportError(
                f"thdpack needs {ours}, but {found} has already been imported as {name!r}: "
                "import thdpack first, and do not use both packages in one program"
            )


_search_our_folder_first()
_refuse_other_packages()


if not TYPE_CHECKING:  # otherwise, type checkers would accept every name

    def __getattr__(name: str) -> Any:
        """Import a public name at first use, so that the command starts fast (PEP 562)."""
        if name not in (*__all__, *_NEEDS_TORCH):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(
            import_module("schemas" if name == "__version__" else "pipeline.reader"), name
        )

    def __dir__() -> list[str]:
        return sorted((*__all__, *_NEEDS_TORCH))


def main() -> None:
    """Run the subcommand that `sys.argv` names.

    Commands of the trainer are run here, because `pipeline` must not import the trainer.
    """
    try:
        if sys.argv[1:2] == ["help"] and sys.argv[2:3] and sys.argv[2] in _OF_TRAINER:
            sys.argv[1:] = [sys.argv[2], *sys.argv[3:], "--help"]
        if sys.argv[1:2] and sys.argv[1] in _OF_TRAINER:
            _run_trainer(sys.argv[1], sys.argv[2:])
            return
        with _ended_by_ctrl_c():
            from pipeline.cli.main import main as run_pipeline  # found only with the new sys.path

        run_pipeline()
    except KeyboardInterrupt:  # Ctrl-C before a command has begun
        print("thdpack: interrupted", file=sys.stderr)
        sys.exit(130)


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C print one line and end the process. Use this for imports: some libraries turn a
    KeyboardInterrupt into another error, such as a RuntimeError of torch."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # a background job ignores Ctrl-C
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"thdpack: interrupted\n")
    os._exit(130)


def _run_trainer(command: str, arguments: Sequence[str]) -> None:
    """Run a command of the trainer."""
    if "LOCAL_RANK" not in os.environ:  # under torchrun, only one rank may print an error
        # without torch: help and errors are quick, and help needs no pip extra
        with _ended_by_ctrl_c():
            from trainer.config.commands import PARSERS

        try:
            try:
                PARSERS[command](arguments)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:  # for example with `| head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)
    try:
        with _ended_by_ctrl_c():
            module = import_module(f"trainer.{command}")  # torch takes seconds to import
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors"):
            raise
        from schemas.text.phrases import install_command

        remedy = install_command("train")
        print(f"thdpack {command}: the command needs {error.name}: {remedy}", file=sys.stderr)
        sys.exit(2)
    module.main(arguments)


if __name__ == "__main__":
    main()
