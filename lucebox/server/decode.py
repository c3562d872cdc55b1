"""From a request's body to a struct, or to a 400 that names the field."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec
from starlette.requests import Request

from lucebox.server.allowed_values import allowed_values
from lucebox.server.errors import ApiError, ClientGoneError
from lucebox.server.field_hints import HINTS
from lucebox.server.messages import PART_TYPES
from lucebox.server.unsupported_types import unsupported_type

StructT = TypeVar("StructT", bound=msgspec.Struct)

_AT = re.compile(r"(?P<problem>.*?)(?: - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`)?", re.DOTALL)
_TYPES = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "a boolean",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_LIMITS = {">=": "at least", "<=": "at most", ">": "over", "<": "under"}
_JSON_TYPES = {str: "str", int: "int", float: "float", bool: "bool", list: "array", dict: "object"}


async def read(request: Request, struct: type[StructT]) -> StructT:
    """The body of `request`, whose size the application limits, as `struct`.

    Raises ApiError naming the field that is wrong, ClientGoneError if the body never comes.
    """
    return decode(await _read_body(request), struct)


def decode(body: bytes, struct: type[StructT]) -> StructT:
    """`body` as `struct`. Raises ApiError naming the field that is wrong."""
    try:
        return msgspec.json.decode(body, type=struct)
    except msgspec.ValidationError as error:
        raise _field_error(str(error), struct) from None
    except RecursionError:
        raise _malformed("it is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _malformed(_syntax_problem(body, error)) from None


def convert(value: object, struct: type[StructT], at: str) -> StructT:
    """`value`, found at `at` of a body, as `struct`. Raises ApiError naming the field that is wrong."""
    try:
        return msgspec.convert(value, struct)
    except msgspec.ValidationError as error:
        raise _field_error(str(error), struct, at) from None


def by_type(
    value: object, kinds: Mapping[str, type[StructT]], at: str, default: str | None = None
) -> StructT:
    """`value`, found at `at` of a body, as the struct that its "type" stands for.

    `default` is the type of objects without one. Raises ApiError naming the field that is wrong.
    """
    if not isinstance(value, dict):
        got = _TYPES[_JSON_TYPES.get(type(value), "null")]
        raise ApiError(
            f"Invalid type for '{at}': expected an object, but got {got} instead.",
            param=at,
            code="invalid_type",
        )
    kind = value.get("type", default)
    if kind is None and "type" not in value:
        name = _join(at, "type")
        raise ApiError(
            f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter"
        )
    struct = kinds.get(kind) if isinstance(kind, str) else None
    if struct is None:
        raise unsupported_type(at, str(kind), kinds)
    return convert(value, struct, at)


async def _read_body(request: Request) -> bytes:
    body = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError("the client left while sending its request")
        body += message.get("body", b"")
        if not message.get("more_body", False):
            return bytes(body)


def _malformed(problem: str) -> ApiError:
    return ApiError(f"We could not parse the JSON body of your request: {problem}", code="invalid_json")


def _syntax_problem(body: bytes, error: Exception) -> str:
    if not body.strip():
        return "it is empty"
    if _has_lone_surrogate(body):
        return "a string contains half a UTF-16 surrogate pair, which is no character"
    return str(error)


def _has_lone_surrogate(body: bytes) -> bool:
    """Python's own parser lets them pass, msgspec's does not and calls the body truncated."""
    try:
        text = json.dumps(json.loads(body), ensure_ascii=False)
    except (ValueError, RecursionError):
        return False
    return any("\ud800" <= character <= "\udfff" for character in text)


def _field_error(text: str, struct: type[msgspec.Struct], at: str = "") -> ApiError:
    """msgspec's complaint in OpenAI's words, about what stands at `at`."""
    match = _AT.fullmatch(text)
    assert match is not None
    problem = match["problem"]
    # msgspec says [...] for a value of an object that takes any keys.
    path, inner, _ = f"{at}{match['path'] or ''}".lstrip(".").partition("[...]")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", problem, re.DOTALL):
        return _unknown_field(unknown[1], path, struct)
    if missing := re.fullmatch(r"Object missing required field `(.*)`", problem):
        name = _join(path, missing[1])
        return ApiError(
            f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter"
        )
    if wrong := re.fullmatch(r"Expected `([^`]*)`(?:, got `([^`]*)`)?", problem):
        got = f", but got {_type_words(wrong[2])} instead" if wrong[2] else ""
        subject = f" for {'a value of ' if inner else ''}'{path}'" if path else ": the body"
        message = f"Invalid type{subject}: expected {_type_words(wrong[1])}{got}."
        return ApiError(message, param=path or None, code="invalid_type")
    if limit := re.fullmatch(r"Expected `[^`]*` (>=|<=|>|<) (.*)", problem):
        message = f"Invalid value for '{path}': it must be {_LIMITS[limit[1]]} {limit[2]}."
        return ApiError(message, param=path or None, code="invalid_value")
    if bad := re.fullmatch(r"Invalid (?:enum )?value ('.*')", problem, re.DOTALL):
        supported = _supported(allowed_values(struct, (match["path"] or "").lstrip(".")))
        message = f"Invalid value for '{path}': {bad[1]}.{supported}"
        return ApiError(message, param=path, code="invalid_value")
    return ApiError(f"Invalid value for '{path}': {problem}.", param=path or None, code="invalid_value")


def _supported(values: Sequence[str]) -> str:
    """As the end of a message. Kinds of parts that are known, to be refused by name, are left out."""
    if set(PART_TYPES) < set(values):
        values = PART_TYPES
    return f" Supported values are: {', '.join(map(repr, values))}." if values else ""


def _unknown_field(name: str, path: str, struct: type[msgspec.Struct]) -> ApiError:
    full = _join(path, name)
    hint = "" if path else _hint(name, struct)
    return ApiError(f"Unknown parameter: '{full}'.{hint}", param=full, code="unknown_parameter")


def _hint(name: str, struct: type[msgspec.Struct]) -> str:
    if name in HINTS:
        return f" {HINTS[name]}"
    close = difflib.get_close_matches(name, struct.__struct_fields__, 1)
    return f" Did you mean '{close[0]}'?" if close else ""


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _type_words(types: str) -> str:
    """`str | null` as "a string or null"."""
    words = [_TYPES.get(name, name) for name in types.split(" | ")]
    return " or ".join(words)
