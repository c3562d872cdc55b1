"""The tools of a request, and which of them must be called."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from lucebox.server.decode import by_type
from lucebox.server.messages_api.blocks import Inert
from lucebox.server.tool_checks import check_callable, check_known, checked_tools
from lucebox.server.tools import tool_of
from lucebox.text.tools import Tool


class CustomTool(msgspec.Struct, tag_field="type", tag="custom", forbid_unknown_fields=True):
    """A tool of the client's own. What Anthropic's servers run or its models know by heart is not here."""

    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None
    input_examples: list[Any] | None = None
    allowed_callers: list[Literal["direct"]] | None = None
    defer_loading: Literal[False] | None = None
    eager_input_streaming: Inert = None  # input is always streamed as it comes
    cache_control: Inert = None


class AutoChoice(msgspec.Struct, tag_field="type", tag="auto", forbid_unknown_fields=True):
    disable_parallel_tool_use: bool | None = None


class AnyChoice(msgspec.Struct, tag_field="type", tag="any", forbid_unknown_fields=True):
    disable_parallel_tool_use: bool | None = None


class NamedChoice(msgspec.Struct, tag_field="type", tag="tool", forbid_unknown_fields=True):
    name: str
    disable_parallel_tool_use: bool | None = None


class NoChoice(msgspec.Struct, tag_field="type", tag="none", forbid_unknown_fields=True):
    disable_parallel_tool_use: bool | None = None


Choice = AutoChoice | AnyChoice | NamedChoice | NoChoice
_CHOICES: Mapping[str, type[Choice]] = {
    "auto": AutoChoice,
    "any": AnyChoice,
    "tool": NamedChoice,
    "none": NoChoice,
}


def tools_of(given: Sequence[Any] | None) -> tuple[Tool, ...]:
    """Raises ApiError naming what is wrong with one of them."""
    return checked_tools(given, _tool)


def choice_of(given: Any, tools: Sequence[Tool]) -> tuple[str, bool]:
    """A mode or the name of the tool to be called, and whether several calls are allowed. Raises ApiError."""
    if given is None:
        return ("auto" if tools else "none"), True
    choice = by_type(given, _CHOICES, "tool_choice")
    parallel = not choice.disable_parallel_tool_use
    match choice:
        case NamedChoice(name):
            check_known(name, tools, "tool_choice.name")
            return name, parallel
        case AnyChoice():
            check_callable(tools, "any")
            return "required", parallel
        case AutoChoice() if tools:
            return "auto", parallel
    return "none", parallel


def _tool(value: Any, at: str) -> Tool:
    given = by_type(value, {"custom": CustomTool}, at, "custom")
    description = given.description or ""
    if given.input_examples:
        description += f"\nExamples of input: {json.dumps(given.input_examples, ensure_ascii=False)}"
    return tool_of(
        given.name,
        description,
        given.input_schema,
        strict=bool(given.strict),
        path=at,
        schema_field="input_schema",
    )
