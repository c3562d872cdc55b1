"""What all routes share: the engine, the text side of its target, and what both are called."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from lucebox.config import EngineConfig, ServerConfig
from lucebox.engine.client import EngineClient, EngineState, EngineStatus, StatusHandler
from lucebox.engine.messages import EngineInfo
from lucebox.errors import EngineError, LuceboxError
from lucebox.server.errors import ApiError, unavailable
from lucebox.server.generation import Generation
from lucebox.server.logprobs import TokenNames

logger = logging.getLogger(__name__)

RESTART_WAIT_S = 8.0


class TextModel(Protocol):
    """Text to tokens and back, as the target has it. Safe to use from several threads."""

    @property
    def n_vocab(self) -> int: ...

    @property
    def vocabulary(self) -> TokenNames: ...

    def encode(self, text: str) -> list[int]:
        """A raw prompt; control tokens in it count as such."""
        ...

    def encode_plain(self, text: str) -> list[int]:
        """A piece of text; names of control tokens are text like any other."""
        ...

    def encode_chat(self, messages: list[dict[str, Any]]) -> list[int]:
        """Messages through the chat template, ready for the answer. Raises TemplateError."""
        ...


@dataclass(frozen=True, slots=True)
class Serving:
    """A service that can answer now."""

    engine: EngineClient
    text: TextModel
    info: EngineInfo


class Service:
    """Loads engine and text model, and hands them to requests as long as both stand.

    `on_status` hears of every change, from threads of the engine and of the loop.
    """

    def __init__(
        self,
        config: ServerConfig,
        make_engine: Callable[[EngineConfig, StatusHandler], EngineClient],
        load_text: Callable[[EngineConfig], TextModel],
        on_status: StatusHandler | None = None,
    ) -> None:
        self.config = config
        self.names = _names(config)
        self._load_text = load_text
        self._on_status = on_status
        self._text: TextModel | None = None
        self._error: LuceboxError | None = None
        self._running: set[Generation] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._loading: asyncio.Task[None] | None = None
        self.created = int(time.time())
        self._engine = make_engine(config.engine, self._note_status)

    @property
    def name(self) -> str:
        """What the model is called in the API."""
        return self.config.model_alias

    def start(self) -> None:
        """Begins to load, and returns at once. A failure shows in `status`. On the loop."""
        self._loop = asyncio.get_running_loop()
        self._engine.start()
        self._loading = asyncio.create_task(self._load())

    async def close(self) -> None:
        """Ends every request and the engine, and waits until its memory is free."""
        self.abort(EngineError("the server is shutting down"))
        await asyncio.to_thread(self._engine.close)
        if self._loading is not None:
            await self._loading

    def abort(self, error: LuceboxError) -> None:
        """Ends every request with `error`."""
        for generation in tuple(self._running):
            generation.abort(error)

    def status(self) -> EngineStatus:
        status = self._engine.status()
        if self._error is not None:
            return replace(status, state=EngineState.FAILED, detail=str(self._error))
        if status.state is EngineState.READY and self._text is None:
            return replace(status, state=EngineState.LOADING, detail="tokenizer", progress=0.0)
        return status

    def error(self) -> LuceboxError | None:
        """What loading met, with its type."""
        try:
            self._engine.wait_ready(0)
        except LuceboxError as error:
            return self._error or error
        return self._error

    def info(self) -> EngineInfo | None:
        """What the engine offers; None before it was ever ready, and after it failed."""
        try:
            return self._engine.wait_ready(0)
        except LuceboxError:
            return None

    async def serving(self) -> Serving:
        """Waits out a restart. Raises ApiError (503) when there is nobody to answer."""
        status = self.status()
        try:
            async with asyncio.timeout(RESTART_WAIT_S):
                while status.state is EngineState.RESTARTING:
                    self._changed.clear()
                    await self._changed.wait()
                    status = self.status()
        except TimeoutError:
            pass
        if status.state is not EngineState.READY:
            raise unavailable(_why(status), code=f"engine_{status.state}")
        info = self.info()
        if info is None or self._text is None:
            raise unavailable("The engine is not ready", code="engine_failed")
        return Serving(self._engine, self._text, info)

    @contextmanager
    def generation(self, generation: Generation) -> Iterator[Generation]:
        """Runs `generation`, within the reach of `abort`."""
        self._running.add(generation)
        try:
            with generation:
                yield generation
        finally:
            self._running.discard(generation)

    def check_model(self, name: str | None) -> None:
        """Raises ApiError (404) if a request names another model."""
        if name is not None and name not in self.names:
            raise ApiError(
                f"The model `{name}` does not exist; this server has `{self.name}`.",
                status=404,
                param="model",
                code="model_not_found",
            )

    def fingerprint(self) -> str:
        """Changes whenever the same seed may give another answer."""
        engine, info = self.config.engine, self.info()
        models = [
            msgspec.structs.replace(model, path=Path(model.path).name, cores=())
            for model in (engine.target, engine.draft)
            if model is not None
        ]
        loaded = () if info is None else (info.target, info.draft)
        devices = [model.device for model in loaded if model is not None]  # what `auto` came to
        changes = () if info is None else info.changes
        parts = [engine.acceptance, engine.drafters, engine.draft_length, models]
        parts += [engine.workers, devices, changes]
        return "fp_" + hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:10]

    async def _load(self) -> None:
        try:
            self._text = await asyncio.to_thread(self._load_text, self.config.engine)
        except LuceboxError as error:
            self._error = error
        except Exception as error:
            logger.exception("the tokenizer cannot be loaded")
            self._error = EngineError(f"the tokenizer cannot be loaded: {error}")
        self._note_status()

    def _note_status(self, _: EngineStatus | None = None) -> None:
        """Tells waiting requests and the listener. From any thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._changed.set)
        if self._on_status is not None:
            self._on_status(self.status())


def _names(config: ServerConfig) -> frozenset[str]:
    """All names a request may use: the alias, and the file's name with and without its ending."""
    path = Path(config.engine.target.path)
    return frozenset({config.model_alias, path.name, path.stem})


def _why(status: EngineStatus) -> str:
    match status.state:
        case EngineState.LOADING:
            return f"The model is loading ({status.detail}, {status.progress:.0%})"
        case EngineState.RESTARTING:
            return f"The engine is restarting: {status.detail}"
        case EngineState.AWAY:
            return f"The engine is away, and tried again from time to time: {status.detail}"
        case EngineState.FAILED:
            return f"The engine failed: {status.detail}"
        case _:
            return "The server is shutting down"
