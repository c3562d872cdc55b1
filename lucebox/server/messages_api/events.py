"""The events of a streamed message, field by field."""

from __future__ import annotations

import msgspec

from lucebox.server.messages_api.body import Block, MessageBody, MessageUsage, StopReason
from lucebox.server.responses import TimingsBody


class Event(msgspec.Struct, tag_field="type", kw_only=True, frozen=True): ...


class MessageStart(Event, tag="message_start", kw_only=True, frozen=True):
    message: MessageBody


class Ping(Event, tag="ping", frozen=True): ...


class BlockStart(Event, tag="content_block_start", kw_only=True, frozen=True):
    index: int
    content_block: Block


class TextDelta(msgspec.Struct, tag_field="type", tag="text_delta", frozen=True):
    text: str


class ThinkingDelta(msgspec.Struct, tag_field="type", tag="thinking_delta", frozen=True):
    thinking: str


class SignatureDelta(msgspec.Struct, tag_field="type", tag="signature_delta", frozen=True):
    signature: str


class InputJsonDelta(msgspec.Struct, tag_field="type", tag="input_json_delta", frozen=True):
    partial_json: str


class BlockDelta(Event, tag="content_block_delta", kw_only=True, frozen=True):
    index: int
    delta: TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta


class BlockStop(Event, tag="content_block_stop", kw_only=True, frozen=True):
    index: int


class Stop(msgspec.Struct, frozen=True):
    stop_reason: StopReason | None
    stop_sequence: str | None


class MessageDelta(Event, tag="message_delta", kw_only=True, frozen=True):
    delta: Stop
    usage: MessageUsage
    timings: TimingsBody


class MessageStop(Event, tag="message_stop", frozen=True): ...


AnyEvent = MessageStart | Ping | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop
