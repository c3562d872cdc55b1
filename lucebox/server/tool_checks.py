"""What must hold of the tools of a request, whichever API they come by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from lucebox.server.errors import invalid
from lucebox.text.tools import Tool

MAX_TOOLS = 128
MAX_NAMES = 8  # that an error lists

GivenT = TypeVar("GivenT")


def checked_tools(given: Sequence[GivenT] | None, make: Callable[[GivenT, str], Tool]) -> tuple[Tool, ...]:
    """The tools that `make` makes of each of `given` and its place in the request.

    Raises ApiError for too many, and naming one that is called as another one is, or what `make` does.
    """
    given = given or ()
    if len(given) > MAX_TOOLS:
        raise invalid("tools", f"'tools' has {len(given)} entries, and at most {MAX_TOOLS} are allowed.")
    tools = tuple(make(value, f"tools[{i}]") for i, value in enumerate(given))
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            at = f"{tool.path.rpartition('.')[0]}.name"
            problem = f"two tools are named {tool.name!r}; give each a name of its own."
            raise invalid(at, f"Invalid '{at}': {problem}")
        seen.add(tool.name)
    return tools


def check_known(name: str, tools: Sequence[Tool], at: str) -> None:
    """Raises ApiError if the request, which names a tool at `at`, has no such tool."""
    if any(tool.name == name for tool in tools):
        return
    problem = f"Invalid '{at}': {name[:140]!r} is none of the tools of this request"
    if not tools:
        raise invalid(at, f"{problem}, which has none; send 'tools'.")
    names = [repr(tool.name) for tool in tools[:MAX_NAMES]] + ["…"] * (len(tools) > MAX_NAMES)
    raise invalid(at, f"{problem}; its tools are {', '.join(names)}.")


def check_callable(tools: Sequence[Tool], mode: str) -> None:
    """Raises ApiError if `mode`, as the request has it, demands a call, and there is nothing to call."""
    if not tools:
        raise invalid("tool_choice", f"'tool_choice' is '{mode}', and there are no tools; send 'tools'.")


def check_allowed(names: Sequence[str], at: str) -> None:
    """Raises ApiError if the list at `at` of those that may be called, `names`, is empty."""
    if not names:
        raise invalid(at, f"'{at}' is empty; name one of 'tools', or send 'none' as 'tool_choice'.")
