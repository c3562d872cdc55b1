"""What a JSON text says up to where it was cut off."""

from __future__ import annotations

import json
from typing import Any


def partial_object(text: str) -> dict[str, Any]:
    """The object that `text` is, without the members that were cut off; {} for a text that begins with none.

    A string or number at the end is left out unless it certainly ended.
    """
    end, closers = _last_whole(text)
    try:
        value = json.loads(text[:end] + closers)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _last_whole(text: str) -> tuple[int, str]:
    """Where the text could have ended, with the brackets that would have closed it there."""
    whole = (0, "")
    closers = ""
    in_string = is_escaped = in_key = False
    for i, character in enumerate(text):
        if in_string:
            if is_escaped or character == "\\":
                is_escaped = not is_escaped
            elif character == '"':
                in_string = False
                whole = whole if in_key else (i + 1, closers)
            continue
        match character:
            case '"':
                in_string = True
            case "{" | "[":
                closers = ("}" if character == "{" else "]") + closers
                in_key = character == "{"
                whole = i + 1, closers
            case "}" | "]":
                closers = closers[1:]
                whole = i + 1, closers
            case ",":
                in_key = closers.startswith("}")
                whole = i, closers
            case ":":
                in_key = False
    return whole
