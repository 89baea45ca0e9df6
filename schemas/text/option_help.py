"""Command-line options: help texts from the docstrings of fields, errors for invalid values, and
hints for options of other programs. `option_words.py` checks which words a command line has."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field, replace
from decimal import Decimal
from types import NoneType
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

from schemas.text.one_line import on_one_line
from schemas.text.option_checks import flag
from schemas.text.time_span import parse_span

_ONE_HYPHEN: Final = re.compile(r"-[a-z][a-z-]+$")
_EXPONENT: Final = re.compile(r"\d+(\.\d+)?[eE]\+?\d{1,2}")
_UNIT: Final = re.compile(r"\d+(\.\d+)?[kKmMbBtT]")
_COMMAS: Final = re.compile(r"\d{1,3}(,\d{3})+")
_POWERS: Final = {"K": 3, "M": 6, "B": 9, "T": 12}
_BINARY: Final = {"K": 1 << 10, "M": 1 << 20}
_SETTING: Final = re.compile(r"\+*[A-Za-z_][\w.-]*=")
"""Pattern of settings such as `steps=100` or `dataset.seed=1`, which other programs (with Hydra)
accept as options."""
_GROUP: Final = re.compile(r"[\w-]+-(kwargs|args|config)$")
"""Pattern of the name of a group of settings, such as `adamw-kwargs` for `adamw_kwargs.lr=1`."""
_STORE: Final = "set the environment variable AWS_ENDPOINT_URL to the URL of the store"
_EVERYWHERE: Final = dict.fromkeys(("--endpoint", "--endpoint-url", "--s3-endpoint"), _STORE)
"""Options of other programs that no command has, and the advice that an error prints."""
_PAGE: Final = "docs/coming-from.md lists the options of other programs and ours"

_flowing: set[Any] = set()
"""Classes whose fields `with_flowing_help` has annotated."""


class InvalidOptionError(Exception):
    """The value of a command-line option is not allowed."""


def with_flowing_help(options: type[Any], *, texts_of: type[Any] | None = None) -> None:
    """Pass each field's docstring to tyro as one paragraph, so that tyro wraps its lines.

    Without this function, the help has the line breaks of the source. Further effects:

    - If the value of a numeric option is not a number, tyro raises InvalidOptionError. The message
      gives an example: the field's metadata `example`, or else the field's default.
    - With the metadata `units`, a whole number may end with K, M, B or T (powers of 1,000). With
      the metadata `span`, a number of seconds may have a unit, as in 10s or 5m.
    - The help of an optional value does not show that the default is None.
    - A help text in a field's tyro settings is used only if the field has no docstring. A
      placeholder in these settings replaces ours.
    - If a type reads its values by itself, it raises ValueError with what it expects. The error
      that the user sees also names the option and the value.

    Args:
        texts_of: class whose fields have the docstrings, if it is not the annotated class but
            another class with fields of the same names.
    """
    import tyro  # imported here, for the command line only

    if options in _flowing:  # annotating a class again would make each call of tyro slower
        return
    _flowing.add(options)
    bases = reversed((texts_of or options).__mro__[:-1])
    texts = {name: text for base in bases for name, text in _docstrings(base).items()}
    known: dict[str, Field[Any]] = getattr(options, "__dataclass_fields__", {})
    options.__annotations__ = {
        name: _with_plain_value(hint, known[name]) if name in known else hint
        for name, hint in get_type_hints(options, include_extras=True).items()
    }
    for name, text in texts.items():
        hint = options.__annotations__.get(name)
        if hint is not None:
            options.__annotations__[name] = Annotated[hint, tyro.conf.arg(help=text)]


@functools.cache  # six groups of `preprocess` take their texts from the same class
def _docstrings(options: type[Any]) -> dict[str, str]:
    """Return the docstrings of the fields that a class declares itself, each as one paragraph."""
    import docstring_parser  # a dependency of tyro

    found = docstring_parser.parse_from_object(options).params
    return {field.arg_name: on_one_line(field.description or "") for field in found}


def _with_plain_value(hint: Any, field: Field[Any]) -> Any:
    """Return a field's type with settings for tyro: plain errors for numbers, and for an optional
    value the same placeholder as for a required value."""
    import tyro

    kind, *settings = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    kinds = [each for each in get_args(kind) if each is not NoneType]
    optional = NoneType in get_args(kind) and len(kinds) == 1
    value = kinds[0] if optional else kind
    ours: list[Any] = []
    if optional:
        choices = get_args(value) if get_origin(value) is Literal else ()
        shown = f"{{{','.join(choices)}}}" if choices else "STR" if value is str else None
        hidden = "" if field.default is None else None
        ours.append(tyro.conf.arg(metavar=shown, help_behavior_hint=hidden))
    spec = tyro.constructors.PrimitiveConstructorSpec
    settings = [
        replace(each, instance_from_str=_naming(field, each.instance_from_str))
        if isinstance(each, spec)
        else each
        for each in settings
    ]
    if value in (int, float) and not any(isinstance(each, spec) for each in settings):
        ours.append(
            spec(
                nargs=1,
                metavar="INT" if value is int else "FLOAT",
                instance_from_str=_number_of(field, value),
                is_instance=lambda given: (
                    isinstance(given, value | int) or (optional and given is None)
                ),
                str_from_instance=lambda given: [str(given)],
            )
        )
    return Annotated[(kind, *ours, *settings)] if ours or settings else hint


def _naming(field: Field[Any], read: Callable[[list[str]], Any]) -> Callable[[list[str]], Any]:
    """Return the function `read`, with an error that names the option and its value."""

    def named(words: list[str]) -> Any:
        try:
            return read(words)
        except ValueError as error:
            raise InvalidOptionError(f"{flag(field.name)} is {words[0]!r}, {error}") from None

    return named


def _number_of(field: Field[Any], kind: type[int] | type[float]) -> Callable[[list[str]], Any]:
    """Return the function with which tyro reads the number of an option."""
    option = flag(field.name)
    noun, example = ("whole number", 8) if kind is int else ("number", 0.1)
    if isinstance(field.default, int | float) and field.default:
        example = field.default
    example = field.metadata.get("example", example)
    units, span = bool(field.metadata.get("units")), bool(field.metadata.get("span"))

    def read(words: list[str]) -> int | float | None:
        if words[0] == "None" and field.default is None:
            return None
        try:
            if kind is int:
                return whole(words[0], units=units)
            if span and re.search(r"\d[a-z]$", words[0]):
                return parse_span(words[0], name=option)
            return kind(words[0])
        except ValueError:
            message = f"{option} is {words[0]!r}, expected a {noun}"
            if units:
                hint = f", such as {example}; the units are K, M, B and T, powers of 1,000"
            elif kind is int and _UNIT.fullmatch(words[0]):
                hint = f" without a unit{_meanings(words[0]) or f', such as {example}'}"
            else:
                hint = f", such as {example}"
            raise InvalidOptionError(message + hint) from None

    return read


def _meanings(word: str) -> str:
    """Return the numbers that a word with a unit may stand for, such as 16384 and 16000 for 16k;
    "" if there are none. K and M may stand for powers of 1,024, too."""
    number, unit = Decimal(word[:-1]), word[-1].upper()
    scales = (_BINARY.get(unit, 0), 10 ** _POWERS[unit])
    found = [number * scale for scale in scales if scale and number * scale % 1 == 0]
    return f": write {' or '.join(f'{value:.0f}' for value in found)}" if found else ""


def whole(word: str, *, units: bool = True) -> int:
    """Return a whole number, which may be written with commas or an exponent, such as 1e11.

    Args:
        units: True to accept the units K, M, B and T (powers of 1,000), as in 1.5B.
    Raises:
        ValueError: `word` is not a whole number.
    """
    if units and _UNIT.fullmatch(word):
        word = f"{word[:-1]}e{_POWERS[word[-1].upper()]}"
    if _EXPONENT.fullmatch(word):
        numerator, denominator = Decimal(word).as_integer_ratio()
        if denominator == 1:
            return numerator
    return int(word.replace(",", "") if _COMMAS.fullmatch(word) else word)


def refuse_foreign_options(
    words: Sequence[str], others: Mapping[str, str], *, takes_files: bool
) -> None:
    """Refuse options of other programs that have another name here, and settings without hyphens.

    Args:
        words: command line after the subcommand or the preset.
        others: advice for the error message, by option of another program (with hyphens).
        takes_files: True if a word without hyphens may name a file. In this case, a word
            `name=value` is allowed.
    Raises:
        InvalidOptionError: `words` contains an option of another program, a word `name=value`, an
            option with one hyphen, or a first word without hyphens where no file is expected.
    """
    others = {**_EVERYWHERE, **others}
    if not takes_files and words and re.match(r"[^-=]+$", words[0]):
        raise InvalidOptionError(f"{words[0]}: write an option before it: --data {words[0]}")
    for previous, word in zip(["", *words], words, strict=False):
        given, _, value = word.partition("=")
        given = given.replace("_", "-").lstrip("+")
        if word.startswith("-"):
            advice = _advice(given[2:], others) if given.startswith("--") else others.get(given)
            if advice:
                raise InvalidOptionError(f"no option {given}: {advice}")
            if _ONE_HYPHEN.match(given) and not previous.startswith("--"):
                raise InvalidOptionError(f"no option {given}: write -{given}, with two hyphens")
        elif not takes_files and _SETTING.match(word) and not previous.startswith("-"):
            remedy = _advice(given, others) or f"write --{given} {value}"
            raise InvalidOptionError(f"{word}: options begin with two hyphens: {remedy}")


def _advice(name: str, others: Mapping[str, str]) -> str:
    """Return advice for an option of another program; "" if there is none.

    The result is the first of these that exists:

    - advice for a group among the parts of `name`, such as `adamw-kwargs`
    - advice for the last part, such as `micro-batch-size` of `dataset.micro-batch-size`
    - for a name with dots, a pointer to docs/coming-from.md

    Args:
        name: name of the option, without leading hyphens.
    """
    *outer, last = name.split(".")
    groups = (others.get(f"--{part}", "") for part in outer or [last] if _GROUP.match(part))
    return next(filter(None, groups), "") or others.get(f"--{last}", "") or (_PAGE if outer else "")


def suggest_choices(words: Sequence[str], *sections: type[Any]) -> None:
    """Refuse a value that is not one of an option's choices, such as `--precision fp8`.

    Args:
        words: command line after the subcommand or the preset.
        sections: classes of the options.
    Raises:
        InvalidOptionError: a value is not allowed. The message lists the allowed values that
            contain the given value or, if there are none, all allowed values.
    """
    hints = {name: hint for each in sections for name, hint in get_type_hints(each).items()}
    for word, following in zip(words, [*words[1:], ""], strict=False):
        given, equals, value = word.partition("=")
        value = value if equals else following
        choices = _choices(hints.get(given.removeprefix("--").replace("-", "_")))
        missing = not value or (not equals and value.startswith("-"))  # tyro reports this
        if not given.startswith("--") or not choices or missing or value in choices:
            continue
        meant = [choice for choice in choices if value.lower() in choice]
        if meant:
            meant.sort(key=lambda choice: not choice.startswith(value.lower()))
            raise InvalidOptionError(f"{given} is {value!r}: did you mean {', '.join(meant)}?")
        *others, last = choices
        raise InvalidOptionError(f"{given} is {value!r}, expected {', '.join(others)} or {last}")


def _choices(hint: Any) -> tuple[str, ...]:
    """Return the choices of an option in the order of its Literal, which may be optional. Return ()
    for an option of another type."""
    kinds = [hint, *get_args(hint)] if NoneType in get_args(hint) else [hint]
    return next((get_args(each) for each in kinds if get_origin(each) is Literal), ())


@contextmanager
def own_errors(*sections: type[Any]) -> Iterator[None]:
    """Turn each ValueError of these classes' `__post_init__` into an InvalidOptionError.

    For a ValueError, tyro would print the name of a class or field, which users do not know, before
    the message.
    """
    checks = [(section, vars(section).get("__post_init__")) for section in sections]
    for section, check in checks:
        if check is not None:
            section.__post_init__ = _raising_ours(check)
    try:
        yield
    finally:
        for section, check in checks:
            if check is not None:
                section.__post_init__ = check


def _raising_ours(check: Callable[[Any], None]) -> Callable[[Any], None]:
    def checked(section: Any) -> None:
        try:
            check(section)
        except ValueError as error:
            raise InvalidOptionError(str(error)) from error

    return checked
