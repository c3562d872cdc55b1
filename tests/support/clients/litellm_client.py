"""litellm against the server at argv[1]: completion, stream, tools."""

import json
import sys

import litellm

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two integers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}


def main() -> None:
    litellm.telemetry = False
    common = {
        "model": "openai/m",
        "api_base": f"{sys.argv[1]}/v1",
        "api_key": "x",
        "messages": [{"role": "user", "content": "What is 2 plus 3?"}],
        "temperature": 0,
        "max_tokens": 96,
        "num_retries": 0,
    }
    whole = litellm.completion(**common)
    assert whole.choices[0].message.content
    assert whole.usage.completion_tokens > 0
    pieces = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(**common, stream=True)]
    assert "".join(pieces) == whole.choices[0].message.content
    forced = {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "add"}}}
    (call,) = litellm.completion(**common, **forced).choices[0].message.tool_calls
    assert call.function.name == "add"
    assert set(json.loads(call.function.arguments)) >= {"a", "b"}
    chunks = list(litellm.completion(**common, **forced, stream=True))
    (again,) = litellm.stream_chunk_builder(chunks).choices[0].message.tool_calls
    assert again.function.arguments == call.function.arguments


main()
