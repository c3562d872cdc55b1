"""The registry of plug-ins: by file, by entry point, with options."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lucebox.errors import ConfigError
from lucebox.plugins import Registry, parse_spec

PLUGIN = """
class {name}:
    def __init__(self, *arguments, n: int = 4, rate: float = 0.5, text: str = "a"):
        self.arguments, self.options = arguments, (n, rate, text)
Plugin = {name}
"""


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[Any]]:
    package = tmp_path / "zoo_of_plugins"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "base.py").write_text("raise RuntimeError('a helper is no plug-in')")
    (package / "_private.py").write_text("raise RuntimeError('nor is this')")
    (package / "lion.py").write_text(PLUGIN.format(name="Lion"))
    (package / "tiger.py").write_text(PLUGIN.format(name="Tiger"))
    (package / "broken.py").write_text("import no_such_dependency")
    (package / "empty.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield Registry("zoo_of_plugins", "lucebox.zoo")
    for module in [name for name in sys.modules if name.startswith("zoo_of_plugins")]:
        del sys.modules[module]


@dataclass
class FakeEntryPoint:
    name: str
    value: str
    loaded: type
    dist: None = None

    def load(self) -> type:
        return self.loaded


def install(monkeypatch: pytest.MonkeyPatch, *entry_points: FakeEntryPoint) -> None:
    def find(*, group: str) -> list[FakeEntryPoint]:
        return list(entry_points) if group == "lucebox.zoo" else []

    monkeypatch.setattr(importlib.metadata, "entry_points", find)


class Panther:
    pass


def test_names_come_from_files_and_import_none_of_them(registry: Registry[Any]) -> None:
    assert registry.names() == ["broken", "empty", "lion", "tiger"]
    assert "zoo_of_plugins.lion" not in sys.modules
    assert registry.get("lion").__name__ == "Lion"


def test_a_plugin_s_own_broken_import_surfaces(registry: Registry[Any]) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        registry.get("broken")
    with pytest.raises(AssertionError, match="exports no Plugin"):
        registry.get("empty")


@pytest.mark.parametrize(("name", "guess"), [("tigre", "did you mean tiger"), ("base", "There are: broken")])
def test_unknown_names(registry: Registry[Any], name: str, guess: str) -> None:
    with pytest.raises(ConfigError, match=guess):
        registry.get(name)


def test_entry_points(registry: Registry[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeEntryPoint("panther", "cats:Panther", Panther))
    assert registry.names() == ["broken", "empty", "lion", "panther", "tiger"]
    assert registry.get("panther") is Panther
    assert "panther" not in Registry[Any]("zoo_of_plugins", None).names()


def test_two_plugins_of_one_name_are_refused(
    registry: Registry[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, FakeEntryPoint("lion", "cats:Panther", Panther))
    with pytest.raises(ConfigError, match="comes with Lucebox and with cats:Panther"):
        registry.get("lion")


def test_two_packages_of_one_name_are_refused(
    registry: Registry[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, FakeEntryPoint("panther", "a:B", Panther), FakeEntryPoint("panther", "c:D", Panther))
    with pytest.raises(ConfigError, match="a:B and c:D"):
        registry.get("panther")


def test_create_passes_arguments_and_typed_options(registry: Registry[Any]) -> None:
    lion = registry.create("lion:n=7, rate=1, text=3", "argument")
    assert lion.arguments == ("argument",)
    assert lion.options == (7, 1.0, "3")
    assert isinstance(lion.options[1], float)
    assert registry.create("lion").options == (4, 0.5, "a")
    assert registry.create("lion:rate=" + "9" * 400).options == (4, float("inf"), "a")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("lion:m=1", "zoo of plugins 'lion' has no option 'm'"),
        ("lion:rat=1", "did you mean rate"),
        ("lion:n=1.5", "n must be of type int, not 1.5"),
        ("lion:rate=fast", "rate must be of type float, not 'fast'"),
        ("lion:n=" + "9" * 5000, "5007 characters, more than 1000"),
        ("l" * 10_000, "10000 characters"),
    ],
)
def test_bad_options(registry: Registry[Any], spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        registry.create(spec)


def test_specs() -> None:
    assert parse_spec("fixed") == ("fixed", {})
    assert parse_spec("threshold:n=8,p_min=6e-1,mode=x") == ("threshold", {"n": 8, "p_min": 0.6, "mode": "x"})
    for spec in ("", ":n=1", "fixed:", "fixed:n", "fixed:n=", "fixed:=1", "fixed:n=1,,m=2", "fixed:n=1,n=2"):
        with pytest.raises(ConfigError):
            parse_spec(spec)


@pytest.mark.parametrize("package", ["acceptance", "draft_length", "drafters", "models"])
def test_every_file_of_the_product_s_packages_is_a_plugin(package: str) -> None:
    module = importlib.import_module(f"lucebox.{package}")
    assert module.names()
    assert all(isinstance(module.get(name), type) for name in module.names())


class Animal(ABC):
    """A contract: a flag, one with a default, and a method."""

    __module__ = "zoo_of_plugins.base"
    legs: ClassVar[int]
    tail: ClassVar[bool] = True

    @abstractmethod
    def speak(self) -> str: ...


class Mute(Animal):
    pass


class Legless(Animal):
    def speak(self) -> str:
        return "hiss"


class Cat(Legless):
    legs = 4
    lives: ClassVar[int]  # its own affair


def test_a_class_that_lacks_what_its_base_declares_is_refused_by_name(
    registry: Registry[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, *(FakeEntryPoint(k.__name__, f"x:{k.__name__}", k) for k in (Mute, Legless, Cat)))
    for name, lacking in (("Mute", "Mute lacks legs, speak"), ("Legless", "Legless lacks legs")):
        for ask in (registry.create, registry.check):
            with pytest.raises(ConfigError, match=f"{name}' is not complete: {lacking} [(]") as caught:
                ask(name)
            assert "help(zoo_of_plugins)" in str(caught.value)
    assert registry.create("Cat").speak() == "hiss"


def test_what_is_no_class_is_refused(registry: Registry[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeEntryPoint("maker", "x:maker", lambda: Cat()))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'maker' is not a class but of type function"):
        registry.check("maker")
