"""What messages consist of, and the conversation that they come to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from lucebox.server.conversation import Conversation
from lucebox.server.decode import by_type
from lucebox.server.errors import ApiError

Inert = Any  # documented by Anthropic, and without effect on what we do


class TextBlock(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    text: str
    cache_control: Inert = None
    citations: Inert = None


class ThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking", forbid_unknown_fields=True):
    """What the model thought. The signature proves nothing to us, and is not looked at."""

    thinking: str
    signature: Inert = None


class RedactedThinkingBlock(
    msgspec.Struct, tag_field="type", tag="redacted_thinking", forbid_unknown_fields=True
):
    """Encrypted by somebody else: nothing of it can be told to the model."""

    data: Inert = None


class ToolUseBlock(msgspec.Struct, tag_field="type", tag="tool_use", forbid_unknown_fields=True):
    id: str
    name: str
    input: dict[str, Any]
    cache_control: Inert = None
    caller: Inert = None
    toolset_name: None = None


class ToolResultBlock(msgspec.Struct, tag_field="type", tag="tool_result", forbid_unknown_fields=True):
    tool_use_id: str
    content: str | list[Any] | None = None
    is_error: bool | None = None
    cache_control: Inert = None
    toolset_name: None = None


UserBlock = TextBlock | ToolResultBlock
AssistantBlock = TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock
_TEXTS: Mapping[str, type[TextBlock]] = {"text": TextBlock}
_USER: Mapping[str, type[UserBlock]] = {"text": TextBlock, "tool_result": ToolResultBlock}
_ASSISTANT: Mapping[str, type[AssistantBlock]] = {
    "text": TextBlock,
    "thinking": ThinkingBlock,
    "redacted_thinking": RedactedThinkingBlock,
    "tool_use": ToolUseBlock,
}


class InputMessage(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["user", "assistant", "system"]
    content: str | list[Any]


def conversation(messages: Sequence[InputMessage], system: str | list[Any] | None) -> list[dict[str, Any]]:
    """Messages for a chat template. Raises ApiError naming what cannot be told to the model."""
    if not messages:
        raise ApiError("'messages' is an empty list.", param="messages", code="empty_array")
    if messages[-1].role == "assistant":
        raise ApiError(
            "'messages' ends with a message of the assistant, and this server does not continue answers; "
            "end with one of the user.",
            param=f"messages[{len(messages) - 1}].role",
            code="invalid_value",
        )
    talk = Conversation()
    if system:
        talk.say("system", _text(system, "system"))
    for i, message in enumerate(messages):
        at = f"messages[{i}].content"
        match message.role:
            case "user":
                _add_user(talk, message.content, at)
            case "assistant":
                _add_assistant(talk, message.content, at)
            case "system":
                talk.say("system", _text(message.content, at))
    return talk.messages


def _add_user(talk: Conversation, content: str | list[Any], at: str) -> None:
    if isinstance(content, str):
        talk.ask(content)
        return
    for i, given in enumerate(content):
        match by_type(given, _USER, f"{at}[{i}]"):
            case TextBlock(text):
                talk.ask(text)
            case ToolResultBlock() as result:
                text = _text(result.content or "", f"{at}[{i}].content")
                text = f"Error: {text}" if result.is_error else text
                talk.result(result.tool_use_id, text, f"{at}[{i}].tool_use_id")


def _add_assistant(talk: Conversation, content: str | list[Any], at: str) -> None:
    if isinstance(content, str):
        talk.answer(content)
        return
    for i, given in enumerate(content):
        match by_type(given, _ASSISTANT, f"{at}[{i}]"):
            case TextBlock(text):
                talk.answer(text)
            case ThinkingBlock(thinking):
                talk.think(thinking)
            case ToolUseBlock(id=id, name=name, input=input):
                talk.call(id, name, json.dumps(input, ensure_ascii=False))


def _text(content: str | list[Any], at: str) -> str:
    """The text blocks, one a line."""
    if isinstance(content, str):
        return content
    return "\n".join(by_type(block, _TEXTS, f"{at}[{i}]").text for i, block in enumerate(content))
