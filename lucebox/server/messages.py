"""Chat messages as OpenAI's API has them, and as chat templates want them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from lucebox.server.errors import ApiError
from lucebox.server.unsupported_types import unsupported_type

PART_TYPES = ("text", "refusal")
ROLES = ("system", "developer", "user", "assistant", "tool")


class TextPart(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    text: str


class RefusalPart(msgspec.Struct, tag_field="type", tag="refusal", forbid_unknown_fields=True):
    refusal: str


class ImagePart(msgspec.Struct, tag_field="type", tag="image_url"):
    image_url: Any = None


class AudioPart(msgspec.Struct, tag_field="type", tag="input_audio"):
    input_audio: Any = None


class FilePart(msgspec.Struct, tag_field="type", tag="file"):
    file: Any = None


Part = TextPart | RefusalPart | ImagePart | AudioPart | FilePart
Content = str | list[Part]


class PredictionPart(msgspec.Struct, forbid_unknown_fields=True):
    type: Literal["text"]
    text: str


class Prediction(msgspec.Struct, forbid_unknown_fields=True):
    """What the answer is expected to be, or to have much of."""

    type: Literal["content"]
    content: str | list[PredictionPart]

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class FunctionCall(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: str


class ToolCall(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class SystemMessage(msgspec.Struct, tag_field="role", tag="system", forbid_unknown_fields=True):
    content: Content
    name: str | None = None


class DeveloperMessage(msgspec.Struct, tag_field="role", tag="developer", forbid_unknown_fields=True):
    """What OpenAI calls a system message for its newer models."""

    content: Content
    name: str | None = None


class UserMessage(msgspec.Struct, tag_field="role", tag="user", forbid_unknown_fields=True):
    content: Content
    name: str | None = None


class AssistantMessage(msgspec.Struct, tag_field="role", tag="assistant", forbid_unknown_fields=True):
    """May be an answer of ours sent back whole, empty fields and all."""

    content: Content | None = None
    name: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    annotations: list[Any] | None = None
    audio: None = None
    function_call: None = None


class ToolMessage(msgspec.Struct, tag_field="role", tag="tool", forbid_unknown_fields=True):
    content: Content
    tool_call_id: str


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


def template_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """`messages` for a chat template, each content one string. Raises ApiError naming what is no text."""
    if not messages:
        raise ApiError(
            "Invalid 'messages': empty array. Expected at least one message.",
            param="messages",
            code="empty_array",
        )
    return [_template_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _template_message(message: Message, path: str) -> dict[str, Any]:
    out: dict[str, Any] = {"role": _template_role(message), "content": _text(message.content, path)}
    match message:
        case AssistantMessage(refusal=str(refusal)) if not out["content"]:
            out["content"] = refusal
        case ToolMessage(tool_call_id=id):
            out["tool_call_id"] = id
    if isinstance(message, AssistantMessage):
        if message.tool_calls:
            out["tool_calls"] = [msgspec.to_builtins(call) for call in message.tool_calls]
        if message.reasoning_content:
            out["reasoning_content"] = message.reasoning_content
    if not isinstance(message, ToolMessage) and message.name is not None:
        out["name"] = message.name
    return out


def _template_role(message: Message) -> str:
    role = str(message.__struct_config__.tag)
    return "system" if role == "developer" else role


def _text(content: Content | None, path: str) -> str | None:
    """The content's text parts, one a line. Templates of models that see only text take a string."""
    if content is None or isinstance(content, str):
        return content
    texts: list[str] = []
    for i, part in enumerate(content):
        match part:
            case TextPart():
                texts.append(part.text)
            case RefusalPart():
                texts.append(part.refusal)
            case ImagePart() | AudioPart() | FilePart():
                kind = str(part.__struct_config__.tag)
                raise unsupported_type(f"{path}.content[{i}]", kind, PART_TYPES)
    return "\n".join(texts)
