"""What all routes share: the engine, the text side of its target, and what both are called."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec

from lucebox.config import EngineConfig, ServerConfig
from lucebox.engine.client import EngineClient, EngineState, EngineStatus, StatusHandler
from lucebox.engine.engine_load import EngineLoad
from lucebox.engine.messages import EngineInfo
from lucebox.errors import EngineError, LuceboxError
from lucebox.grammar import Grammar
from lucebox.server.errors import ApiError, unavailable
from lucebox.server.generation import Generation
from lucebox.server.logprobs import TokenNames
from lucebox.server.tally import Tally
from lucebox.text.answer_format import AnswerFormat

logger = logging.getLogger(__name__)

RESTART_WAIT_S = 8.0
CLOSE_TIMEOUT_S = 2.0  # of the engine, whose forward may take longer than anybody wants to wait
KEEP_TIMEOUT_S = 15.0  # the same where it writes the prefix cache to a file, which may be gigabytes


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

    def encode_infill(self, before: str | list[int], behind: str) -> list[int]:
        """The prompt that is continued with what stands between two texts. Raises RequestError where the
        model cannot."""
        ...

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """`add_special`: with the tokens that the model expects around every text; `parse_special`: names of
        control tokens become these tokens."""
        ...

    @property
    def template_source(self) -> str | None:
        """The chat template in Jinja; None for a model without."""
        ...

    @property
    def template_variables(self) -> Collection[str]:
        """The variables that the chat template reads."""
        ...

    @property
    def named_tokens(self) -> Mapping[str, int]:
        """The ids of tokens that are no text to a grammar: control tokens, and others in angle brackets."""
        ...

    def encode_chat(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Messages through the chat template, ready for the answer. Raises TemplateError, RequestError."""
        ...

    def apply_template(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """The text that messages become. Raises as `encode_chat`."""
        ...

    def check_grammar(self, grammar: Grammar) -> None:
        """Raises RequestError for a grammar that the engine would not take."""
        ...


class Job(Protocol):
    """What runs at the engine for one HTTP request. A context: leaving it ends what has not ended."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def abort(self, error: LuceboxError) -> None:
        """Ends it with `error`. From the loop's thread."""
        ...


JobT = TypeVar("JobT", bound=Job)


@dataclass(frozen=True, slots=True)
class Serving:
    """A service that can answer now."""

    engine: EngineClient
    text: TextModel
    info: EngineInfo
    answers: AnswerFormat


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
        self.tally = Tally()
        self._load_text = load_text
        self._on_status = on_status
        self._text: TextModel | None = None
        self._answers: AnswerFormat | None = None
        self._error: LuceboxError | None = None
        self._running: set[Job] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._close_timeout_s = KEEP_TIMEOUT_S if config.engine.prefix_file else CLOSE_TIMEOUT_S
        self._changed = asyncio.Event()
        self._loading: asyncio.Task[None] | None = None
        self.created = int(time.time())
        self._engine = make_engine(config.engine, self._note_status)

    @property
    def name(self) -> str:
        """What the model is called in the API."""
        return self.config.model_alias

    @property
    def is_started(self) -> bool:
        """Whether it was ever told to load."""
        return self._loop is not None

    def start(self) -> None:
        """Begins to load, and returns at once. A failure shows in `status`. On the loop."""
        self._loop = asyncio.get_running_loop()
        self._engine.start()
        self._loading = asyncio.create_task(self._load())

    async def close(self) -> None:
        """Ends every request and the engine, and waits until its memory is free."""
        self.abort(EngineError("the server is shutting down"))
        await asyncio.to_thread(self._engine.close, self._close_timeout_s)
        if self._loading is not None:
            await self._loading

    def abort(self, error: LuceboxError, *, at_once: bool = False) -> None:
        """Ends every request with `error`. If it has to be `at_once`, the engine is closed by force, too."""
        if at_once:
            self._close_timeout_s = 0.0
        for job in tuple(self._running):
            job.abort(error)

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
        if info is None or self._text is None or self._answers is None:
            raise unavailable("The engine is not ready", code="engine_failed")
        return Serving(self._engine, self._text, info, self._answers)

    def load(self) -> EngineLoad:
        """What the engine is busy with."""
        return self._engine.load()

    @contextmanager
    def generation(self, generation: Generation) -> Iterator[Generation]:
        """Runs `generation`, within the reach of `abort`, and notes what comes of it."""
        generation.meter = self.tally.meter()
        with self.job(generation):
            yield generation

    @contextmanager
    def job(self, job: JobT) -> Iterator[JobT]:
        """Runs `job`, within the reach of `abort`."""
        self._running.add(job)
        try:
            with job:
                yield job
        finally:
            self._running.discard(job)

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
            text = await asyncio.to_thread(self._load_text, self.config.engine)
            self._answers = AnswerFormat.of(
                text.template_source,
                text.named_tokens,
                tool_format=self.config.tool_format,
                reasoning_format=self.config.reasoning_format,
            )
            self._text = text
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
    reason = f": {status.detail}" if status.detail else ""
    match status.state:
        case EngineState.LOADING:
            how_far = f" ({status.detail}, {status.progress:.0%})" if status.detail else ""
            return f"The model is loading{how_far}"
        case EngineState.RESTARTING:
            return f"The engine is restarting{reason}"
        case EngineState.AWAY:
            return f"The engine is away, and tried again from time to time{reason}"
        case EngineState.FAILED:
            return f"The engine failed{reason}"
        case _:
            return "The server is shutting down"
