"""What requests say of tools, and what that comes to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from lucebox.server.errors import ApiError, invalid
from lucebox.server.tool_checks import check_allowed, check_callable, check_known, checked_tools
from lucebox.text.tools import MAX_NESTING, Tool, nests_deeper_than

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}", re.ASCII)

ToolMode = Literal["none", "auto", "required"]


class FunctionDefinition(msgspec.Struct, forbid_unknown_fields=True):
    """`strict`: a schema that cannot be enforced to the letter is refused."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class FunctionTool(msgspec.Struct, tag_field="type", tag="function", forbid_unknown_fields=True):
    function: FunctionDefinition


class CustomTool(msgspec.Struct, tag_field="type", tag="custom"):
    """Documented by OpenAI, and refused: its input is no JSON."""

    custom: Any = None


class FunctionName(msgspec.Struct, forbid_unknown_fields=True):
    name: str


class NamedFunction(msgspec.Struct, tag_field="type", tag="function", forbid_unknown_fields=True):
    function: FunctionName


class AllowedTools(msgspec.Struct, forbid_unknown_fields=True):
    mode: Literal["auto", "required"]
    tools: list[NamedFunction]


class AllowedToolsChoice(msgspec.Struct, tag_field="type", tag="allowed_tools", forbid_unknown_fields=True):
    """Some of the tools, so that a prompt with all of them stays the same."""

    allowed_tools: AllowedTools


ToolDefinition = FunctionTool | CustomTool
ToolChoice = ToolMode | NamedFunction | AllowedToolsChoice


def tools_of(definitions: Sequence[ToolDefinition] | None) -> tuple[Tool, ...]:
    """Raises ApiError naming the tool that is wrong."""
    return checked_tools(definitions, _tool)


def _tool(definition: ToolDefinition, path: str) -> Tool:
    if isinstance(definition, CustomTool):
        raise ApiError(
            f"'{path}' is of type 'custom', which this server does not have; use 'function'.",
            param=f"{path}.type",
            code="unsupported_parameter",
        )
    function = definition.function
    return tool_of(
        function.name,
        function.description,
        function.parameters,
        strict=bool(function.strict),
        path=f"{path}.function",
    )


def tool_of(
    name: str,
    description: str | None,
    parameters: dict[str, Any] | None,
    *,
    strict: bool,
    path: str,
    schema_field: str = "parameters",
) -> Tool:
    """One tool, defined at `path` of the request. Raises ApiError naming what is wrong with it."""
    if not _NAME.fullmatch(name):
        raise invalid(
            f"{path}.name",
            f"Invalid '{path}.name': {name[:140]!r} is not 1 to 128 letters, digits, '_' and '-'.",
        )
    field = f"{path}.{schema_field}"
    schema = dict(parameters or {})
    if nests_deeper_than(schema, MAX_NESTING):
        raise invalid(field, f"Invalid '{field}': it may nest at most {MAX_NESTING} levels deep.")
    if schema.setdefault("type", "object") != "object":
        raise invalid(field, f"Invalid '{field}': its 'type' must be 'object', not {schema['type']!r:.80}.")
    if not isinstance(schema.setdefault("properties", {}), dict):
        raise invalid(field, f"Invalid '{field}': its 'properties' must be an object.")
    return Tool(name, description or "", schema, strict, field)


def choice_of(choice: ToolChoice | None, tools: Sequence[Tool]) -> tuple[str, tuple[str, ...] | None]:
    """A mode or the name of a tool that must be called, and the names that may be (None: all).

    Raises ApiError for a choice that `tools` do not allow.
    """
    if choice is None:
        return ("auto" if tools else "none"), None
    if isinstance(choice, str):
        if choice == "required":
            check_callable(tools, choice)
        return choice, None
    if isinstance(choice, NamedFunction):
        check_known(choice.function.name, tools, "tool_choice.function.name")
        return choice.function.name, None
    allowed = choice.allowed_tools
    at = "tool_choice.allowed_tools.tools"
    names = tuple(tool.function.name for tool in allowed.tools)
    check_allowed(names, at)
    for i, name in enumerate(names):
        check_known(name, tools, f"{at}[{i}].function.name")
    return allowed.mode, names
