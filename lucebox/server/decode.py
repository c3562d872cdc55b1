"""From a request's body to a struct, or to a 400 that names the field."""

from __future__ import annotations

import difflib
import json
import re
from typing import TypeVar

import msgspec
from starlette.requests import Request

from lucebox.server.errors import ApiError, ClientGoneError
from lucebox.server.messages import PART_TYPES, ROLES

MAX_BODY_BYTES = 16 * 2**20

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


async def read_body(request: Request) -> bytes:
    """The whole body. Raises ApiError (413) as soon as it is too large, ClientGoneError if it never comes."""
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > MAX_BODY_BYTES:
        raise _too_large()
    body = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError("the client left while sending its request")
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise _too_large()
        if not message.get("more_body", False):
            return bytes(body)


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


def _too_large() -> ApiError:
    message = f"The request's body is larger than {MAX_BODY_BYTES // 2**20} MiB"
    return ApiError(message, status=413, code="request_too_large", headers={"Connection": "close"})


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


def _field_error(text: str, struct: type[msgspec.Struct]) -> ApiError:
    """msgspec's complaint in OpenAI's words."""
    match = _AT.fullmatch(text)
    assert match is not None
    problem, path = match["problem"], (match["path"] or "").lstrip(".")
    if unknown := re.fullmatch(r"Object contains unknown field `(.*)`", problem, re.DOTALL):
        return _unknown_field(unknown[1], path, struct)
    if missing := re.fullmatch(r"Object missing required field `(.*)`", problem):
        name = _join(path, missing[1])
        return ApiError(
            f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter"
        )
    if wrong := re.fullmatch(r"Expected `([^`]*)`(?:, got `([^`]*)`)?", problem):
        got = f", but got {_type_words(wrong[2])} instead" if wrong[2] else ""
        subject = f" for '{path}'" if path else ": the body"
        message = f"Invalid type{subject}: expected {_type_words(wrong[1])}{got}."
        return ApiError(message, param=path or None, code="invalid_type")
    if bad := re.fullmatch(r"Invalid value ('.*')", problem, re.DOTALL):
        allowed = ROLES if path.endswith("role") else PART_TYPES
        values = ", ".join(f"'{value}'" for value in allowed)
        message = f"Invalid value for '{path}': {bad[1]}. Supported values are: {values}."
        return ApiError(message, param=path, code="invalid_value")
    return ApiError(f"Invalid value for '{path}': {problem}.", param=path or None, code="invalid_value")


def _unknown_field(name: str, path: str, struct: type[msgspec.Struct]) -> ApiError:
    close = [] if path else difflib.get_close_matches(name, struct.__struct_fields__, 1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    full = _join(path, name)
    return ApiError(f"Unknown parameter: '{full}'.{hint}", param=full, code="unknown_parameter")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _type_words(types: str) -> str:
    """`str | null` as "a string or null"."""
    words = [_TYPES.get(name, name) for name in types.split(" | ")]
    return " or ".join(words)
