"""Every field of /v1/chat/completions and /v1/completions: served, or refused by name."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from lucebox.server.field_hints import HINTS
from lucebox.server.schema import ChatRequest, CompletionRequest
from tests.support.scripted_engine import ByteText, says
from tests.support.serving import CHAT, HELLO, TEXT, serving

NUMBER: tuple[Any, ...] = ("1", True, [], {})
INTEGER: tuple[Any, ...] = (1.5, *NUMBER)
FLAG: tuple[Any, ...] = ("true", 1, [])
STRING: tuple[Any, ...] = (1, True, [], {})


@dataclass(frozen=True)
class Field:
    """Values that are served, of a wrong type, out of range, and of what is not done. Null is the default,
    but for fields that must be there."""

    valid: tuple[Any, ...]
    wrong: tuple[Any, ...] = ()
    outside: tuple[Any, ...] = ()
    beside: dict[str, Any] = field(default_factory=dict)
    is_required: bool = False

    @property
    def refused(self) -> tuple[Any, ...]:
        return self.wrong + self.outside


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
IDLE = Field(("x", 1, {"a": "b"}))
COMMON = {
    "model": Field(("tiny",), STRING),
    "stream": Field((False, True), FLAG),
    "stream_options": Field(
        ({}, {"include_usage": True}, {"include_obfuscation": None}),
        ("yes", [], {"include_usage": 1}, {"usage": True}),
        beside={"stream": True},
    ),
    "n": Field((1, 2), INTEGER, (0, -1, 129)),
    "temperature": Field((0, 0.7, 2), NUMBER, (-0.1, 101)),
    "top_p": Field((1e-6, 0.5, 1), NUMBER, (0, 1.1)),
    "frequency_penalty": Field((-2, 0, 2), NUMBER, (-2.1, 2.1)),
    "presence_penalty": Field((-2, 0, 2), NUMBER, (-2.1, 2.1)),
    "logit_bias": Field(
        ({}, {"1": -100, "2": 100}), ("1", [1], {"1": "2"}), ({"x": 1}, {"-1": 1}, {"260": 1}, {"1": 101})
    ),
    "seed": Field((0, -(2**63), 2**63 - 1), INTEGER, (2**63,)),
    "stop": Field(("x", [], ["x"] * 16), (1, True, {}, ["x", 1]), ("", ["x", ""], ["x"] * 17)),
    "user": IDLE,
    "response_format": Field(
        ({"type": "text"}, {"type": "json_object"}, SCHEMA), ("text", [], {}, {"type": 1}), ({"type": "xml"},)
    ),
    "top_k": Field((0, 40), INTEGER, (-1, 2**31)),
    "min_p": Field((0, 0.1, 1), NUMBER, (-0.1, 1.1)),
    "typical_p": Field((0.2, 1), NUMBER, (0, 1.1)),
    "xtc_probability": Field((0, 0.5, 1), NUMBER, (-0.1, 1.1)),
    "xtc_threshold": Field((0, 0.1, 1), NUMBER, (-0.1, 1.1)),
    "repetition_penalty": Field((0.5, 1.1), NUMBER, (0, -1, 101)),
    "dry_multiplier": Field((0, 0.8), NUMBER, (-1, 101)),
    "dry_base": Field((1, 1.75), NUMBER, (0.9, 101)),
    "dry_allowed_length": Field((1, 3), INTEGER, (0, -1)),
    "dry_penalty_last_n": Field((-1, 0, 64), INTEGER, (-2,)),
    "dry_sequence_breakers": Field(([], ["\n", "ab"]), ("\n", [1], {}), ([""], ["x" * 65], ["x"] * 65)),
    "ignore_eos": Field((False, True), FLAG),
    "grammar": Field(
        ('start: "a"', 'root ::= "a"', {"type": "regex", "value": "a+"}),
        (1, [], {"type": "regex"}),
        ({"type": "x"},),
    ),
    "speculative": Field(
        (True, False, {}, {"draft_length": 3, "drafter": "suffix", "acceptance": "block"}),
        ("no", 1, [], {"n": 1}),
        ({"drafter": "x"}, {"draft_length": "x"}, {"acceptance": "x"}),
    ),
}
CHAT_FIELDS = COMMON | {
    "messages": Field(
        (HELLO,), ("hello", {}, [1], [{"role": "user"}]), ([], [{"role": "x", "content": ""}]), {}, True
    ),
    "max_tokens": Field((1, 2**31 - 1), INTEGER, (0, -1)),
    "max_completion_tokens": Field((1, 2**31 - 1), INTEGER, (0, -1)),
    "logprobs": Field((False, True), FLAG),
    "top_logprobs": Field((0, 20), INTEGER, (-1, 21), {"logprobs": True}),
    "tools": Field(([], [TOOL]), ("f", {}, [1]), ([{"type": "x"}],)),
    "tool_choice": Field(("none", "auto", "required"), (1, [], {}), ("x",), {"tools": [TOOL]}),
    "parallel_tool_calls": Field((True, False), FLAG),
    "reasoning_effort": Field(("none",), (1, []), ("x",)),
    "prediction": Field(
        ({"type": "content", "content": "x"},), ("x", [], {"type": "content"}), ({"type": "x"},)
    ),
    "chat_template_kwargs": Field(({},), ("x", [], 1)),
    **dict.fromkeys(
        (
            "metadata",
            "service_tier",
            "safety_identifier",
            "prompt_cache_key",
            "prompt_cache_options",
            "prompt_cache_retention",
        ),
        IDLE,
    ),
    "store": Field((False,), FLAG, (True,)),
    "functions": Field(([],), (), ([{"name": "f"}],)),
    "function_call": Field(("none", "auto"), (), ({"name": "f"},)),
    "modalities": Field((["text"],), (), (["text", "audio"],)),
    "audio": Field((), (), ({"voice": "a", "format": "wav"},)),
    "moderation": Field((), (), ({"model": "m"},)),
    "verbosity": Field(("medium",), (), ("low",)),
    "web_search_options": Field((), (), ({},)),
}
TEXT_FIELDS = COMMON | {
    "prompt": Field(
        ("a", ["a", "b"], [1, 2], [[1], [2]]),
        (1, True, {}, [1.5], [[1], "x", True]),
        ([], "", [260]),
        {},
        True,
    ),
    "max_tokens": Field((0, 1, 2**31 - 1), INTEGER, (-1,)),
    "logprobs": Field((0, 5, 20), INTEGER, (-1, 21)),
    "echo": Field((False, True), FLAG),
    "best_of": Field((1, 3), INTEGER, (0, 129)),
    "suffix": Field(("", "x"), STRING),
}
TABLE = {CHAT: CHAT_FIELDS, TEXT: TEXT_FIELDS}
BASE: dict[str, dict[str, Any]] = {CHAT: {"messages": HELLO}, TEXT: {"prompt": "a"}}
CASES = [(path, name) for path, fields in TABLE.items() for name in fields]


def ask_all(path: str, bodies: list[dict[str, Any]]) -> list[tuple[int, Any]]:
    """Status and error of each, of one server."""

    async def run() -> list[tuple[int, Any]]:
        async with serving(says(b"Hi"), text=ByteText(fills_in=True)) as server:
            out = []
            for body in bodies:
                response = await server.post(path, body)
                failed = response.status_code != 200
                out.append((response.status_code, response.json()["error"] if failed else None))
            return out

    return asyncio.run(run())


@pytest.mark.parametrize(("path", "name"), CASES)
def test_a_field_is_served(path: str, name: str) -> None:
    asked = TABLE[path][name]
    values = asked.valid if asked.is_required else (*asked.valid, None)
    for value, (status, error) in zip(
        values, ask_all(path, [BASE[path] | asked.beside | {name: value} for value in values]), strict=True
    ):
        assert status == 200, (value, error)


@pytest.mark.parametrize(("path", "name"), CASES)
def test_a_wrong_value_is_refused_by_name(path: str, name: str) -> None:
    asked = TABLE[path][name]
    values = (*asked.refused, None) if asked.is_required else asked.refused
    bodies = [BASE[path] | asked.beside | {name: value} for value in values]
    for value, (status, error) in zip(values, ask_all(path, bodies), strict=True):
        assert status == 400, value
        assert error["type"] == "invalid_request_error"
        assert error["param"].replace("[", ".").split(".")[0] == name, (value, error)
        assert name in error["message"], (value, error)


def test_the_table_has_every_field() -> None:
    assert set(CHAT_FIELDS) == set(ChatRequest.__struct_fields__)
    assert set(TEXT_FIELDS) == set(CompletionRequest.__struct_fields__)


def test_every_field_that_openai_documents_is_known() -> None:
    """As its own client types them."""
    code = (
        "import json; from openai.types.chat import completion_create_params as chat;"
        "from openai.types import completion_create_params as text;"
        "print(json.dumps([sorted(t.__annotations__) for m in (chat, text) for t in "
        "(m.CompletionCreateParamsBase, m.CompletionCreateParamsStreaming)]))"
    )
    chat, chat_stream, text, text_stream = json.loads(
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout
    )
    assert len(chat) > 30
    assert {*chat, *chat_stream} <= set(CHAT_FIELDS)
    assert {*text, *text_stream} <= set(TEXT_FIELDS)


def test_names_of_other_servers_get_a_hint() -> None:
    for path, struct in ((CHAT, ChatRequest), (TEXT, CompletionRequest)):
        names = [name for name in HINTS if name not in struct.__struct_fields__]
        assert len(names) == len(HINTS) - 1  # each has either messages or a prompt
        for name, (status, error) in zip(
            names, ask_all(path, [BASE[path] | {name: 1} for name in names]), strict=True
        ):
            assert (status, error["param"], error["code"]) == (400, name, "unknown_parameter")
            assert HINTS[name] in error["message"]


@pytest.mark.parametrize(
    ("body", "supported"),
    [
        ({"response_format": {"type": "xml"}}, "'text', 'json_object', 'json_schema'"),
        ({"grammar": {"type": "ebnf", "value": ""}}, "'gbnf', 'lark', 'regex'"),
        ({"messages": [{"role": "wizard", "content": ""}]}, "'system', 'developer', 'user'"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "'text', 'refusal'."),
        ({"reasoning_effort": "immense"}, "'high'"),
    ],
)
def test_supported_values_are_listed(body: dict[str, Any], supported: str) -> None:
    ((status, error),) = ask_all(CHAT, [BASE[CHAT] | body])
    assert status == 400
    assert supported in error["message"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"max_tokens": 0}, "max_tokens must be at least 1, not 0."),
        ({"max_tokens": -1}, "max_tokens must be at least 1, not -1."),
        ({"max_completion_tokens": -1}, "max_completion_tokens must be at least 1, not -1."),
        ({"max_tokens": 2**31}, "max_tokens must be at most 2147483647, not 2147483648"),
        ({"top_k": -1}, "top_k must be at least 0, not -1"),
        ({"top_p": 0}, "top_p must be over 0, not 0.0"),
        ({"temperature": 100.5}, "temperature must be at most 100, not 100.5"),
        ({"logit_bias": {"5": 1, "05": 2}}, "'05' names token 5 a second time."),
        (
            {"logit_bias": {"5": None}},
            "for a value of 'logit_bias': expected a number, but got null",
        ),
        ({"modalities": ["audio"]}, 'does not do yet. Leave it out, or send ["text"].'),
        ({"web_search_options": {}}, "does not do yet. Leave it out."),
    ],
)
def test_a_refusal_says_what_would_do(given: dict[str, Any], words: str) -> None:
    ((status, error),) = ask_all(CHAT, [BASE[CHAT] | given])
    assert status == 400
    assert words in error["message"]
    assert error["param"] == next(iter(given))
