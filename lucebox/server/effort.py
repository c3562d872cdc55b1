"""How hard a model is to think, as far as its chat template lets one say so."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from lucebox.server.errors import ApiError

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
EFFORT_VARIABLE = "reasoning_effort"
SWITCHES = ("enable_thinking", "thinking")
_LEVELS = {"none": "low", "minimal": "low", "xhigh": "high"}  # of the three that templates have


def effort_kwargs(
    effort: Effort | None, variables: Collection[str], *, reasons: bool, param: str = EFFORT_VARIABLE
) -> dict[str, Any]:
    """Variables of a chat template that has `variables`, for a model that may be one that `reasons`.

    Every level but none is the same to a template with a switch alone, and to one with neither. Raises
    ApiError naming `param` where a model cannot do as it is told.
    """
    if effort is None:
        return {}
    switch = next((name for name in SWITCHES if name in variables), None)
    kwargs: dict[str, Any] = {} if switch is None else {switch: effort != "none"}
    if EFFORT_VARIABLE in variables:
        kwargs[EFFORT_VARIABLE] = _LEVELS.get(effort, effort)
    if kwargs:
        return kwargs
    if effort == "none" and reasons:
        raise _unsupported(param, "this model's reasoning cannot be switched off")
    if effort != "none" and not reasons:
        raise _unsupported(param, "this model does no reasoning that could be told from its answer")
    return {}


def _unsupported(param: str, why: str) -> ApiError:
    return ApiError(f"Unsupported parameter: '{param}': {why}.", param=param, code="unsupported_parameter")
