"""Plug-ins found by file or entry point, and the options behind their names: `threshold:n=8,p_min=0.6`."""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import inspect
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from lucebox.errors import ConfigError

MAX_SPEC_LENGTH = 1000  # requests bring specs, and messages repeat them

Option = int | float | str
T = TypeVar("T")


@dataclass(frozen=True)
class Registry(Generic[T]):
    """The plug-ins of one package: each of its modules but `helpers` and those named `_…`, and each entry
    point of `entry_point_group`. A module exports its class as `attribute`; an entry point refers to the
    class itself.
    """

    package: str
    entry_point_group: str | None
    attribute: str = "Plugin"
    helpers: tuple[str, ...] = ("base",)

    def names(self) -> list[str]:
        """All names, sorted. Imports no plug-in."""
        return sorted({*self._modules, *self._entry_points})

    def get(self, name: str) -> type[T]:
        """The class called `name`. What goes wrong while it is imported is raised as it is.

        Raises ConfigError for an unknown name, and for one that two plug-ins claim.
        """
        modules, entry_points = self._modules, self._entry_points
        if name in modules and name in entry_points:
            raise ConfigError(
                f"{self._kind} {name!r} comes with Lucebox and with {_origin(entry_points[name])}",
                remedy="uninstall that package, or ask its authors to rename the plug-in",
            )
        if name in entry_points:
            loaded: type[T] = entry_points[name].load()
            return loaded
        if name in modules:
            module = importlib.import_module(f"{self.package}.{name}")
            plugin: type[T] | None = getattr(module, self.attribute, None)
            assert plugin is not None, f"{module.__name__} exports no {self.attribute}"
            return plugin
        raise ConfigError(f"Unknown {self._kind} {name!r}", remedy=did_you_mean(name, self.names()))

    def create(self, spec: str, *arguments: Any) -> T:
        """`get(name)(*arguments, **options)` of a spec such as `name:key=value`.

        Options are the class's keyword-only parameters. Raises ConfigError for one that is unknown or
        mistyped.
        """
        plugin, options = self._plugin(spec)
        return plugin(*arguments, **options)

    def check(self, spec: str) -> None:
        """Raises ConfigError as `create` would, but for values that the class itself refuses."""
        self._plugin(spec)

    def _plugin(self, spec: str) -> tuple[type[T], dict[str, Option]]:
        name, options = parse_spec(spec)
        plugin = self.get(name)
        self._check_complete(name, plugin)
        return plugin, _checked(options, plugin, f"{self._kind} {name!r}")

    def _check_complete(self, name: str, plugin: type[T]) -> None:
        """Raises ConfigError for a class that lacks what a base of ours only declares: flags and methods."""
        if not isinstance(plugin, type):
            raise ConfigError(
                f"{self._kind} {name!r} is not a class but of type {type(plugin).__name__}",
                remedy="let its entry point refer to the class itself",
            )
        declared = {
            attribute
            for base in plugin.__mro__
            if base.__module__.startswith(f"{self.package}.") and base is not plugin
            for attribute, kind in vars(base).get("__annotations__", {}).items()
            if str(kind).startswith(("ClassVar", "typing.ClassVar")) and not hasattr(plugin, attribute)
        }
        lacking = sorted(declared | getattr(plugin, "__abstractmethods__", set()))
        if lacking:
            raise ConfigError(
                f"{self._kind} {name!r} is not complete: {plugin.__name__} lacks {', '.join(lacking)}",
                remedy=f"see help({self.package}) for what a plug-in must have",
            )

    @property
    def _kind(self) -> str:
        return self.package.rpartition(".")[2].replace("_", " ")

    @cached_property
    def _modules(self) -> set[str]:
        paths = importlib.import_module(self.package).__path__
        found = {module.name for module in pkgutil.iter_modules(paths)}
        return {name for name in found if not name.startswith("_") and name not in self.helpers}

    @cached_property
    def _entry_points(self) -> dict[str, importlib.metadata.EntryPoint]:
        if self.entry_point_group is None:
            return {}
        found: dict[str, importlib.metadata.EntryPoint] = {}
        for entry_point in importlib.metadata.entry_points(group=self.entry_point_group):
            other = found.setdefault(entry_point.name, entry_point)
            if other.value != entry_point.value:
                claims = f"{_origin(other)} and {_origin(entry_point)}"
                raise ConfigError(
                    f"{self._kind} {entry_point.name!r} comes with {claims}", remedy="uninstall one of them"
                )
        return found


def parse_spec(spec: str) -> tuple[str, dict[str, Option]]:
    """`"threshold:n=8,p_min=0.6"` as `("threshold", {"n": 8, "p_min": 0.6})`. Raises ConfigError."""
    check_length(spec)
    name, colon, rest = spec.partition(":")
    options: dict[str, Option] = {}
    for part in rest.split(",") if colon else ():
        key, equals, value = (text.strip() for text in part.partition("="))
        if not (key and equals and value):
            raise ConfigError(f"{spec!r}: {part!r} is no option", remedy="write name:key=value,key=value")
        if key in options:
            raise ConfigError(f"{spec!r}: option {key!r} is given twice")
        options[key] = _parse_value(value)
    if not name.strip():
        raise ConfigError(f"{spec!r} has no name", remedy="write name:key=value,key=value")
    return name.strip(), options


def check_length(spec: str) -> None:
    """Raises ConfigError for a text that is too long to be a spec."""
    if len(spec) > MAX_SPEC_LENGTH:
        raise ConfigError(f"{spec[:20]!r}… has {len(spec)} characters, more than {MAX_SPEC_LENGTH}")


def did_you_mean(name: str, names: list[str]) -> str:
    """A remedy: the names most like `name`, and all that there are."""
    close = difflib.get_close_matches(name, names, n=3)
    guess = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{guess}There are: {', '.join(names) or 'none'}"


def _parse_value(text: str) -> Option:
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def _checked(options: Mapping[str, Option], plugin: type[Any], owner: str) -> dict[str, Option]:
    """`options` as the types that the plug-in declares."""
    parameters = {
        p.name: p.annotation
        for p in inspect.signature(plugin, eval_str=True).parameters.values()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    }
    checked: dict[str, Option] = {}
    for key, value in options.items():
        if key not in parameters:
            raise ConfigError(f"{owner} has no option {key!r}", remedy=did_you_mean(key, sorted(parameters)))
        wanted = parameters[key]
        if wanted is float and isinstance(value, int):
            value = float(str(value))  # infinity for what is too large, as of 1e400
        if wanted is str:
            value = str(value)
        if wanted in (int, float) and not isinstance(value, wanted):
            raise ConfigError(f"{owner}: {key} must be of type {wanted.__name__}, not {value!r}")
        checked[key] = value
    return checked


def _origin(entry_point: importlib.metadata.EntryPoint) -> str:
    return f"package {entry_point.dist.name}" if entry_point.dist else entry_point.value
