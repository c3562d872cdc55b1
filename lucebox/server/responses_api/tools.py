"""The tools of a request, and which of them must be called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from lucebox.server.decode import by_type
from lucebox.server.errors import invalid
from lucebox.server.tool_checks import check_allowed, check_callable, check_known, checked_tools
from lucebox.server.tools import tool_of
from lucebox.text.tools import Tool

MODES = ("none", "auto", "required")


class FunctionTool(msgspec.Struct, tag_field="type", tag="function", forbid_unknown_fields=True):
    """A function of the client's own. The tools that OpenAI's servers run are not here."""

    name: str
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None
    output_schema: Any = None  # for code that calls tools, of which there is none here
    allowed_callers: list[Literal["direct"]] | None = None
    defer_loading: Literal[False] | None = None


class FunctionChoice(msgspec.Struct, tag_field="type", tag="function", forbid_unknown_fields=True):
    name: str


class AllowedTools(msgspec.Struct, tag_field="type", tag="allowed_tools", forbid_unknown_fields=True):
    """Some of the tools, so that a prompt with all of them stays the same."""

    mode: Literal["auto", "required"]
    tools: list[Any]


_CHOICES: Mapping[str, type[FunctionChoice | AllowedTools]] = {
    "function": FunctionChoice,
    "allowed_tools": AllowedTools,
}


def tools_of(given: Sequence[Any] | None) -> tuple[Tool, ...]:
    """Raises ApiError naming what is wrong with one of them."""
    return checked_tools(given, _tool)


def choice_of(
    given: str | dict[str, Any] | None, tools: Sequence[Tool]
) -> tuple[str, tuple[str, ...] | None]:
    """A mode or the name of the tool that must be called, and the names that may be (None: all).

    Raises ApiError for a choice that `tools` do not allow.
    """
    if given is None:
        return ("auto" if tools else "none"), None
    if isinstance(given, str):
        if given not in MODES:
            problem = f"'tool_choice' is {given[:100]!r}; supported are {', '.join(MODES)} and objects."
            raise invalid("tool_choice", problem)
        if given == "required":
            check_callable(tools, given)
        return given, None
    choice = by_type(given, _CHOICES, "tool_choice")
    if isinstance(choice, FunctionChoice):
        check_known(choice.name, tools, "tool_choice.name")
        return choice.name, None
    names = []
    for i, value in enumerate(choice.tools):
        at = f"tool_choice.tools[{i}]"
        names.append(by_type(value, {"function": FunctionChoice}, at).name)
        check_known(names[-1], tools, f"{at}.name")
    check_allowed(names, "tool_choice.tools")
    return choice.mode, tuple(names)


def _tool(value: Any, at: str) -> Tool:
    given = by_type(value, {"function": FunctionTool}, at)
    return tool_of(given.name, given.description, given.parameters, strict=bool(given.strict), path=at)
