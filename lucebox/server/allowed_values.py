"""Which values a field of a request may have, where it has a few."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import inspect


def allowed_values(struct: type[msgspec.Struct], path: str) -> list[str]:
    """Of what stands at `path` (as `tools[0].type`) in a body: its literals, or the tags of its structs; none
    for what takes any value, or is no part of it."""
    kinds = [inspect.type_info(struct)]
    names = re.sub(r"\[[^\]]*\]", ".[]", path).split(".")
    for i, name in enumerate(names):
        if i == len(names) - 1:
            tags = [str(k.tag) for k in kinds if isinstance(k, inspect.StructType) and k.tag_field == name]
            if tags:
                return list(dict.fromkeys(tags))
        kinds = [member for kind in kinds for inner in _inside(kind, name) for member in _members(inner)]
    literals = [kind for kind in kinds if isinstance(kind, inspect.LiteralType)]
    return list(dict.fromkeys(str(value) for kind in literals for value in kind.values))


def _inside(kind: inspect.Type, name: str) -> Iterator[inspect.Type]:
    """The types of what `kind` calls `name`; "[]" is an element."""
    match kind:
        case inspect.StructType(fields=fields):
            yield from (field.type for field in fields if field.encode_name == name)
        case inspect.ListType(item_type=item) if name == "[]":
            yield item
        case inspect.DictType(value_type=value) if name == "[]":
            yield value


def _members(kind: Any) -> list[inspect.Type]:
    """What a value may be of: unions and notes taken apart."""
    match kind:
        case inspect.Metadata(type=inner):
            return _members(inner)
        case inspect.UnionType(types=types):
            return [member for inner in types for member in _members(inner)]
        case _:
            return [kind]
