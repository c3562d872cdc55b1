"""The official `openai` client's Responses API against a real server with a real model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall
from pydantic import BaseModel, Field

from tests.support.server_process import ServerProcess, wait_for

QWEN = "qwen2.5-coder-0.5b"
Models = Callable[[str], Path]
WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "get_weather",
    "description": "Tells the weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
    "strict": True,
}


class City(BaseModel):
    name: str = Field(max_length=20)
    population: int = Field(ge=0, le=100_000_000)


@pytest.fixture(scope="module")
def server(model_path: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("qwen") / "log"
    flags = ["--target-model", str(model_path(QWEN)), "--draft-model", "none", "--ctx-size", "2048"]
    with ServerProcess(log, *flags) as running:
        yield running


@pytest.fixture
def client(server: ServerProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, timeout=300) as client:
        yield client


FRANCE = "What is the capital of France? Answer in one sentence."
OSLO = "What is the weather in Oslo, in celsius?"


def calls_of(output: list[Any]) -> list[ResponseFunctionToolCall]:
    return [item for item in output if item.type == "function_call"]


def test_a_response(client: OpenAI) -> None:
    response = client.responses.create(model=QWEN, input=FRANCE, temperature=0, max_output_tokens=32)
    assert "Paris" in response.output_text
    assert response.status == "completed"
    assert response.usage is not None
    assert 0 < response.usage.output_tokens <= 32
    assert response.model_extra is not None
    assert response.model_extra["timings"]["predicted_n"] == response.usage.output_tokens
    # The answer goes back as the client holds it.
    question: Any = [{"role": "user", "content": FRANCE}]
    follow_up: Any = [{"role": "user", "content": "And of Italy?"}]
    again = client.responses.create(
        model=QWEN, input=[*question, *response.output, *follow_up], instructions="Be brief.", temperature=0
    )
    assert again.output_text


def test_a_stream_says_what_the_whole_response_says(client: OpenAI) -> None:
    whole = client.responses.create(model=QWEN, input=FRANCE, temperature=0)
    with client.responses.stream(model=QWEN, input=FRANCE, temperature=0) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == whole.output_text
    assert final.usage is not None
    assert whole.usage is not None
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_a_response_that_is_cut_off(client: OpenAI) -> None:
    asked: Any = {"model": QWEN, "input": "Count to 100.", "temperature": 0, "max_output_tokens": 3}
    response = client.responses.create(**asked)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    events = list(client.responses.create(**asked, stream=True))
    assert events[-1].type == "response.incomplete"


def test_tools(client: OpenAI) -> None:
    question: list[Any] = [{"role": "user", "content": OSLO}]
    response = client.responses.create(
        model=QWEN,
        input=question,
        tools=[WEATHER],
        tool_choice={"type": "function", "name": "get_weather"},
        temperature=0,
        max_output_tokens=128,
    )
    (call,) = calls_of(response.output)
    assert call.name == "get_weather"
    assert httpx.Response(200, text=call.arguments).json() == {"city": "Oslo", "unit": "celsius"}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "It rains, at 7 degrees."}
    answer = client.responses.create(
        model=QWEN,
        input=[*question, *response.output, result],
        tools=[WEATHER],
        tool_choice="none",
        temperature=0,
        max_output_tokens=64,
    )
    assert "7" in answer.output_text


def test_streamed_tools(client: OpenAI) -> None:
    with client.responses.stream(
        model=QWEN,
        input=OSLO,
        tools=[WEATHER],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0,
        max_output_tokens=128,
    ) as stream:
        deltas = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
        (call,) = calls_of(stream.get_final_response().output)
    assert "".join(deltas) == call.arguments
    assert len(deltas) > 1
    assert httpx.Response(200, text=call.arguments).json() == {"city": "Oslo", "unit": "celsius"}


def test_structured_output(client: OpenAI) -> None:
    response = client.responses.parse(
        model=QWEN, input="Describe Oslo.", text_format=City, temperature=0, max_output_tokens=64
    )
    assert isinstance(response.output_parsed, City)
    with client.responses.stream(
        model=QWEN, input="Describe Oslo.", text_format=City, temperature=0, max_output_tokens=64
    ) as stream:
        final = stream.get_final_response()
    assert final.output_parsed == response.output_parsed


def test_log_probabilities(client: OpenAI) -> None:
    response = client.responses.create(
        model=QWEN,
        input=FRANCE,
        temperature=0,
        max_output_tokens=8,
        include=["message.output_text.logprobs"],
        top_logprobs=2,
    )
    (part,) = getattr(response.output[0], "content", ())
    entries = part.logprobs
    assert "".join(entry.token for entry in entries) == part.text
    for entry in entries:  # greedy: the likeliest comes
        assert entry.top_logprobs[0].token == entry.token
        assert entry.logprob <= 0


def test_errors(client: OpenAI) -> None:
    image: Any = {
        "role": "user",
        "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}],
    }
    for options, param in (
        ({"input": [image]}, "input[0].content[0]"),
        ({"input": "word " * 3000}, "input"),
        ({"input": "x", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": "x", "tools": [{"type": "web_search"}]}, "tools[0]"),
        ({"input": "x", "temperature": -1}, "temperature"),
    ):
        given: dict[str, Any] = options
        with pytest.raises(openai.BadRequestError) as raised:
            client.responses.create(model=QWEN, **given)
        assert raised.value.param == param
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="gpt-5", input="x")


def test_an_abandoned_stream_frees_the_engine(client: OpenAI, server: ServerProcess) -> None:
    stream = client.responses.create(model=QWEN, input="Count to 1000.", stream=True)
    next(iter(stream))
    stream.close()
    with httpx.Client(base_url=server.url) as health:
        wait_for(lambda: health.get("/health").json()["n_in_flight"] == 0, "an idle engine")
