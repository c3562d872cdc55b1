"""What requests to a wrong URL are told."""

from __future__ import annotations

import pytest

from lucebox.server.application import ROUTES
from lucebox.server.wrong_urls import MAX_LENGTH, allowed_methods, url_hint
from tests.support.serving import fetch

ADD = "Add /v1 to the client's base URL."
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"


@pytest.mark.parametrize(
    ("path", "meant", "advice"),
    [
        ("/chat/completions", CHAT, ADD),
        ("/models", "/v1/models", ADD),
        ("/models/tiny", "/v1/models/tiny", ADD),
        ("/messages", MESSAGES, ADD),
        ("/v1/v1/messages", MESSAGES, "Take /v1 off the client's base URL."),
        ("/v1/v1/chat/completions", CHAT, "Take /v1 off the client's base URL."),
        ("/api/v1/chat/completions", CHAT, "Take /api off the client's base URL."),
        ("/openai/chat/completions", CHAT, ""),
        ("/v1/chat/completions/", CHAT, ""),
        ("//v1//chat/completions", CHAT, ""),
        ("/V1/Chat/Completions", CHAT, ""),
        ("/v1/chat/completion", CHAT, ""),
        ("/v1/health", "/health", ""),
        ("/v1/chat", CHAT, ""),
        ("/api/chat", CHAT, ""),
        ("/v1/api/chat", CHAT, ""),
        ("/api/generate", "/v1/completions", ""),
        ("/completion", "/v1/completions", ""),
        ("/api/tags", "/v1/models", ""),
        ("/api/embeddings", "/v1/embeddings", ""),
        ("/docs", "/openapi.json", ""),
    ],
)
def test_what_was_probably_meant(path: str, meant: str, advice: str) -> None:
    assert url_hint(path, ROUTES) == f" Did you mean {meant}? {advice}".rstrip()
    assert url_hint(path, ROUTES, "/llm") == f" Did you mean /llm{meant}? {advice}".rstrip()


@pytest.mark.parametrize("path", ["/nothing", "/.env", "/", "/v1/audio/speech", "/a" * MAX_LENGTH])
def test_what_is_like_nothing_gets_no_guess(path: str) -> None:
    assert url_hint(path, ROUTES) == ""


@pytest.mark.parametrize("path", ["/v1", "/v1/"])
def test_a_base_url_is_told_to_be_one(path: str) -> None:
    error = fetch(path, "GET").json()["error"]
    assert error["message"] == (
        f"Invalid URL (GET {path}). That is a client's base URL: clients add a path, as in {CHAT}."
    )


def test_a_wrong_url_is_refused_in_the_words_of_the_api_that_was_meant() -> None:
    response = fetch("/chat/completions", "POST")
    assert response.status_code == 404
    assert response.json()["error"] == {
        "message": f"Invalid URL (POST /chat/completions). Did you mean {CHAT}? {ADD}",
        "type": "invalid_request_error",
        "param": None,
        "code": "unknown_url",
    }
    for path in ("/v1/v1/messages", "/messages", "/v1/messages/", "/messages/count_tokens"):
        body = fetch(path, "POST").json()
        assert body["type"] == "error"
        assert body["error"]["type"] == "not_found_error"
        assert f"Did you mean {MESSAGES}" in body["error"]["message"]


@pytest.mark.parametrize("prefix", ["", "/llm"])
def test_a_guess_behind_a_proxy_has_its_path(prefix: str) -> None:
    message = fetch(f"{prefix}/chat/completions", "POST", root_path="/llm").json()["error"]["message"]
    assert f"Did you mean /llm{CHAT}?" in message


def test_a_wrong_method_is_told_the_right_one() -> None:
    response = fetch(CHAT, "GET")
    assert response.status_code == 405
    assert response.headers["allow"] == "POST"
    assert response.json()["error"]["message"] == f"Not allowed: GET {CHAT}. This URL takes POST."
    assert fetch(MESSAGES, "GET").json()["error"]["message"].endswith("This URL takes POST.")
    assert allowed_methods("/health", ROUTES) == ["GET"]


def test_a_long_url_is_not_told_back_whole() -> None:
    assert len(fetch("/" + "x" * 5000, "GET").text) < 500
