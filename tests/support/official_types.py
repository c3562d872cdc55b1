"""Answers read by the types of the official clients, more strictly than the clients do it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import httpx
from pydantic import BaseModel, TypeAdapter


def named_events(response: httpx.Response) -> list[dict[str, Any]]:
    """The data of a stream of named events, each named by its own `type`."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    out = []
    for block in response.text.split("\n\n"):
        if not block or block.startswith(":"):
            continue
        name, data = block.split("\n")
        out.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {out[-1]['type']}"
    return out


def parsed(kind: Any, data: Any) -> Any:
    """`data` as the SDK's type `kind`, nothing coerced."""
    return _adapter(kind).validate_json(json.dumps(data), strict=True)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def unknown_fields(value: Any) -> set[str]:
    """The names of all fields in a parsed object that its types do not have."""
    return set(_unknown(value))


def _unknown(value: Any) -> Iterator[str]:
    match value:
        case BaseModel():
            yield from value.model_extra or ()
            for name in type(value).model_fields:
                yield from _unknown(getattr(value, name))
        case list():
            for item in value:
                yield from _unknown(item)
        case dict():
            for item in value.values():
                yield from _unknown(item)
