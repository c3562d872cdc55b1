"""What a request's `input` consists of, and the conversation that it comes to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from lucebox.server.conversation import Conversation
from lucebox.server.decode import by_type
from lucebox.server.errors import ApiError

Inert = Any  # comes with items that a response had, and says nothing to the model
Status = Literal["in_progress", "completed", "incomplete"] | None


class InputText(msgspec.Struct, tag_field="type", tag="input_text", forbid_unknown_fields=True):
    text: str
    prompt_cache_breakpoint: Inert = None


class OutputText(msgspec.Struct, tag_field="type", tag="output_text", forbid_unknown_fields=True):
    """A part of an answer sent back."""

    text: str
    annotations: Inert = None
    logprobs: Inert = None


class RefusalPart(msgspec.Struct, tag_field="type", tag="refusal", forbid_unknown_fields=True):
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


class ReasoningText(msgspec.Struct, tag_field="type", tag="reasoning_text", forbid_unknown_fields=True):
    text: str


class SummaryText(msgspec.Struct, tag_field="type", tag="summary_text", forbid_unknown_fields=True):
    text: str


class MessageItem(msgspec.Struct, tag_field="type", tag="message", forbid_unknown_fields=True):
    """A message; also an answer of ours sent back whole."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Any]
    id: str | None = None
    status: Status = None
    phase: Inert = None


class FunctionCallItem(msgspec.Struct, tag_field="type", tag="function_call", forbid_unknown_fields=True):
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: Status = None
    caller: Inert = None
    namespace: None = None


class FunctionCallOutputItem(
    msgspec.Struct, tag_field="type", tag="function_call_output", forbid_unknown_fields=True
):
    call_id: str
    output: str | list[Any]
    id: str | None = None
    status: Status = None
    name: Inert = None
    caller: Inert = None
    namespace: None = None


class ReasoningItem(msgspec.Struct, tag_field="type", tag="reasoning", forbid_unknown_fields=True):
    """What a model thought; of one that was encrypted by somebody else only the summary can be read."""

    summary: list[Any] = []
    content: list[Any] | None = None
    id: str | None = None
    encrypted_content: Inert = None
    status: Status = None


Item = MessageItem | FunctionCallItem | FunctionCallOutputItem | ReasoningItem
TextPart = InputText | OutputText | RefusalPart | ReasoningText | SummaryText
_ITEMS: Mapping[str, type[Item]] = {
    "message": MessageItem,
    "function_call": FunctionCallItem,
    "function_call_output": FunctionCallOutputItem,
    "reasoning": ReasoningItem,
}
_MESSAGE_PARTS: Mapping[str, type[TextPart]] = {
    "input_text": InputText,
    "output_text": OutputText,
    "refusal": RefusalPart,
}


def conversation(input: str | list[Any], instructions: str | None) -> list[dict[str, Any]]:
    """Messages for a chat template. Raises ApiError naming what of `input` is no text."""
    talk = Conversation()
    if instructions:
        talk.say("system", instructions)
    if isinstance(input, str):
        talk.say("user", input)
        return talk.messages
    if not input:
        raise ApiError("'input' is an empty list.", param="input", code="empty_array")
    for i, item in enumerate(input):
        at = f"input[{i}]"
        _add(talk, by_type(item, _ITEMS, at, "message"), at)
    return talk.messages


def _add(talk: Conversation, item: Item, at: str) -> None:
    match item:
        case MessageItem(role="assistant"):
            talk.answer(_text(item.content, _MESSAGE_PARTS, f"{at}.content"))
        case MessageItem(role=role):
            role = "system" if role == "developer" else role
            talk.say(role, _text(item.content, _MESSAGE_PARTS, f"{at}.content"))
        case FunctionCallItem():
            talk.call(item.call_id, item.name, item.arguments)
        case FunctionCallOutputItem():
            text = _text(item.output, {"input_text": InputText}, f"{at}.output")
            talk.result(item.call_id, text, f"{at}.call_id")
        case ReasoningItem():
            content = _text(item.content or [], {"reasoning_text": ReasoningText}, f"{at}.content")
            summary = _text(item.summary, {"summary_text": SummaryText}, f"{at}.summary")
            if thought := content or summary:
                talk.think(thought)


def _text(content: str | list[Any], kinds: Mapping[str, type[TextPart]], at: str) -> str:
    """The text parts, one a line."""
    if isinstance(content, str):
        return content
    return "\n".join(by_type(part, kinds, f"{at}[{i}]").text for i, part in enumerate(content))
