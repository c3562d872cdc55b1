"""JSON schemas as grammars of Python literals, for models that write calls in Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lucebox.text.lark import json_value, literal

_TERMINALS = r"""PY_STRING: /"([^"\\\n]|\\["\\nt])*"/
PY_NUMBER: /-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][-+]?[0-9]{1,3})?/
py_any: PY_STRING | PY_NUMBER | "True" | "False" | "None" | py_list | py_dict
py_list: "[" (py_any (", " py_any)*)? "]"
py_dict: "{" (PY_STRING ": " py_any (", " PY_STRING ": " py_any)*)? "}"
"""
_TEXT_BOUNDS = ("minLength", "maxLength", "pattern", "format")
_BOUNDS = (*_TEXT_BOUNDS, "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")


class PythonValues:
    """Collects rules for values. Types, enumerations, items, properties, bounds and local references are kept
    to; keywords that say what a value is not, are not."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._rules: list[str] = []
        self._named: dict[str, str] = {}
        self._root: Mapping[str, Any] = {}

    def rules(self) -> str:
        return "".join(self._rules)

    def arguments(self, schema: Mapping[str, Any]) -> str:
        """The rule for keyword arguments of a function that takes `schema`."""
        self._root = schema
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            return self._rule('""')
        return self._members(schema, lambda name: literal(f"{name}="))

    def _members(self, schema: Mapping[str, Any], head: Any) -> str:
        """A rule for members in the schema's order, those not required perhaps left out, commas between."""
        properties: Mapping[str, Any] = schema["properties"]
        required = schema.get("required")
        required = required if isinstance(required, list) else []
        first = following = self._rule('""')
        for name in reversed(list(properties)):
            member = f"{head(name)} {self._value(properties[name])}"
            skip = "" if name in required else " | {}"
            after = self._rule(f'", " {member} {following}' + skip.format(following))
            first = self._rule(f"{member} {following}" + skip.format(first))
            following = after
        return first

    def _value(self, schema: Any) -> str:
        """An expression in parentheses."""
        if not isinstance(schema, Mapping):
            return "py_any"
        if isinstance(reference := schema.get("$ref"), str):
            return self._reference(reference)
        if "const" in schema:
            return literal(_python(schema["const"]))
        if isinstance(values := schema.get("enum"), list) and values:
            return "(" + " | ".join(literal(_python(value)) for value in values) + ")"
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(choices := schema.get(key), list) and choices:
                return "(" + " | ".join(self._value(choice) for choice in choices) + ")"
        kinds = schema.get("type")
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if not isinstance(kinds, list) or not all(kind in _TYPES for kind in kinds) or not kinds:
            return "py_any"
        return "(" + " | ".join(self._of_type(kind, schema) for kind in kinds) + ")"

    def _of_type(self, kind: str, schema: Mapping[str, Any]) -> str:
        match kind:
            case "array":
                return self._array(schema)
            case "object":
                if isinstance(schema.get("properties"), Mapping) and schema["properties"]:
                    members = self._members(schema, lambda name: literal(json.dumps(name) + ": "))
                    return f'"{{" {members} "}}"'
                return "py_dict"
            case "boolean":
                return '"True" | "False"'
            case "null":
                return '"None"'
            case "string" if not any(key in schema for key in _TEXT_BOUNDS):
                return "PY_STRING"
            case _:  # numbers, and texts but for rare escapes, are the same in JSON
                bounds = {key: value for key, value in schema.items() if key in _BOUNDS}
                return self._rule(json_value({"type": kind, **bounds}))

    def _array(self, schema: Mapping[str, Any]) -> str:
        item = self._value(schema.get("items"))
        low, high = schema.get("minItems", 0), schema.get("maxItems")
        low = low if isinstance(low, int) else 0
        if high == 0:
            return '"[" "]"'
        bounds = f"{{{max(low - 1, 0)},{high - 1 if isinstance(high, int) else ''}}}"
        items = f'{item} (", " {item}){bounds}'
        return f'"[" {items} "]"' if low > 0 else f'"[" ({items})? "]"'

    def _reference(self, reference: str) -> str:
        """The rule for what a local reference refers to; any value for others."""
        if reference in self._named:
            return self._named[reference]
        target: Any = self._root
        for part in reference.removeprefix("#").strip("/").split("/"):
            target = target.get(part) if isinstance(target, Mapping) else None
        if not reference.startswith("#/") or target is None:
            return "py_any"
        name = self._named[reference] = f"{self._prefix}_ref{len(self._named)}"
        self._rules.append(f"{name}: {self._value(target)}\n")
        return name

    def _rule(self, body: str) -> str:
        name = f"{self._prefix}_{len(self._rules)}"
        self._rules.append(f"{name}: {body}\n")
        return name


def terminals() -> str:
    """What all rules rest on; once in a grammar."""
    return _TERMINALS


def _python(value: Any) -> str:
    """As a Python literal, strings in double quotes."""
    match value:
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return "[" + ", ".join(map(_python, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{_python(key)}: {_python(item)}" for key, item in value.items()) + "}"
        case _:
            return repr(value)
