"""Server-sent events (WHATWG HTML, section 9.2), as OpenAI's API uses them."""

from __future__ import annotations

import msgspec

DONE = b"data: [DONE]\n\n"
HEARTBEAT = b": still working\n\n"  # a comment: keeps proxies from closing a quiet connection


def data(payload: msgspec.Struct) -> bytes:
    """An event; JSON has no line breaks, so it is one line."""
    return b"data: " + msgspec.json.encode(payload) + b"\n\n"


def event(name: str, payload: msgspec.Struct) -> bytes:
    """An event with a name, as Anthropic's API and OpenAI's Responses have them."""
    return f"event: {name}\n".encode() + data(payload)
