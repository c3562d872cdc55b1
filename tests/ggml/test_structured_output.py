"""Grammars end to end: a real server with tiny random models, which by themselves write no JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest

from tests.support.server_process import ServerProcess
from tests.support.tiny_models import write_tiny

HELLO = [{"role": "user", "content": "hello there"}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "hello": {"type": "string", "maxLength": 5},
        "there": {"enum": ["in", "inner", 5]},
        "on": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["hello", "there", "on"],
    "additionalProperties": False,
}
BOUND = {
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "greeting", "strict": True, "schema": SCHEMA},
    }
}


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("structured")
    target = write_tiny(folder / "target.gguf", "qwen2", n_ctx=1024, seed=3)
    draft = write_tiny(folder / "draft.gguf", "qwen2", n_ctx=1024, seed=3, perturbation=0.05)
    flags = ["--target-model", str(target), "--draft-model", str(draft), "--threads", "1"]
    flags += ["--draft-length", "fixed:n=4", "--parallel", "2"]
    with (
        ServerProcess(folder / "log", *flags) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):
        yield client


def chat(http: httpx.Client, **fields: Any) -> Any:
    response = http.post("/v1/chat/completions", json={"messages": HELLO, **BOUND, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def contents(answer: Any) -> list[str]:
    return [choice["message"]["content"] for choice in answer["choices"]]


def test_answers_are_valid_and_drafts_are_accepted(http: httpx.Client) -> None:
    answer = chat(http, n=4, temperature=1.0, seed=1)
    for choice in answer["choices"]:
        assert choice["finish_reason"] == "stop"
        jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)
    assert answer["timings"]["draft_n_accepted"] > 0
    assert len(set(contents(answer))) > 1


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"temperature": 1.0, "seed": 5}])
def test_the_text_is_that_without_drafts_and_without_forcing(
    http: httpx.Client, fields: dict[str, Any]
) -> None:
    plain = chat(http, speculative=False, **fields)
    assert contents(chat(http, **fields)) == contents(plain)
    with_logprobs = chat(http, logprobs=True, top_logprobs=2, **fields)
    assert contents(with_logprobs) == contents(plain)
    said = b"".join(bytes(entry["bytes"]) for entry in with_logprobs["choices"][0]["logprobs"]["content"])
    assert said.decode() == contents(plain)[0]
    assert plain["usage"]["completion_tokens"] == with_logprobs["usage"]["completion_tokens"]


def test_streams_say_the_same(http: httpx.Client) -> None:
    body = {"messages": HELLO, "stream": True, "temperature": 0, **BOUND}
    text, reasons = "", []
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                (choice,) = json.loads(line.removeprefix("data: "))["choices"]
                text += choice["delta"].get("content") or ""
                reasons.append(choice["finish_reason"])
    assert text == contents(chat(http, temperature=0))[0]
    assert reasons[-1] == "stop"


@pytest.mark.parametrize("prediction", ['{"hello": "there", "there": "in', "not at all what is allowed"])
def test_a_prediction_helps_and_changes_nothing(http: httpx.Client, prediction: str) -> None:
    answer = chat(http, temperature=0, prediction={"type": "content", "content": prediction})
    assert contents(answer) == contents(chat(http, temperature=0))


def test_completions_take_grammars_too(http: httpx.Client) -> None:
    for grammar in (
        'root ::= ("in" | "on")+ "!"',
        {"type": "regex", "value": "(in|on)+!"},
        'start: ("in" | "on")+ "!"',
    ):
        body = {"prompt": "a", "max_tokens": 200, "grammar": grammar, "logit_bias": {}}
        response = http.post("/v1/completions", json=body)
        assert response.status_code == 200, response.text
        choice = response.json()["choices"][0]
        assert set(choice["text"].replace("in", "").replace("on", "")) <= {"!"}


def test_what_cannot_be_enforced_is_refused_by_name(http: httpx.Client) -> None:
    schema = {"type": "array", "uniqueItems": True}
    asked = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": True}}
    for path, start in (
        ("/v1/chat/completions", {"messages": HELLO}),
        ("/v1/completions", {"prompt": "a"}),
    ):
        response = http.post(path, json={**start, "response_format": asked, "max_tokens": 4})
        assert response.status_code == 400
        error = response.json()["error"]
        assert error["param"] == "response_format"
        assert "uniqueItems" in error["message"]
        asked_loosely = {**asked, "json_schema": {"name": "a", "schema": schema}}
        response = http.post(path, json={**start, "response_format": asked_loosely, "max_tokens": 4})
        assert response.status_code == 200
