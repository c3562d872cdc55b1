"""Names are promises: what packages export is what is documented, and plug-in packages look alike."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

import lucebox
from lucebox.errors import LuceboxError
from tests.support.readme import README

PLUGINS = {
    "acceptance": "AcceptanceStrategy",
    "drafters": "Drafter",
    "draft_length": "DraftLengthController",
    "models": "Architecture",
}
FIRST = {
    "acceptance": ["block", "fuzzy", "greedy", "gumbel", "lenient", "match", "mentored", "token", "typical"],
    "drafters": ["model", "ngram", "prediction", "recycle", "suffix"],
    "draft_length": ["fixed", "threshold"],
    "models": ["llama", "qwen2"],
}


def test_the_packages_names() -> None:
    assert set(lucebox.__all__) == {
        "Chunk",
        "Completion",
        "Engine",
        "Grammar",
        "SamplingParams",
        "SpeculativeParams",
        "__version__",
    }
    text = README.read_text(encoding="utf-8")
    for name in lucebox.__all__:
        assert getattr(lucebox, name) is not None
        assert name == "__version__" or name in text
    with pytest.raises(AttributeError, match="Engin"):
        lucebox.Engin  # noqa: B018


@pytest.mark.parametrize(("package", "base"), PLUGINS.items())
def test_plug_in_packages_look_alike(package: str, base: str) -> None:
    module = import_module(f"lucebox.{package}")
    exported = {"names", "get", base} | ({"create"} if package != "models" else set())
    assert exported <= set(module.__all__)
    assert base in README.read_text(encoding="utf-8")
    assert set(FIRST[package]) <= set(module.names())
    for name in module.names():
        plugin = module.get(name)
        assert issubclass(plugin, getattr(module, base))
        assert not inspect.isabstract(plugin)
        assert plugin.__doc__
    with pytest.raises(LuceboxError):
        module.get("no such thing")


def test_every_exported_name_exists_and_has_a_docstring() -> None:
    for package in (*PLUGINS, "gguf", "hub", "cli", "server"):
        module = import_module(f"lucebox.{package}")
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isclass(thing) or inspect.isfunction(thing):
                assert inspect.getdoc(thing), f"lucebox.{package}.{name} has no docstring"
