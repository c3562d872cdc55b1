"""Web pages of elsewhere: refused without a key, let in when named."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.support.scripted_engine import says
from tests.support.serving import CHAT, HELLO, serving

HI = says(b"Hi")
BODY = {"messages": HELLO}
JSON = {"content-type": "application/json"}


def send(method: str, path: str, headers: dict[str, str], body: bytes = b"", **config: Any) -> httpx.Response:
    async def run() -> httpx.Response:
        async with serving(HI, **config) as server:
            return await server.http.request(method, path, headers=headers, content=body)

    return asyncio.run(run())


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://test:81", "http://test.evil", ""])
@pytest.mark.parametrize(("method", "path"), [("POST", CHAT), ("GET", "/v1/models"), ("OPTIONS", CHAT)])
def test_foreign_pages_are_refused(host: str, origin: str, method: str, path: str) -> None:
    response = send(method, path, {"origin": origin}, host=host)
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "origin_not_allowed"
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("origin", ["http://test", "https://TEST"])  # the proxy in front may speak TLS
def test_its_own_page_is_served(origin: str) -> None:
    assert send("GET", "/v1/models", {"origin": origin}).status_code == 200


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "Text/Plain;"],
)
def test_bodies_that_forms_can_send_are_refused_with_the_remedy(kind: str) -> None:
    response = send("POST", CHAT, {"content-type": kind}, b'{"messages": []}')
    assert response.status_code == 415
    assert "-H 'Content-Type: application/json'" in response.json()["error"]["message"]


@pytest.mark.parametrize("headers", [{}, JSON, {"content-type": "application/json; charset=utf-8"}])
def test_json_and_unnamed_bodies_are_read(headers: dict[str, str]) -> None:
    body = b'{"messages": [{"role": "user", "content": "hello"}]}'
    assert send("POST", CHAT, headers, body).status_code == 200


def test_a_key_is_enough() -> None:
    headers = {"origin": "https://any.example", "authorization": "Bearer k", "content-type": "text/plain"}
    assert send("GET", "/v1/models", headers, api_keys=("k",)).status_code == 200


@pytest.mark.parametrize("keys", [(), ("k",)])
def test_named_pages_are_let_in(keys: tuple[str, ...]) -> None:
    config = {"cors_origins": ("https://chat.example",), "api_keys": keys}
    preflight = {
        "origin": "https://chat.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-lang",
    }
    asked = send("OPTIONS", CHAT, preflight, **config)
    assert asked.status_code == 200
    assert asked.headers["access-control-allow-origin"] == "https://chat.example"
    assert "authorization" in asked.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in asked.headers
    known = {"origin": "https://chat.example", "authorization": "Bearer k"}
    answered = send("GET", "/v1/models", known, **config)
    assert answered.status_code == 200
    assert answered.headers["access-control-allow-origin"] == "https://chat.example"
    assert "X-Request-Id" in answered.headers["access-control-expose-headers"]
    foreign = send("GET", "/v1/models", {**known, "origin": "https://evil.example"}, **config)
    assert "access-control-allow-origin" not in foreign.headers
    assert foreign.status_code == (200 if keys else 403)


def test_a_named_page_reads_why_it_is_refused() -> None:
    config = {"cors_origins": ("https://chat.example",), "api_keys": ("k",)}
    refused = send("GET", "/v1/models", {"origin": "https://chat.example"}, **config)
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://chat.example"


def test_every_page_when_asked_for() -> None:
    config = {"cors_origins": ("*",)}
    assert (
        send("GET", "/v1/models", {"origin": "https://a.example"}, **config).headers[
            "access-control-allow-origin"
        ]
        == "*"
    )


def test_cross_origin_is_off_unless_set() -> None:
    headers = {"origin": "https://chat.example", "authorization": "Bearer k"}
    response = send("GET", "/v1/models", headers, api_keys=("k",))
    assert response.status_code == 200
    assert not [name for name in response.headers if name.startswith("access-control")]
