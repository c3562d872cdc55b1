"""Tools that a model may call, as far as text is concerned: what templates, parsers and grammars need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

MAX_NESTING = 64  # of schemas and arguments: what works on them recurses
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class Tool:
    """A function: `parameters` is the JSON schema of its arguments, always that of an object.

    `strict`: the caller relies on the schema being kept to the letter. `path` is where in the request the
    schema stands, for messages.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: dict(ANY_OBJECT))
    strict: bool = False
    path: str = "tools"

    def for_template(self) -> dict[str, Any]:
        """As chat templates expect tools: OpenAI's form."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


def nests_deeper_than(value: Any, depth: int) -> bool:
    """Whether objects and arrays of a JSON value lie in one another more than `depth` times."""
    level = [value]
    for _ in range(depth):
        level = [
            item
            for outer in level
            if isinstance(outer, Mapping | list)
            for item in (outer.values() if isinstance(outer, Mapping) else outer)
        ]
    return any(isinstance(item, Mapping | list) for item in level)


def new_call_id() -> str:
    return f"call_{uuid4().hex[:24]}"
