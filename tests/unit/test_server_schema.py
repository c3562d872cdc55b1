"""What requests may say: every field acts, is without effect by design, or is refused by name."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lucebox.sampling.params import SamplingParams, SpeculativeParams
from tests.support.scripted_engine import says
from tests.support.serving import CHAT, HELLO, TEXT, ask, serving

HI = says(b"Hi")


def params_of(path: str, fields: dict[str, Any]) -> SamplingParams:
    async def run() -> SamplingParams:
        async with serving(HI) as server:
            start = {"messages": HELLO} if path == CHAT else {"prompt": "a"}
            response = await server.post(path, start | fields)
            assert response.status_code == 200, response.text
            return server.engine.submits[0].params

    return asyncio.run(run())


def error_of(path: str, body: Any) -> dict[str, Any]:
    response = ask(HI, path, body)
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    return error


ACTING: list[tuple[str, Any, str, Any]] = [
    ("temperature", 0, "temperature", 0.0),
    ("temperature", None, "temperature", 1.0),
    ("top_p", 0.5, "top_p", 0.5),
    ("frequency_penalty", -1, "frequency_penalty", -1.0),
    ("presence_penalty", 1.5, "presence_penalty", 1.5),
    ("seed", -5, "seed", -5),
    ("stop", "x", "stop", ("x",)),
    ("stop", ["x", "yy"], "stop", ("x", "yy")),
    ("stop", [], "stop", ()),
    ("stop", None, "stop", ()),
    ("max_tokens", 3, "max_tokens", 3),
    ("logit_bias", {"65": -100, "66": 1.5}, "logit_bias", {65: -100.0, 66: 1.5}),
    ("top_k", 40, "top_k", 40),
    ("min_p", 0.05, "min_p", 0.05),
    ("repetition_penalty", 1.1, "repetition_penalty", 1.1),
    ("ignore_eos", True, "ignore_eos", True),
    ("speculative", False, "speculative", SpeculativeParams(enabled=False)),
    ("speculative", {"draft_length": 3}, "speculative", SpeculativeParams(draft_length="fixed:n=3")),
    ("speculative", {"drafter": "suffix,model"}, "speculative", SpeculativeParams(drafter="suffix,model")),
    (
        "speculative",
        {"drafter": "auto", "acceptance": "auto"},
        "speculative",
        SpeculativeParams(drafter="auto", acceptance="auto"),
    ),
    (
        "speculative",
        {"enabled": True, "draft_length": "threshold:n=4,p_min=0.5", "acceptance": "token"},
        "speculative",
        SpeculativeParams(enabled=True, draft_length="threshold:n=4,p_min=0.5", acceptance="token"),
    ),
]


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(("field", "value", "name", "expected"), ACTING)
def test_fields_reach_the_sampler(path: str, field: str, value: Any, name: str, expected: Any) -> None:
    assert getattr(params_of(path, {field: value}), name) == expected


def test_defaults_are_openais() -> None:
    assert params_of(CHAT, {}) == SamplingParams()
    assert params_of(TEXT, {}) == SamplingParams(max_tokens=16)


def test_max_tokens_may_be_null_or_have_its_new_name() -> None:
    assert params_of(CHAT, {"max_tokens": None}).max_tokens is None
    assert params_of(CHAT, {"max_completion_tokens": 7, "max_tokens": None}).max_tokens == 7
    assert params_of(TEXT, {"max_tokens": None}).max_tokens == 16


def test_logprobs_of_both_endpoints() -> None:
    assert params_of(CHAT, {"logprobs": True}).logprobs == 0
    assert params_of(CHAT, {"logprobs": True, "top_logprobs": 5}).logprobs == 5
    assert params_of(CHAT, {"logprobs": False}).logprobs is None
    assert params_of(TEXT, {"logprobs": 3}).logprobs == 3


INERT: dict[str, Any] = {
    "user": "u",
    "metadata": {"a": "b"},
    "service_tier": "auto",
    "store": False,
    "safety_identifier": "s",
    "prompt_cache_key": "k",
    "parallel_tool_calls": True,
    "tools": [],
    "tool_choice": "none",
    "functions": None,
    "response_format": {"type": "text"},
    "modalities": ["text"],
    "audio": None,
    "prediction": None,
}


@pytest.mark.parametrize("field", INERT)
def test_documented_fields_without_effect_are_accepted(field: str) -> None:
    assert params_of(CHAT, {field: INERT[field]}) == SamplingParams()


REFUSED: dict[str, Any] = {
    "functions": [{"name": "f"}],
    "function_call": {"name": "f"},
    "modalities": ["text", "audio"],
    "audio": {"voice": "a", "format": "wav"},
    "store": True,
    "reasoning_effort": "high",
    "verbosity": "low",
    "web_search_options": {},
}


@pytest.mark.parametrize("field", REFUSED)
def test_what_we_do_not_do_is_refused_by_name(field: str) -> None:
    error = error_of(CHAT, {"messages": HELLO, field: REFUSED[field]})
    assert error["param"] == field
    assert error["code"] == "unsupported_parameter"
    assert field in error["message"]


WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    (CHAT, {"temperature": "hot"}, "temperature", "invalid_type"),
    (CHAT, {"temperature": -1}, "temperature", "invalid_value"),
    (CHAT, {"top_p": 0}, "top_p", "invalid_value"),
    (CHAT, {"top_p": 1.1}, "top_p", "invalid_value"),
    (CHAT, {"min_p": 2}, "min_p", "invalid_value"),
    (CHAT, {"frequency_penalty": 3}, "frequency_penalty", "invalid_value"),
    (CHAT, {"n": 0}, "n", "invalid_value"),
    (CHAT, {"n": 1000}, "n", "invalid_value"),
    (CHAT, {"n": 1.5}, "n", "invalid_type"),
    (CHAT, {"n": True}, "n", "invalid_type"),
    (CHAT, {"seed": 10**30}, "seed", "invalid_value"),
    (CHAT, {"max_tokens": 0}, "max_tokens", "invalid_value"),
    (CHAT, {"max_completion_tokens": -1}, "max_completion_tokens", "invalid_value"),
    (CHAT, {"max_tokens": 1, "max_completion_tokens": 1}, "max_tokens", "invalid_value"),
    (CHAT, {"stop": [""]}, "stop", "invalid_value"),
    (CHAT, {"stop": ["x"] * 17}, "stop", "invalid_value"),
    (CHAT, {"stop": 5}, "stop", "invalid_type"),
    (CHAT, {"logit_bias": {"a": 1}}, "logit_bias", "invalid_value"),
    (CHAT, {"logit_bias": {"-1": 1}}, "logit_bias", "invalid_value"),
    (CHAT, {"logit_bias": {"9999": 1}}, "logit_bias", "invalid_value"),
    (CHAT, {"logit_bias": {"1": 101}}, "logit_bias", "invalid_value"),
    (CHAT, {"logit_bias": {"9" * 5000: 1}}, "logit_bias", "invalid_value"),
    (CHAT, {"top_logprobs": 3}, "top_logprobs", "invalid_value"),
    (CHAT, {"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
    (CHAT, {"logprobs": 3}, "logprobs", "invalid_type"),
    (CHAT, {"stream": "yes"}, "stream", "invalid_type"),
    (CHAT, {"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
    (CHAT, {"stream": True, "stream_options": {"usage": 1}}, "stream_options.usage", "unknown_parameter"),
    (CHAT, {"speculative": {"draft": 3}}, "speculative.draft", "unknown_parameter"),
    (CHAT, {"speculative": {"draft_length": "guess"}}, "speculative.draft_length", "invalid_value"),
    (CHAT, {"speculative": {"acceptance": "gredy"}}, "speculative.acceptance", "invalid_value"),
    (CHAT, {"speculative": {"drafter": "suffix,modle"}}, "speculative.drafter", "invalid_value"),
    (CHAT, {"speculative": {"drafter": "suffix:n=1"}}, "speculative.drafter", "invalid_value"),
    (CHAT, {"speculative": {"drafter": "suffix," * 100_000}}, "speculative.drafter", "invalid_value"),
    (
        CHAT,
        {"speculative": {"draft_length": "threshold:p_min=" + "9" * 400}},
        "speculative.draft_length",
        "invalid_value",
    ),
    (
        CHAT,
        {"speculative": {"draft_length": "fixed:shape=" + "x".join(["9"] * 5000)}},
        "speculative.draft_length",
        "invalid_value",
    ),
    (CHAT, {"temprature": 1}, "temprature", "unknown_parameter"),
    (CHAT, {"messages": []}, "messages", "empty_array"),
    (CHAT, {"messages": "hello"}, "messages", "invalid_type"),
    (CHAT, {"messages": [{"role": "user"}]}, "messages[0].content", "missing_required_parameter"),
    (CHAT, {"messages": [{"role": "user", "content": None}]}, "messages[0].content", "invalid_type"),
    (CHAT, {"messages": [*HELLO, {"role": "user", "content": 5}]}, "messages[1].content", "invalid_type"),
    (CHAT, {"messages": [{"role": "wizard", "content": ""}]}, "messages[0].role", "invalid_value"),
    (CHAT, {"messages": [{"content": ""}]}, "messages[0].role", "missing_required_parameter"),
    (
        CHAT,
        {"messages": [{"role": "user", "content": "", "nam": "x"}]},
        "messages[0].nam",
        "unknown_parameter",
    ),
    (
        CHAT,
        {"messages": [{"role": "tool", "content": ""}]},
        "messages[0].tool_call_id",
        "missing_required_parameter",
    ),
    (TEXT, {"prompt": None}, "prompt", "invalid_type"),
    (TEXT, {"logprobs": 21}, "logprobs", "invalid_value"),
    (TEXT, {"suffix": "x", "echo": True}, "echo", "invalid_value"),
    (TEXT, {"best_of": 0}, "best_of", "invalid_value"),
    (TEXT, {"best_of": 129}, "best_of", "invalid_value"),
    (TEXT, {"best_of": 2, "n": 3}, "best_of", "invalid_value"),
    (TEXT, {"best_of": 3, "stream": True}, "best_of", "invalid_value"),
    (TEXT, {"max_tokens": -1}, "max_tokens", "invalid_value"),
    (TEXT, {"echo": True, "logprobs": 21}, "logprobs", "invalid_value"),
    (TEXT, {"messages": HELLO}, "messages", "unknown_parameter"),
]


@pytest.mark.parametrize(("path", "fields", "param", "code"), WRONG, ids=lambda v: str(v)[:40])
def test_wrong_values_are_named(path: str, fields: dict[str, Any], param: str, code: str) -> None:
    start = {"messages": HELLO} if path == CHAT else {"prompt": "a"}
    error = error_of(path, start | fields)
    assert (error["param"], error["code"]) == (param, code)
    assert param.split(".")[-1] in error["message"] or param in error["message"]


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file"])
def test_parts_that_are_no_text_are_refused(kind: str) -> None:
    part = {"type": kind, kind: {"url": "data:,"}}
    content = [{"type": "text", "text": "what is this?"}, part]
    error = error_of(CHAT, {"messages": [*HELLO, {"role": "user", "content": content}]})
    assert error["param"] == "messages[1].content[1]"
    assert kind in error["message"]


def test_missing_fields_are_named() -> None:
    assert error_of(CHAT, {"model": "tiny"})["param"] == "messages"
    assert error_of(TEXT, {})["param"] == "prompt"


def test_unknown_fields_get_a_guess() -> None:
    assert "Did you mean 'temperature'?" in error_of(CHAT, {"messages": HELLO, "temprature": 1})["message"]


def test_roles_are_listed() -> None:
    message = error_of(CHAT, {"messages": [{"role": "wizard", "content": ""}]})["message"]
    assert "'wizard'" in message
    assert "'assistant'" in message


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"{", "truncated"),
        (b"nonsense", "malformed"),
        (b"[]", "object"),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', "UTF-8"),
        (b'{"messages": [{"role": "user", "content": "\\ud83d"}]}', "surrogate"),
        (b'{"messages": [], "temperature": NaN}', "malformed"),
        (b'{"messages": [], "temperature": Infinity}', "malformed"),
        (b'{"messages": [], "temperature": 1e999}', "range"),
        (b'{"messages": [], "seed": ' + b"9" * 5000 + b"}", "range"),
        (b'{"messages": [], "audio": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested"),
    ],
)
def test_bad_json(content: bytes, says: str) -> None:
    response = ask(HI, CHAT, content=content)
    assert response.status_code == 400
    assert says in response.json()["error"]["message"]


def test_body_too_large() -> None:
    response = ask(HI, CHAT, content=b" " * (16 * 2**20 + 1))
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "request_too_large"


def test_escaped_surrogate_pairs_are_characters() -> None:
    content = json.dumps({"messages": [{"role": "user", "content": "🦊"}]}).encode()
    assert b"\\ud83e" in content
    assert ask(HI, CHAT, content=content).status_code == 200
