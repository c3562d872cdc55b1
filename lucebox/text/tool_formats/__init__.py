"""Formats of tool calls, one per file: found by what a model's chat template says."""

from __future__ import annotations

from lucebox.plugins import Registry
from lucebox.text.tool_formats.base import ToolFormat, Wanted

__all__ = ["ToolFormat", "Wanted", "detect", "get", "names"]

FALLBACK = "generic"

_registry: Registry[ToolFormat] = Registry(
    "lucebox.text.tool_formats", None, helpers=("base", "parsing", "python_values")
)
names = _registry.names


def get(name: str) -> ToolFormat:
    """The format called `name`. Raises ConfigError."""
    return _registry.create(name)


def detect(template: str | None) -> ToolFormat:
    """The format that goes with a chat template's source; the generic one where none is known to."""
    for name in names():
        if template is not None and name != FALLBACK and _registry.get(name).detect(template):
            return get(name)
    return get(FALLBACK)
