"""What POST /v1/messages sends back, field by field."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from lucebox.server.generation import Bill
from lucebox.server.responses import TimingsBody

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"]


class TextBlock(msgspec.Struct, tag_field="type", tag="text"):
    text: str = ""
    citations: None = None


class ThinkingBlock(msgspec.Struct, tag_field="type", tag="thinking"):
    thinking: str = ""
    signature: str = ""


class ToolUseBlock(msgspec.Struct, tag_field="type", tag="tool_use", kw_only=True):
    id: str
    name: str
    input: dict[str, Any] = {}


Block = TextBlock | ThinkingBlock | ToolUseBlock


class OutputTokensDetails(msgspec.Struct, frozen=True):
    thinking_tokens: int


class MessageUsage(msgspec.Struct, frozen=True):
    """`input_tokens` leaves out those that the prefix cache had. Writing into it costs nothing."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int
    output_tokens_details: OutputTokensDetails

    @classmethod
    def of(cls, bill: Bill) -> MessageUsage:
        return cls(
            input_tokens=bill.n_prompt - bill.n_cached,
            output_tokens=bill.n_completion,
            cache_read_input_tokens=bill.n_cached,
            cache_creation_input_tokens=0,
            output_tokens_details=OutputTokensDetails(bill.n_reasoning or 0),
        )


class MessageBody(msgspec.Struct, tag_field="type", tag="message", kw_only=True):
    id: str
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[Block] = []
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: MessageUsage
    timings: TimingsBody | UnsetType = UNSET


class TokensCount(msgspec.Struct, frozen=True):
    input_tokens: int
