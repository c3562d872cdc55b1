"""The blocks of a message as they grow, and the events that tell of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from lucebox.server.messages_api.body import Block, TextBlock, ThinkingBlock, ToolUseBlock
from lucebox.server.messages_api.events import (
    BlockDelta,
    BlockStart,
    BlockStop,
    Event,
    InputJsonDelta,
    SignatureDelta,
    TextDelta,
    ThinkingDelta,
)
from lucebox.server.messages_api.partial_json import partial_object
from lucebox.text.answer_parser import CallArguments, CallStart, Content, Reasoning, Segment


class MessageContent:
    """Thinking, text and uses of tools in the order in which the model comes to them; one grows at a time.

    Events hold blocks as they are: each is to be encoded before the next one is asked for. Without
    `shows_thinking` a client learns only that there was some.
    """

    def __init__(self, *, shows_thinking: bool) -> None:
        self.blocks: list[Block] = []
        self._shows_thinking = shows_thinking
        self._is_open = False
        self._thinking = ""
        self._input = ""

    def push(self, segments: Sequence[Segment]) -> Iterator[Event]:
        for segment in segments:
            match segment:
                case Content(text):
                    yield from self._text(text)
                case Reasoning(text):
                    yield from self._think(text)
                case CallStart(_, id, name):
                    block = ToolUseBlock(id=f"toolu_{id.removeprefix('call_')}", name=name, input={})
                    yield from self._begin(block)
                case CallArguments(_, text):
                    self._input += text
                    yield self._delta(InputJsonDelta(text))

    def finish(self) -> Iterator[Event]:
        """The block that still grows ends, perhaps in the middle."""
        if self._is_open:
            yield from self._end()

    def _text(self, text: str) -> Iterator[Event]:
        if not isinstance(self._growing(), TextBlock):
            yield from self._begin(TextBlock())
        block = self._growing()
        assert isinstance(block, TextBlock)
        block.text += text
        yield self._delta(TextDelta(text))

    def _think(self, text: str) -> Iterator[Event]:
        if not isinstance(self._growing(), ThinkingBlock):
            yield from self._begin(ThinkingBlock())
        block = self._growing()
        assert isinstance(block, ThinkingBlock)
        self._thinking += text
        if self._shows_thinking:
            block.thinking += text
            yield self._delta(ThinkingDelta(text))

    def _growing(self) -> Block | None:
        return self.blocks[-1] if self._is_open else None

    def _begin(self, block: Block) -> Iterator[Event]:
        yield from self.finish()
        self._is_open = True
        self.blocks.append(block)
        yield BlockStart(index=len(self.blocks) - 1, content_block=block)

    def _end(self) -> Iterator[Event]:
        block = self.blocks[-1]
        match block:
            case ThinkingBlock():
                block.signature = hashlib.sha256(self._thinking.encode()).hexdigest()
                self._thinking = ""
                yield self._delta(SignatureDelta(block.signature))
            case ToolUseBlock():
                block.input = partial_object(self._input)
                self._input = ""
        self._is_open = False
        yield BlockStop(index=len(self.blocks) - 1)

    def _delta(self, delta: TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta) -> BlockDelta:
        assert self._is_open, "arguments come right after the call that they are of"
        return BlockDelta(index=len(self.blocks) - 1, delta=delta)
