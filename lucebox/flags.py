"""One description per setting, from which its flag, its environment variable and the README's table are made.

A setting is a struct field annotated with a `Flag`. The field's name gives `--the-flag` and its twin
`LUCEBOX_THE_FLAG`, its default is the default everywhere, and a struct in a struct adds its own fields.
"""

from __future__ import annotations

import argparse
import difflib
import logging
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, TypeVar, get_type_hints

import msgspec

from lucebox.errors import ConfigError

ENVIRONMENT_PREFIX = "LUCEBOX_"

# Read by other parts than the settings: where downloads go, and how ggml is built and found.
OTHER_VARIABLES: Mapping[str, str] = {
    "LUCEBOX_CACHE": "folder for downloaded models and built libraries; default: the user's cache folder",
    "LUCEBOX_BACKENDS": "at install: ggml backends to build beside the CPU's, as `cuda,vulkan`",
    "LUCEBOX_GGML_SOURCE": "at install: a ggml checkout to build instead of the pinned one",
    "LUCEBOX_GGML_LIB": "folder of built ggml libraries to use instead of the installed ones",
}

# What a system's bytes that are no UTF-8 become in Python.
_SURROGATES = re.compile("[\ud800-\udfff]")
_PATH_PREFIX = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[\w.~-]+)+", re.ASCII)

StructT = TypeVar("StructT", bound=msgspec.Struct)

_log = logging.getLogger(__name__)


class Kind(Protocol):
    """What values a setting takes. `parse` and `check` raise ValueError saying what is allowed."""

    def parse(self, text: str) -> Any: ...

    def check(self, value: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Text:
    """Any text but the empty one."""

    def parse(self, text: str) -> str:
        self.check(text)
        return text

    def check(self, value: Any) -> None:
        if not isinstance(value, str) or not value.strip():
            raise ValueError("must be a text that is not empty")
        if _SURROGATES.search(value):
            raise ValueError("must be valid UTF-8")


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number from `low` to `high`."""

    low: int
    high: int

    def parse(self, text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(self._allowed()) from None
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not self.low <= value <= self.high:
            raise ValueError(self._allowed())

    def _allowed(self) -> str:
        return f"must be a whole number from {self.low} to {self.high}"


def integer(arguments: argparse.Namespace, name: str, low: int, high: int = 2**31 - 1) -> int:
    """The whole number that the text `arguments.name` stands for. Raises ConfigError for any other."""
    text = getattr(arguments, name)
    try:
        return Integer(low, high).parse(text)
    except ValueError as error:
        raise ConfigError(f"--{name.replace('_', '-')} {error}, not {text!r}") from None


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def parse(self, text: str) -> str:
        self.check(text)
        return text

    def check(self, value: Any) -> None:
        if value not in self.words:
            raise ValueError(f"must be one of {', '.join(self.words)}")


@dataclass(frozen=True, slots=True)
class Switch:
    """On or off; the flag alone means on."""

    def parse(self, text: str) -> bool:
        if text not in ("on", "off"):
            raise ValueError("must be on or off")
        return text == "on"

    def check(self, value: Any) -> None:
        if not isinstance(value, bool):
            raise ValueError("must be true or false")


@dataclass(frozen=True, slots=True)
class IntegerOr:
    """A whole number from `low` to `high`, or one of a few words."""

    low: int
    high: int
    words: tuple[str, ...]

    def parse(self, text: str) -> int | str:
        try:
            value: int | str = int(text)
        except ValueError:
            value = text
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        if value in self.words:
            return
        if not isinstance(value, int) or isinstance(value, bool) or not self.low <= value <= self.high:
            words = " or ".join(self.words)
            raise ValueError(f"must be a whole number from {self.low} to {self.high}, or {words}")


@dataclass(frozen=True, slots=True)
class TextList:
    """Texts, as a comma list; a flag may come several times."""

    def parse(self, text: str) -> tuple[str, ...]:
        value = tuple(part.strip() for part in text.split(","))
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        if not isinstance(value, tuple) or not value or not all(isinstance(text, str) for text in value):
            raise ValueError("must be a list of texts")
        for text in value:
            Text().check(text)


@dataclass(frozen=True, slots=True)
class PathPrefix:
    """The beginning of a URL's path: a slash, and no slash at the end."""

    def parse(self, text: str) -> str:
        value = text.rstrip("/")
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        if not isinstance(value, str) or (value and not _PATH_PREFIX.fullmatch(value)):
            raise ValueError("must be a URL's path, as /llm")


@dataclass(frozen=True, slots=True)
class Flag:
    """Annotation that makes a struct field a setting. `unset` says what stands for an empty default."""

    help: str
    kind: Kind
    metavar: str = ""
    unset: str = ""
    is_secret: bool = False  # complaints do not repeat it


@dataclass(frozen=True, slots=True)
class Setting:
    """A struct field and its Flag."""

    field: str
    flag: Flag
    default: Any

    @property
    def option(self) -> str:
        return "--" + self.field.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.field.upper()

    @property
    def default_text(self) -> str:
        if isinstance(self.default, bool):
            return "on" if self.default else "off"
        if self.default in ((), ""):
            return self.flag.unset
        return self.flag.unset if self.default is None else str(self.default)

    def check(self, value: Any, *, given_as: str) -> None:
        """Raises ConfigError when `value` is neither allowed nor the default."""
        if value == self.default and not value:
            return
        try:
            self.flag.kind.check(value)
        except ValueError as error:
            raise ConfigError(f"{given_as} {error}{self._but(value)}") from None

    def _but(self, value: Any) -> str:
        return "" if self.flag.is_secret else f", not {value!r}"

    def parse(self, text: str, *, given_as: str) -> Any:
        try:
            return self.flag.kind.parse(text)
        except ValueError as error:
            raise ConfigError(f"{given_as} {error}{self._but(text)}") from None


def settings(options: type[msgspec.Struct]) -> Iterator[Setting]:
    """Every setting of `options`, those of inner structs in place."""
    hints = get_type_hints(options, include_extras=True)
    for field in msgspec.structs.fields(options):
        hint = hints[field.name]
        flag = next((m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Flag)), None)
        if flag is not None:
            yield Setting(field.name, flag, field.default)
        elif isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield from settings(hint)


def check(options: msgspec.Struct) -> None:
    """Raises ConfigError naming the first setting of `options` itself whose value is not allowed."""
    for setting in settings(type(options)):
        if hasattr(options, setting.field):
            setting.check(getattr(options, setting.field), given_as=setting.field)


class ArgumentParser(argparse.ArgumentParser):
    """argparse whose complaints are ConfigErrors, with a guess at what was meant."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("allow_abbrev", False)
        super().__init__(*args, **kwargs)

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message, remedy=f"see {self.prog} --help")

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        parsed, unknown = self.parse_known_args(args, namespace)
        innermost = self._innermost(parsed)
        if unknown:
            raise ConfigError(f"unknown argument {unknown[0]!r}", remedy=innermost._guess(unknown[0]))
        for action in innermost._actions:
            if isinstance(action, argparse._SubParsersAction):  # one of its verbs would be innermost
                raise ConfigError(
                    f"a command is missing: {innermost.prog} takes {', '.join(action.choices)}",
                    remedy=f"see {innermost.prog} --help",
                )
        return parsed

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Of verbs, guesses at what was meant."""
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            close = difflib.get_close_matches(value, action.choices, 1)
            guess = f"did you mean {self.prog} {close[0]}?; " if close else ""
            raise ConfigError(
                f"unknown command {value!r}",
                remedy=f"{guess}{self.prog} takes {', '.join(action.choices)}",
            )
        super()._check_value(action, value)

    def _innermost(self, parsed: argparse.Namespace) -> ArgumentParser:
        """That of the verb that was given, and of its kind."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                inner = action.choices.get(getattr(parsed, action.dest, ""))
                if isinstance(inner, ArgumentParser):
                    return inner._innermost(parsed)
        return self

    def _guess(self, word: str) -> str:
        known = [option for action in self._actions for option in action.option_strings]
        takes_words = any(not action.option_strings for action in self._actions)
        target = "--target-model"
        if "--draft-model" in known and word == "--no-draft":
            return "did you mean --draft-model none?"
        if target in known and word.partition("=")[0] in ("--model", "-m"):
            return f"did you mean {target}?"
        if target in known and not takes_words and not word.startswith("-"):
            return f"a model is given as {target} {word}; see {self.prog} --help"
        close = difflib.get_close_matches(word.partition("=")[0], known, 1)
        return f"did you mean {close[0]}?" if close else f"see {self.prog} --help"


def add_arguments(
    parser: argparse.ArgumentParser, options: type[msgspec.Struct], only: Container[str] | None = None
) -> None:
    """A flag per setting, or per field of `only`. An absent flag leaves no attribute, so the environment can
    speak next."""
    for setting in settings(options):
        if only is not None and setting.field not in only:
            continue
        flag = setting.flag
        metavar = "{" + ",".join(flag.kind.words) + "}" if isinstance(flag.kind, Choice) else flag.metavar
        alone: dict[str, Any] = {}
        if isinstance(flag.kind, Switch):
            metavar, alone = "on|off", {"nargs": "?", "const": "on"}
        if isinstance(flag.kind, TextList):
            alone = {"action": "append"}
        text = f"{flag.help} [{setting.variable}; default: {setting.default_text}]".replace("%", "%%")
        parser.add_argument(
            setting.option, dest=setting.field, metavar=metavar, default=argparse.SUPPRESS, help=text, **alone
        )


def given(
    options: type[msgspec.Struct], arguments: argparse.Namespace, environ: Mapping[str, str]
) -> dict[str, Any]:
    """The values asked for, by field. A flag beats its variable, and an empty variable is unset."""
    values: dict[str, Any] = {}
    for setting in settings(options):
        if hasattr(arguments, setting.field):
            given = getattr(arguments, setting.field)
            text = ",".join(given) if isinstance(given, list) else given
            values[setting.field] = setting.parse(text, given_as=setting.option)
        elif environ.get(setting.variable):
            values[setting.field] = setting.parse(environ[setting.variable], given_as=setting.variable)
    return values


def build(options: type[StructT], values: Mapping[str, Any]) -> StructT:
    """`options` made of `values` (by field, inner structs' fields too) and defaults."""
    hints = get_type_hints(options)
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(options):
        hint = hints[field.name]
        if field.name in values:
            fields[field.name] = values[field.name]
        elif isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            fields[field.name] = build(hint, values)
    return options(**fields)


def warn_of_unknown_variables(options: type[msgspec.Struct], environ: Mapping[str, str]) -> None:
    """Logs a warning for each LUCEBOX_ variable that nothing reads: most are misspelt."""
    known = [setting.variable for setting in settings(options)] + list(OTHER_VARIABLES)
    for name in sorted(environ):
        if name.startswith(ENVIRONMENT_PREFIX) and name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            _log.warning("the environment variable %s means nothing to Lucebox%s", name, hint)


def markdown_table(options: type[msgspec.Struct]) -> str:
    """The README's table of flags."""
    lines = ["| Flag | Environment | Default | Meaning |", "|---|---|---|---|"]
    for setting in settings(options):
        kind = setting.flag.kind
        allowed = f" ({', '.join(f'`{word}`' for word in kind.words)})" if isinstance(kind, Choice) else ""
        default = setting.default_text if setting.default in (None, (), "") else f"`{setting.default_text}`"
        meaning = setting.flag.help + allowed
        lines.append(f"| `{setting.option}` | `{setting.variable}` | {default} | {meaning} |")
    return "\n".join(lines) + "\n"


def variables_table() -> str:
    """The README's table of the other environment variables."""
    lines = ["| Environment | Meaning |", "|---|---|"]
    lines += [f"| `{name}` | {meaning} |" for name, meaning in OTHER_VARIABLES.items()]
    return "\n".join(lines) + "\n"
