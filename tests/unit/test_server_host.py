"""A server at the loopback answers to its own names only."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lucebox.server.host import host_name
from tests.support.scripted_engine import says
from tests.support.serving import HELLO, Connection, http_scope, serving

LOCAL = [
    "localhost",
    "localhost:8080",
    "LOCALHOST:1",
    "localhost.",
    "127.0.0.1:8080",
    "127.0.0.2",
    "[::1]:8080",
]
FOREIGN = [
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "0.0.0.0",
    "",
]


def answer(named: str | None, *, at: Any = ("127.0.0.1", 8080), **config: Any) -> tuple[int, bytes, int]:
    """Status and body for a request for `named` that arrived at `at`, and how many reached the engine."""

    async def run() -> tuple[int, bytes, int]:
        async with serving(says(b"hi"), **config) as server:
            scope = http_scope("/v1/chat/completions")
            scope["server"] = at
            scope["headers"] += [] if named is None else [(b"host", named.encode())]
            connection = Connection({"messages": HELLO})
            await server.app(scope, connection.receive, connection.send)
            body = b"".join(message.get("body", b"") for message in connection.sent)
            return connection.sent[0]["status"], body, len(server.engine.submits)

    return asyncio.run(run())


@pytest.mark.parametrize("host", [*LOCAL, None])
def test_its_own_names_are_answered(host: str | None) -> None:
    assert answer(host)[::2] == (200, 1)


@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.parametrize("at", [("127.0.0.1", 8080), ("::1", 8080)])
def test_foreign_names_are_refused(host: str, at: tuple[str, int]) -> None:
    status, body, n_submits = answer(host, at=at)
    assert (status, n_submits) == (403, 0)
    assert b'"code":"host_not_allowed"' in body
    assert b"API key" in body


@pytest.mark.parametrize("at", [("192.0.2.7", 8080), ("/run/lucebox.sock", None), None])
def test_what_does_not_arrive_at_the_loopback_may_have_any_name(at: Any) -> None:
    assert answer("box.example", at=at)[0] == 200


def test_an_open_address_or_a_key_allows_any_name() -> None:
    assert answer("box.example", host="0.0.0.0")[0] == 200
    assert answer("box.example", api_keys=("k",))[0] == 401  # the key decides, not the name


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("Box.Example:80", "box.example"),
        ("[::1]", "::1"),
        ("[::1]:8080", "::1"),
        ("::1", ""),  # no Host header: an address of IPv6 needs brackets
        ("box.", "box"),
    ],
)
def test_host_names(header: str, name: str) -> None:
    assert host_name(header) == name
