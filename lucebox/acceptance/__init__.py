"""Acceptance strategies, one per file: what of a draft stands, so that the text follows the target's law."""

from __future__ import annotations

from lucebox.acceptance.base import AcceptanceStrategy
from lucebox.plugins import Registry
from lucebox.sampling.params import SamplingParams

__all__ = ["AcceptanceStrategy", "create", "default", "get", "names"]

_registry: Registry[AcceptanceStrategy] = Registry(
    "lucebox.acceptance",
    "lucebox.acceptance",
    helpers=("base", "kernels", "reference", "tree", "tree_reference"),
)
names = _registry.names
get = _registry.get


def create(spec: str) -> AcceptanceStrategy:
    """The strategy of `name:option=value,…`. Raises ConfigError."""
    return _registry.create(spec)


def default(params: SamplingParams) -> str:
    """The name of the strategy for a request that asks for none."""
    if params.greedy:
        return "greedy"
    return "block" if params.seed is None else "match"
