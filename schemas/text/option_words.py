"""Check the words of a command line before tyro reads them, and turn tyro's errors into one line.

tyro frames its errors, and they take several lines. An error of this module is one line that says
what is wrong and names the remedy.
"""

from __future__ import annotations

import difflib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import MISSING, Field, dataclass
from types import MappingProxyType, NoneType
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

from schemas.text.option_checks import flag
from schemas.text.option_help import InvalidOptionError

_MOST_LISTED: Final = 8
"""Maximum number of options that an error lists."""
_ALIKE: Final = {"json": "log-json", "log-json": "json"}
"""Options for JSON output. Each subcommand has at most one of them."""
_MOST_MEANT: Final = 3
"""Maximum number of options that an error suggests, because all begin with the unknown word."""
_CLOSE: Final = 0.7
"""Smallest similarity, from 0 to 1, at which an error suggests another option."""
_HELP: Final = ("-h", "--help")
_OF_TYRO: Final = ("--tyro-print-completion", "--tyro-write-completion")
_MEANINGS: Final = {"DATASET": "the dataset's folder or URL", "INT": "a whole number"}
"""Meaning of each placeholder. Placeholders such as FILE need no explanation."""
_HOME: Final = re.compile(r"(mmseqs:)?~/")
_FOLDER: Final = re.compile(r"([\w./-]*/)?[\w-]+/?")
"""Pattern of a path whose last part has no ending. It is no glob, @LIST or URL."""
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")
_RULE: Final = re.compile(r"[─-]{3,}")


@dataclass(frozen=True, slots=True)
class _Declared:
    """An option, or an argument without hyphens.

    name: flag of an option, such as --max-seq-len; placeholder of an argument
    placeholder: text that stands for the value in the help; "" for a switch, which has no value
    is_required: the command line must contain it
    is_repeatable: an option may be given several times; an argument may be several words
    """

    name: str
    placeholder: str
    is_required: bool
    is_repeatable: bool


def check_words(
    words: Sequence[str],
    *sections: type[Any],
    prog: str,
    aliases: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Check that the words are options of the command with their values, and its arguments.

    The values themselves are not checked.

    Args:
        words: command line after the subcommand or the preset.
        sections: classes of the command's options, after `with_flowing_help`.
        prog: command, for the error message, such as "thdpack verify".
        aliases: flag of each option that has another name, by this name.
    Raises:
        InvalidOptionError: an option is unknown, is missing or is given twice, its value is missing
            or empty, a switch has a value, a value begins with ~/, or there are too few or too many
            arguments.
    """
    options, arguments = _declared(sections)
    given: set[str] = set()
    free: list[str] = []
    single = sum(not argument.is_repeatable for argument in arguments)
    after = separated = ""
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        if word == "--":
            free += reversed(rest)
            break
        if not _is_option(word):
            if after and not arguments:
                raise InvalidOptionError(
                    f"too many arguments: remove {word}, or write {after} before it"
                )
            if separated and len(free) > single < len(arguments):
                raise InvalidOptionError(
                    f"{word} comes after {separated}: write all arguments together, before the "
                    "options or after them"
                )
            free.append(word)
            separated = ""
            continue
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if name in _OF_TYRO:
            return
        if name in _HELP:
            given.add("--help")
            continue
        option = options.get(aliases.get(name, name))
        if option is None:
            if not equals and rest and not _is_option(rest[-1]):
                value = rest[-1]
            raise InvalidOptionError(_unknown(name, value, [*options, *aliases], arguments, prog))
        if option.name in given and not option.is_repeatable:
            raise InvalidOptionError(f"{name} is given more than once: remove all but one")
        given.add(option.name)
        separated = name  # tyro reads the words of an argument only up to the next option
        if not option.placeholder and equals:
            raise InvalidOptionError(f"{name} takes no value: omit ={value}")
        if option.placeholder and not equals:
            if not rest or rest[-1] == "--" or _is_option(rest[-1]):
                raise InvalidOptionError(f"{name} has no value: write {_usage(name, option)}")
            value = rest.pop()
        if option.placeholder and not value:
            omit = "" if option.is_required else " If not, omit the option"
            raise InvalidOptionError(f"{name} is empty: is a shell variable unset?{omit}")
        if _HOME.match(value) and option.placeholder != "COMMAND":  # the shell runs a COMMAND
            raise InvalidOptionError(unexpanded(f"{name} is {value}"))
        after = name if option.is_repeatable else ""
    if "--help" not in given:
        missing = [o for o in options.values() if o.is_required and o.name not in given]
        if missing and arguments and not free:
            words_of = " ".join(_example(argument) for argument in arguments)
            names = f"{words_of} and {missing[0].name}"
            usage = f"{prog} {words_of} {missing[0].name} {missing[0].placeholder}"
            raise InvalidOptionError(f"{names} are missing: write `{usage}`")
        _check_number(free, arguments, prog, options)
        if missing:
            remedy = _unmarked_out(free) if missing[0].name == "--out" else ""
            remedy = remedy or f"add {_usage(missing[0].name, missing[0])}"
            raise InvalidOptionError(f"{missing[0].name} is missing: {remedy}")


def _unmarked_out(free: Sequence[str]) -> str:
    """Return a question if the last of several arguments may be the value of --out: it looks like
    the name of a folder, which does not exist. Otherwise return ""."""
    may_be = len(free) > 1 and _FOLDER.fullmatch(free[-1]) and not os.path.lexists(free[-1])
    return f"did you mean --out {free[-1]}?" if may_be else ""


def unexpanded(words: str) -> str:
    """Return the error message for a path that begins with ~/. The shell replaces ~ only if the
    path is a word of its own, without quotes."""
    return f"{words}: the shell has not replaced ~/: write $HOME/ instead"


def _check_number(
    free: Sequence[str],
    arguments: Sequence[_Declared],
    prog: str,
    options: Mapping[str, _Declared],
) -> None:
    """Check the number of arguments without hyphens. If an argument may be several words, such as
    INPUT, the command itself checks that there is at least one.

    Raises:
        InvalidOptionError: there are too few or too many.
    """
    several = any(argument.is_repeatable for argument in arguments)
    if free and not arguments and "--data" in options:
        raise InvalidOptionError(f"{free[0]}: write an option before it: --data {free[0]}")
    if (more := free[len(arguments) :]) and not several:
        remedy = (
            f"to name the dataset, write --dataset {more[0]}"
            if "--dataset" in options
            else f"remove {' '.join(more)}"
        )
        raise InvalidOptionError(f"too many arguments: {remedy}")
    for argument in arguments[len(free) :]:
        if argument.is_required and not argument.is_repeatable:
            meaning = _MEANINGS.get(argument.name, f"a value for {argument.name}")
            words = " ".join(_example(each) for each in arguments)
            raise InvalidOptionError(
                f"{argument.name} is missing: give {meaning}, as in `{prog} {words}`"
            )


def _example(argument: _Declared, dataset: str = "data/uniref50") -> str:
    return dataset if argument.name == "DATASET" else argument.name.partition(" ")[0]


def _usage(name: str, option: _Declared) -> str:
    """Return an option with its placeholder and, if known, what the placeholder stands for."""
    meaning = _MEANINGS.get(option.placeholder)
    if option.placeholder.startswith("{"):
        *others, last = option.placeholder.strip("{}").split(",")
        return f"{name} {', '.join(others)} or {last}"
    return f"{name} {option.placeholder}" + (f", {meaning}" if meaning else "")


def _unknown(
    name: str, value: str, known: Sequence[str], arguments: Sequence[_Declared], prog: str
) -> str:
    """Return the error message for an unknown option with a value ("" if it has none)."""
    bare = name.lstrip("-")
    for argument in arguments:
        if argument.name == "DATASET" and "dataset".startswith(bare):
            dataset = [shlex.quote(value)] if value else []
            words = " ".join(_example(each, *dataset) for each in arguments)
            return f"no option {name}: name the dataset alone, as in `{prog} {words}`"
    if bare in _ALIKE and f"--{_ALIKE[bare]}" in known:
        return f"no option {name}: did you mean --{_ALIKE[bare]}?"
    if bare == "dry-run" and "--delete" in known:
        return f"no option {name}: without --delete, `{prog}` only lists the files"
    names = {each.lstrip("-"): each for each in known}
    close = [each for each in names if each.startswith(bare.lower())] if len(bare) > 2 else []
    if not 0 < len(close) <= _MOST_MEANT:
        close = difflib.get_close_matches(bare.lower(), names, n=1, cutoff=_CLOSE)
    if close:
        meant = " or ".join(names[each] for each in close)
        return f"no option {name}: did you mean {meant}?"
    if len(known) > _MOST_LISTED:
        return f"no option {name}: `{prog} --help` lists all options"
    return f"no option {name}: the options are {', '.join(known)}"


def _is_option(word: str) -> bool:
    """Return whether tyro takes a word for an option. `-` and -1 are values."""
    return word.startswith("-") and word.lstrip("-")[:1].isalpha()


def _declared(sections: Sequence[type[Any]]) -> tuple[dict[str, _Declared], list[_Declared]]:
    """Return the options of classes, by flag, and their arguments without hyphens."""
    import tyro  # takes 0.1 s, and a reader or worker does not need it

    options: dict[str, _Declared] = {}
    arguments: list[_Declared] = []
    for section in sections:
        known: dict[str, Field[Any]] = getattr(section, "__dataclass_fields__", {})
        for name, hint in get_type_hints(section, include_extras=True).items():
            kind, *settings = get_args(hint) if get_origin(hint) is Annotated else (hint,)
            if name not in known or tyro.conf.Suppress in settings:
                continue
            field = known[name]
            placeholder = _placeholder(kind, settings)
            required = field.default is MISSING and field.default_factory is MISSING
            several = get_origin(kind) is tuple
            if tyro.conf.Positional in settings:
                arguments.append(_Declared(placeholder, placeholder, required, several))
            else:
                option = flag(name)
                options[option] = _Declared(option, placeholder, required, several)
    return options, arguments


def _placeholder(kind: Any, settings: Sequence[Any]) -> str:
    """Return the placeholder of a value, as the help shows it; "" for a switch."""
    if kind is bool:
        return ""
    for setting in reversed(settings):
        if found := getattr(setting, "metavar", None):
            return str(found)
    for each in (kind, *get_args(kind)):
        if get_origin(each) is Literal:
            return f"{{{','.join(map(str, get_args(each)))}}}"
    return next((each.__name__.upper() for each in get_args(kind) if each is not NoneType), "STR")


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn an error that tyro prints and frames into an InvalidOptionError.

    Raises:
        SystemExit: tyro has printed help.
        InvalidOptionError: the command line is wrong.
    """
    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            yield
    except SystemExit as leaving:
        if not leaving.code:
            raise
        raise InvalidOptionError(unframed(printed.getvalue())) from None
    sys.stderr.write(printed.getvalue())


def unframed(text: str) -> str:
    """Return the first paragraph of a text in a frame, as one line. Rules separate paragraphs."""
    lines: list[str] = []
    for line in _COLOUR.sub("", text).splitlines():
        if line.startswith(("╭", "╰", "+")):
            continue
        inner = line.strip("│| ")
        if _RULE.fullmatch(inner):
            break
        lines.append(inner)
    return " ".join(" ".join(lines).split())
