"""Drafters, one per file: who guesses what comes next."""

from __future__ import annotations

from lucebox.drafters.base import Drafter, DrafterContext
from lucebox.plugins import Registry

__all__ = ["Drafter", "DrafterContext", "create", "get", "names"]

_registry: Registry[Drafter] = Registry(
    "lucebox.drafters", "lucebox.drafters", helpers=("base", "combination")
)
names = _registry.names
get = _registry.get


def create(spec: str, context: DrafterContext) -> Drafter:
    """The drafter of `name:option=value,…`. Raises ConfigError."""
    return _registry.create(spec, context)
