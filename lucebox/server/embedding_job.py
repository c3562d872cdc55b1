"""Texts of one HTTP request on their way through the engine: EmbeddingJob."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lucebox.config import Pooling
from lucebox.engine.client import EngineClient
from lucebox.engine.messages import Embed, Embedded, Failed
from lucebox.errors import EngineError, LuceboxError, QueueFullError
from lucebox.server.mailbox import Mailbox

Vector = NDArray[np.float32]


class EmbeddingJob:
    """Embeds `texts`, at most `n_at_once` at a time, so that one request leaves room for others.

    A context: leaving it cancels what has not ended.
    """

    def __init__(
        self, engine: EngineClient, id: str, texts: Sequence[list[int]], pooling: Pooling, n_at_once: int
    ) -> None:
        self._engine = engine
        self._id = id
        self._texts = texts
        self._pooling = pooling
        self._n_at_once = n_at_once
        self._n_submitted = 0
        self._running: set[int] = set()
        self._mailbox = Mailbox(asyncio.get_running_loop())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for index in self._running:
            self._engine.cancel(self._text_id(index))
        self._running.clear()

    async def vectors(self) -> list[Vector]:
        """Each float32[n_embd] of length 1, in the order of the texts. Raises the error of one that fails."""
        found: dict[int, Vector] = {}
        while len(found) < len(self._texts):
            self._submit_more()
            arrived = await self._mailbox.get()
            assert arrived is not None, "without a timeout something arrives"
            index, event = arrived
            self._running.discard(index)
            match event:
                case Failed():
                    raise event.error()
                case Embedded():
                    found[index] = np.frombuffer(event.vector, "<f4")
                case _:
                    raise EngineError("the server is shutting down")
        return [found[index] for index in range(len(self._texts))]

    def abort(self, error: LuceboxError) -> None:
        """Ends the request with `error`. From the loop's thread."""
        for index in self._running:
            self._mailbox.put(index, Failed.of(self._text_id(index), error))

    def _submit_more(self) -> None:
        """A queue that is full is no error while some of ours run: there is room again when they end."""
        while len(self._running) < self._n_at_once and self._n_submitted < len(self._texts):
            index = self._n_submitted
            text = self._texts[index]
            embed = Embed(id=self._text_id(index), prompt=text, pooling=self._pooling, group=self._id)
            try:
                self._engine.submit(embed, partial(self._mailbox.put, index))
            except QueueFullError:
                if not self._running:
                    raise
                return
            self._running.add(index)
            self._n_submitted += 1

    def _text_id(self, index: int) -> str:
        return f"{self._id}/{index}"
