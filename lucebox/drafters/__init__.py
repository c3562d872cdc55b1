"""Drafters, one per file: who guesses what comes next."""

from __future__ import annotations

from typing import Any

from lucebox.drafters.base import Drafter
from lucebox.plugins import Registry

__all__ = ["Drafter", "create", "get", "names"]

_registry: Registry[Drafter] = Registry("lucebox.drafters", "lucebox.drafters")
names = _registry.names
get = _registry.get


def create(spec: str, *arguments: Any) -> Drafter:
    """The drafter of `name:option=value,…`; `model` takes (Runtime, n_vocab). Raises ConfigError."""
    return _registry.create(spec, *arguments)
