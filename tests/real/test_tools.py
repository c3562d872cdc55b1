"""Tools and structured outputs with the real `openai` client, speculation on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest
from openai import OpenAI
from pydantic import BaseModel

from tests.support.server_process import ServerProcess

SMOL, QWEN = "smollm2-135m", "qwen2.5-coder-0.5b"
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
    },
    "required": ["city", "unit"],
    "additionalProperties": False,
}
SUM = {
    "type": "object",
    "properties": {"terms": {"type": "array", "items": {"type": "integer", "maximum": 999}, "maxItems": 4}},
    "required": ["terms"],
    "additionalProperties": False,
}
SCHEMAS = {"get_weather": WEATHER, "add": SUM}
TOOLS: Any = [
    {
        "type": "function",
        "function": {"name": "get_weather", "description": "Weather of a city.", "parameters": WEATHER},
    },
    {"type": "function", "function": {"name": "add", "description": "Adds integers.", "parameters": SUM}},
]
NAMED: Any = {"type": "function", "function": {"name": "add"}}
QUESTION: Any = [{"role": "user", "content": "What is the weather in Paris, in celsius?"}]


@pytest.fixture(scope="module", params=[SMOL, QWEN])
def server(
    request: pytest.FixtureRequest,
    model_path: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ServerProcess]:
    """A model whose template knows no tools, and one whose does; a free drafter guesses for both."""
    log = tmp_path_factory.mktemp("tools") / "log"
    flags = [
        "--target-model",
        str(model_path(request.param)),
        "--draft-model",
        "suffix",
        "--ctx-size",
        "2048",
    ]
    with ServerProcess(log, *flags, "--model-alias", "m") as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0, timeout=300) as client:
        yield client


def checked(calls: Any) -> list[str]:
    """The names of `calls`, each of them valid."""
    for call in calls:
        jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])
    return [call.function.name for call in calls]


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_the_choice_is_kept_to(client: OpenAI, choice: Any) -> None:
    for seed in range(5):
        answer = client.chat.completions.create(
            model="m",
            messages=QUESTION,
            tools=TOOLS,
            tool_choice=choice,
            parallel_tool_calls=False,
            temperature=1,
            n=4,
            seed=10 * seed,
            max_tokens=200,
        )
        for one in answer.choices:
            assert one.finish_reason == "tool_calls"
            (name,) = checked(one.message.tool_calls)
            assert choice == "required" or name == "add"
            assert not one.message.content


def test_none_is_kept_to(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="m", messages=QUESTION, tools=TOOLS, tool_choice="none", temperature=0, max_tokens=16
    )
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].message.content


def test_a_round_trip(client: OpenAI) -> None:
    def create(**more: Any) -> Any:
        return client.chat.completions.create(
            model="m", messages=messages, tools=TOOLS, temperature=0, max_tokens=64, **more
        )

    messages = list(QUESTION)
    whole = create(tool_choice="required", parallel_tool_calls=False)
    message = whole.choices[0].message
    assert checked(message.tool_calls) == ["get_weather"]
    name = arguments = content = ""
    finish = None
    for chunk in create(tool_choice="required", parallel_tool_calls=False, stream=True):
        delta = chunk.choices[0].delta
        content += delta.content or ""
        for call in delta.tool_calls or []:
            name += call.function.name or ""
            arguments += call.function.arguments or ""
        finish = chunk.choices[0].finish_reason or finish
    jsonschema.validate(json.loads(arguments), SCHEMAS[name])
    assert (content, finish) == ("", "tool_calls")
    (call,) = message.tool_calls
    messages += [message, {"role": "tool", "tool_call_id": call.id, "content": '{"temperature": 17}'}]
    answer = create(tool_choice="none")
    assert answer.choices[0].message.content


def test_tools_beside_a_form_of_the_answer(client: OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "sum", "schema": SUM}}
    answer = client.chat.completions.create(
        model="m", messages=QUESTION, tools=TOOLS, response_format=form, n=4, seed=1, max_tokens=200
    )
    for choice in answer.choices:
        if choice.finish_reason == "tool_calls":
            assert checked(choice.message.tool_calls)
        elif choice.finish_reason == "stop":
            jsonschema.validate(json.loads(choice.message.content or ""), SUM)


class Reading(BaseModel):
    city: Literal["Paris", "Rome"]
    degrees: Literal[15, 20, 25]


def test_structured_outputs_as_pydantic_models(client: OpenAI) -> None:
    answer = client.chat.completions.parse(
        model="m", messages=QUESTION, response_format=Reading, max_tokens=64, temperature=1
    )
    assert isinstance(answer.choices[0].message.parsed, Reading)
