"""Draft-length controllers, one per file: whether to guess, and how far."""

from __future__ import annotations

from lucebox.draft_length.base import DraftLengthController
from lucebox.plugins import Registry

__all__ = ["DraftLengthController", "create", "get", "names"]

_registry: Registry[DraftLengthController] = Registry(
    "lucebox.draft_length",
    "lucebox.draft_length",
    helpers=(
        "allocation",
        "base",
        "confidence",
        "costs",
        "forward_costs",
        "ledger",
        "lookup",
        "prices",
        "proposal_costs",
        "shape",
        "stepwise",
        "survival",
    ),
)
names = _registry.names
get = _registry.get


def create(spec: str) -> DraftLengthController:
    """The controller of `name:option=value,…`. Raises ConfigError."""
    return _registry.create(spec)
