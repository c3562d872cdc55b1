"""GET /openapi.json: it is valid, it has every route, and what the server takes and says follows it."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import jsonschema
import msgspec
import pytest
from starlette.routing import Route

from lucebox.server import page
from lucebox.server.application import ROUTES
from lucebox.server.openapi import document, markdown_table
from lucebox.server.operation import EVENTS, JSON, Operation
from tests.support.scripted_engine import says
from tests.support.serving import CHAT, HELLO, TEXT, events, serving

DOCUMENT = document(ROUTES)
OPERATIONS = [route for route in ROUTES if isinstance(route, Operation)]
COMPLETE = {"messages": HELLO, "max_tokens": 4}


def schema_of(path: str, method: str, status: str, media: str = JSON) -> dict[str, Any]:
    content = DOCUMENT["paths"][path][method]["responses"][status]["content"]
    return {**content[media]["schema"], "components": DOCUMENT["components"]}


def check(value: Any, schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(schema).validate(value)


def test_every_route_but_the_page_is_described() -> None:
    assert [route for route in ROUTES if not isinstance(route, Operation)] == list(page.routes)
    described = {(path, method) for path, item in DOCUMENT["paths"].items() for method in item}
    assert described == {
        (re.sub(r":\w+}", "}", operation.path), operation.method.lower()) for operation in OPERATIONS
    }
    assert all(isinstance(route, Route) for route in ROUTES)


def test_every_reference_leads_somewhere_and_every_schema_is_one() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    found = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(DOCUMENT)))
    assert found <= set(schemas)
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    assert all(re.fullmatch(r"[\w.-]+", name) for name in schemas), "what OpenAPI allows as names"


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_operation_says_what_it_takes_and_gives(operation: Operation) -> None:
    path = re.sub(r":\w+}", "}", operation.path)
    shown = DOCUMENT["paths"][path][operation.method.lower()]
    assert shown["operationId"] == operation.name
    assert {"200", "4XX", "5XX"} <= set(shown["responses"])
    assert ("requestBody" in shown) is (operation.method == "POST")
    if "requestBody" in shown:
        content = shown["requestBody"]["content"][JSON]
        check(content["example"], {**content["schema"], "components": DOCUMENT["components"]})
    for response in shown["responses"].values():
        assert response["description"]
        for media in response["content"].values():
            assert media["schema"], "an answer of no form"
    assert bool(shown.get("parameters")) is ("{" in path)


def test_operations_have_names_of_their_own() -> None:
    names = [operation.name for operation in OPERATIONS]
    assert len(set(names)) == len(names)


def test_answers_and_errors_follow_their_schemas() -> None:
    async def run() -> None:
        async with serving(says(b"hi", b" you")) as server:
            for path, body in (
                (CHAT, {**COMPLETE, "logprobs": True, "top_logprobs": 2}),
                (TEXT, {"prompt": "x", "logprobs": 2}),
                ("/v1/responses", {"input": "x"}),
                ("/v1/messages", COMPLETE),
                ("/v1/messages/count_tokens", {"messages": HELLO}),
                ("/v1/embeddings", {"input": ["a"]}),
                ("/v1/embeddings", {"input": "a", "encoding_format": "base64"}),
                ("/tokenize", {"content": "a", "with_pieces": True}),
                ("/detokenize", {"tokens": [97]}),
                ("/apply-template", {"messages": HELLO}),
            ):
                if path.startswith("/v1/messages"):
                    body = {**body, "model": "tiny"}
                response = await server.post(path, body)
                assert response.status_code == 200, (path, response.text)
                check(response.json(), schema_of(path, "post", "200"))
                refused = await server.post(path, {"no": "field"})
                assert refused.status_code == 400
                check(refused.json(), schema_of(path, "post", "4XX"))
            for path in ("/v1/models", "/props", "/slots", "/health", "/openapi.json"):
                response = await server.http.get(path)
                assert response.status_code == 200
                check(response.json(), schema_of(path, "get", "200"))

    asyncio.run(run())


@pytest.mark.parametrize(("path", "body"), [(CHAT, COMPLETE), (TEXT, {"prompt": "x"})])
def test_events_follow_their_schema(path: str, body: Any) -> None:
    async def run() -> None:
        async with serving(says(b"hi", b" you")) as server:
            options = {"stream": True, "stream_options": {"include_usage": True}}
            shown = schema_of(path, "post", "200", EVENTS)
            data, end = shown["properties"]["data"]["anyOf"]
            assert end == {"const": "[DONE]"}
            schema = data["contentSchema"]
            for event in events(await server.post(path, {**body, **options})):
                check(event, {**schema, "components": DOCUMENT["components"]})

    asyncio.run(run())


def test_health_has_one_form_ready_or_not() -> None:
    async def run() -> None:
        async with serving(says(b""), ready=False) as server:
            response = await server.http.get("/health")
            assert response.status_code == 503
            check(response.json(), schema_of("/health", "get", "503"))

    asyncio.run(run())


@pytest.mark.parametrize("keys", [(), ("k",)])
def test_keys_are_described_where_they_are_needed(keys: tuple[str, ...]) -> None:
    async def run() -> dict[str, Any]:
        async with serving(says(b""), api_keys=keys, root_path="/llm") as server:
            headers = {"x-api-key": "k"}
            response = await server.http.get("/openapi.json", headers=headers)
            return msgspec.json.decode(response.content, type=dict[str, Any])

    shown = asyncio.run(run())
    assert ("security" in shown) is bool(keys)
    assert shown["servers"] == [{"url": "/llm"}]


def test_the_table_has_every_operation() -> None:
    assert len(markdown_table(ROUTES).splitlines()) == len(OPERATIONS) + 2
