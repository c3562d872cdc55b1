"""The official `anthropic` client against a real server with a real model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import Anthropic, beta_tool
from anthropic.types import ToolParam

from tests.support.server_process import ServerProcess, wait_for

KEY = "test-key"
QWEN = "qwen2.5-coder-0.5b"
Models = Callable[[str], Path]
WEATHER: ToolParam = {
    "name": "get_weather",
    "description": "Tells the weather in a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def server(model_path: Models, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("qwen") / "log"
    flags = ["--target-model", str(model_path(QWEN)), "--draft-model", "none", "--ctx-size", "2048"]
    with ServerProcess(log, *flags, environ={"LUCEBOX_API_KEY": KEY}) as running:
        yield running


def client_of(server: ServerProcess, **options: Any) -> Anthropic:
    return Anthropic(base_url=server.url, max_retries=0, timeout=300, **options)


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Anthropic]:
    with client_of(server, api_key=KEY) as client:
        yield client


def ask(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


FRANCE = ask("What is the capital of France? Answer in one sentence.")
GREEDY = {"temperature": 0.0}  # which the client has no name for any more


def test_a_message(client: Anthropic) -> None:
    message = client.messages.create(model=QWEN, max_tokens=32, messages=FRANCE, extra_body=GREEDY)
    (block,) = message.content
    assert block.type == "text"
    assert "Paris" in block.text
    assert message.stop_reason == "end_turn"
    assert 0 < message.usage.output_tokens <= 32
    assert message.model_extra is not None
    assert message.model_extra["timings"]["predicted_n"] == message.usage.output_tokens
    # The answer goes back as the client holds it.
    messages = [*FRANCE, message.to_param(), *ask("And of Italy?")]
    again = client.messages.create(model=QWEN, max_tokens=16, messages=messages, extra_body=GREEDY)
    assert again.content


def test_a_stream_says_what_the_whole_message_says(client: Anthropic) -> None:
    whole = client.messages.create(model=QWEN, max_tokens=32, messages=FRANCE, extra_body=GREEDY)
    with client.messages.stream(model=QWEN, max_tokens=32, messages=FRANCE, extra_body=GREEDY) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == getattr(whole.content[0], "text", None)
    assert len(final.content) == len(whole.content)
    assert (final.stop_reason, final.stop_sequence) == (whole.stop_reason, whole.stop_sequence)
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_raw_events(client: Anthropic) -> None:
    events = list(client.messages.create(model=QWEN, max_tokens=4, messages=FRANCE, stream=True))
    kinds = [event.type for event in events]
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]


def test_a_system_prompt_and_a_stop_sequence(client: Anthropic) -> None:
    message = client.messages.create(
        model=QWEN,
        max_tokens=64,
        system=[{"type": "text", "text": "You count.", "cache_control": {"type": "ephemeral"}}],
        messages=ask("Count from 1 to 9, separated by commas."),
        stop_sequences=["5"],
        extra_body=GREEDY,
    )
    assert message.stop_reason == "stop_sequence"
    assert message.stop_sequence == "5"
    assert "4" in getattr(message.content[0], "text", "")
    assert "5" not in getattr(message.content[0], "text", "")


def test_max_tokens(client: Anthropic) -> None:
    message = client.messages.create(model=QWEN, max_tokens=3, messages=ask("Count to 100."))
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 3


def test_tools(client: Anthropic) -> None:
    question = ask("What is the weather in Oslo, in celsius?")
    message = client.messages.create(
        model=QWEN,
        max_tokens=128,
        messages=question,
        tools=[WEATHER],
        tool_choice={"type": "tool", "name": "get_weather"},
        extra_body=GREEDY,
    )
    assert message.stop_reason == "tool_use"
    (use,) = [block for block in message.content if block.type == "tool_use"]
    assert use.name == "get_weather"
    assert use.input == {"city": "Oslo", "unit": "celsius"}
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "It rains, at 7 degrees."}
    answer = client.messages.create(
        model=QWEN,
        max_tokens=64,
        messages=[*question, message.to_param(), {"role": "user", "content": [result]}],  # type: ignore[list-item]
        tools=[WEATHER],
        tool_choice={"type": "none"},
        extra_body=GREEDY,
    )
    assert "7" in getattr(answer.content[0], "text", "")


def test_streamed_tools(client: Anthropic) -> None:
    with client.messages.stream(
        model=QWEN,
        max_tokens=128,
        messages=ask("What is the weather in Oslo, in celsius?"),
        tools=[WEATHER],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        extra_body=GREEDY,
    ) as stream:
        parts = [event.partial_json for event in stream if event.type == "input_json"]
        message = stream.get_final_message()
    (use,) = [block for block in message.content if block.type == "tool_use"]
    assert use.input == {"city": "Oslo", "unit": "celsius"}
    assert len(parts) > 1


def test_structured_output(client: Anthropic) -> None:
    schema = {
        "type": "object",
        "properties": {name: {"type": "string", "maxLength": 20} for name in ("city", "country")},
        "required": ["city", "country"],
        "additionalProperties": False,
    }
    message = client.messages.create(
        model=QWEN,
        max_tokens=64,
        messages=ask("Describe Oslo."),
        output_config={"format": {"type": "json_schema", "schema": schema}},
        extra_body=GREEDY,
    )
    text = getattr(message.content[0], "text", "")
    assert set(httpx.Response(200, text=text).json()) == {"city", "country"}


def test_a_loop_of_the_clients_own(client: Anthropic) -> None:
    """The client runs tools by itself. It asks for a thread first, and goes on without one."""
    cities: list[str] = []

    @beta_tool
    def get_weather(city: str) -> str:
        """Tells the weather in a city."""
        cities.append(city)
        return "It rains, at 7 degrees."

    runner = client.beta.messages.tool_runner(
        model=QWEN,
        max_tokens=128,
        messages=ask("What is the weather in Oslo? Call the tool."),
        tools=[get_weather],
        tool_choice={"type": "tool", "name": "get_weather"},
        max_iterations=2,
        extra_body=GREEDY,
    )
    messages = list(runner)
    assert len(messages) == 2
    assert "Oslo" in cities[0]
    assert messages[0]._request_id


def test_count_tokens(client: Anthropic) -> None:
    counted = client.messages.count_tokens(model=QWEN, messages=FRANCE, system="Be brief.", tools=[WEATHER])
    message = client.messages.create(
        model=QWEN, max_tokens=1, messages=FRANCE, system="Be brief.", tools=[WEATHER]
    )
    usage = message.usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_errors(client: Anthropic, server: ServerProcess) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    image: Any = {"role": "user", "content": [{"type": "image", "source": source}]}
    with pytest.raises(anthropic.BadRequestError, match="image"):
        client.messages.create(model=QWEN, max_tokens=4, messages=[image])
    with pytest.raises(anthropic.BadRequestError, match="maximum context length"):
        client.messages.create(model=QWEN, max_tokens=4, messages=ask("word " * 3000))
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(model="claude-5", max_tokens=4, messages=FRANCE)
    with client_of(server, api_key="wrong") as stranger, pytest.raises(anthropic.AuthenticationError):
        stranger.messages.create(model=QWEN, max_tokens=4, messages=FRANCE)


def test_a_key_as_a_bearer_token(server: ServerProcess) -> None:
    with client_of(server, auth_token=KEY) as client:
        assert client.messages.create(model=QWEN, max_tokens=2, messages=FRANCE).content


def test_an_abandoned_stream_frees_the_engine(client: Anthropic, server: ServerProcess) -> None:
    stream = client.messages.create(model=QWEN, max_tokens=1000, messages=ask("Count to 1000."), stream=True)
    next(iter(stream))
    stream.close()
    with httpx.Client(base_url=server.url) as health:
        wait_for(lambda: health.get("/health").json()["n_in_flight"] == 0, "an idle engine")
