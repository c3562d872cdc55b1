"""What `response_format` and `grammar` of a request come to, and which of them are refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lucebox.errors import RequestError
from lucebox.grammar import Grammar
from lucebox.server.errors import ApiError
from lucebox.server.response_format import check_grammar
from tests.support.scripted_engine import says
from tests.support.serving import CHAT, HELLO, TEXT, ask, serving

HI = says(b"Hi")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def named(**fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", **fields}}


def grammar_of(path: str, fields: dict[str, Any]) -> Grammar | None:
    async def run() -> Grammar | None:
        async with serving(HI) as server:
            start = {"messages": HELLO} if path == CHAT else {"prompt": "a"}
            response = await server.post(path, start | fields)
            assert response.status_code == 200, response.text
            return server.engine.submits[0].params.grammar

    return asyncio.run(run())


ASKED: list[tuple[dict[str, Any], Grammar | None]] = [
    ({}, None),
    ({"response_format": None, "grammar": None}, None),
    ({"response_format": {"type": "text"}}, None),
    ({"response_format": {"type": "json_object"}}, Grammar.json_object()),
    ({"response_format": {"type": "json_object", "schema": SCHEMA}}, Grammar.json_schema(SCHEMA)),
    ({"response_format": named(schema=SCHEMA, strict=True)}, Grammar.json_schema(SCHEMA)),
    ({"response_format": named(schema=SCHEMA, strict=True, description="x")}, Grammar.json_schema(SCHEMA)),
    ({"grammar": 'root ::= "a"'}, Grammar("gbnf", 'root ::= "a"')),
    ({"grammar": 'start: "a"'}, Grammar("lark", 'start: "a"')),
    ({"grammar": {"type": "regex", "value": "a|b"}}, Grammar("regex", "a|b")),
    ({"grammar": {"type": "lark", "value": "start: /::=/"}}, Grammar("lark", "start: /::=/")),
    ({"grammar": 'start: "a"', "response_format": {"type": "text"}}, Grammar("lark", 'start: "a"')),
]


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(("fields", "grammar"), ASKED)
def test_fields_become_grammars(path: str, fields: dict[str, Any], grammar: Grammar | None) -> None:
    assert grammar_of(path, fields) == grammar


@pytest.mark.parametrize("strict", [False, None])
def test_schemas_that_are_not_strict_are_kept_to_as_far_as_possible(strict: bool | None) -> None:
    grammar = grammar_of(CHAT, {"response_format": named(schema=SCHEMA, strict=strict)})
    assert grammar is not None
    assert json.loads(grammar.text) == {**SCHEMA, "x-guidance": {"lenient": True}}


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"response_format": "json"}, "response_format", "expected an object"),
    ({"response_format": {}}, "response_format", "type"),
    ({"response_format": {"type": "yaml"}}, "response_format", "yaml"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "Missing"),
    ({"response_format": named(schema=[])}, "response_format.json_schema.schema", "object"),
    (
        {"response_format": named(schema=SCHEMA, strict="yes")},
        "response_format.json_schema.strict",
        "boolean",
    ),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}}, "", "json_schema.name"),
    ({"response_format": named(schema=SCHEMA, strickt=True)}, "", "strickt"),
    ({"grammar": 5}, "grammar", "string"),
    ({"grammar": {"type": "ebnf", "value": ""}}, "grammar.type", "ebnf"),
    ({"grammar": "x", "response_format": {"type": "json_object"}}, "grammar", "one of them"),
]


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(("fields", "param", "words"), REFUSED)
def test_what_is_refused_is_named(path: str, fields: dict[str, Any], param: str, words: str) -> None:
    start = {"messages": HELLO} if path == CHAT else {"prompt": "a"}
    response = ask(HI, path, start | fields)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"].startswith(param)
    assert words in error["message"] or words in error["param"]


def test_a_grammar_that_the_engine_would_not_take_is_refused_by_the_field_s_name() -> None:
    class Refusing:
        def check_grammar(self, grammar: Grammar) -> None:
            raise RequestError("The grammar cannot be used: it is wrong", param="grammar")

    with pytest.raises(ApiError, match="it is wrong") as raised:
        check_grammar(Grammar.json_object(), Refusing(), "response_format")
    assert (raised.value.param, raised.value.status) == ("response_format", 400)
    check_grammar(None, Refusing(), "response_format")
