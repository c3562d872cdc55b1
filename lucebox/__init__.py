"""Lucebox: faster local models by exact speculation."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lucebox.api import Chunk, Completion, Engine
    from lucebox.grammar import Grammar
    from lucebox.sampling.params import SamplingParams, SpeculativeParams

__all__ = ["Chunk", "Completion", "Engine", "Grammar", "SamplingParams", "SpeculativeParams", "__version__"]

try:
    __version__ = version("lucebox")
except PackageNotFoundError:  # run from a checkout
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    """Loads the public names when they are first used: a command that needs no engine starts at once."""
    if name in ("Chunk", "Completion", "Engine"):
        return getattr(import_module("lucebox.api"), name)
    if name in ("SamplingParams", "SpeculativeParams"):
        return getattr(import_module("lucebox.sampling.params"), name)
    if name == "Grammar":
        return import_module("lucebox.grammar").Grammar
    raise AttributeError(f"module 'lucebox' has no attribute {name!r}")
