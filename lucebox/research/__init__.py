"""Speculation as an object of study: traces and their replay, exact enumeration, cost models, plots."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lucebox.research.kept_law import KeptLaw, Truncation
from lucebox.research.records import RecordedRequest, RecordedRound, TraceHeader
from lucebox.research.traces import Trace

if TYPE_CHECKING:
    from lucebox.research.recorder import record

__all__ = ["KeptLaw", "RecordedRequest", "RecordedRound", "Trace", "TraceHeader", "Truncation", "record"]


def __getattr__(name: str) -> Any:
    """Loads what needs an engine when it is first used."""
    if name == "record":
        return import_module("lucebox.research.recorder").record
    raise AttributeError(f"module 'lucebox.research' has no attribute {name!r}")
