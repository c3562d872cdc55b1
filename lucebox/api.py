"""The library: an engine in this process, text in, text out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from msgspec.structs import replace

from lucebox.config import EngineConfig, EngineOptions
from lucebox.core import Origin
from lucebox.engine.client import EngineStats, StatusHandler
from lucebox.engine.messages import (
    EngineInfo,
    Failed,
    FinishReason,
    RequestEvent,
    StepEvent,
    Submit,
    TokenLogprobs,
)
from lucebox.engine.outbox import Outbox
from lucebox.engine.step import RoundHandler
from lucebox.engine.thread_client import ThreadClient
from lucebox.engine.timeline import WorkHandler, ignore
from lucebox.engine.timings import Timings
from lucebox.errors import EngineError, TemplateError
from lucebox.gguf import read
from lucebox.grammar import Grammar
from lucebox.resolve import Progress, resolve_engine
from lucebox.sampling.params import SamplingParams
from lucebox.sampling.random import fresh_seed
from lucebox.text.chat import ChatTemplate
from lucebox.text.grammar import GrammarCompiler
from lucebox.text.output import TextOutput
from lucebox.text.tokenizer import Tokenizer

CLOSE_TIMEOUT_S = 600.0  # a long prompt on a slow machine; nothing can end a thread by force
Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of an answer: text that became certain, and tokens that arrived, with the origin of each.

    `prompt_logprobs`, when asked for, come with the first chunk: one entry for each token but the first.

    Text may lag behind tokens, where a stop string or a character is not complete. `finish_reason` and
    `timings` are None in all chunks but the last.
    """

    text: str
    tokens: list[int]
    origins: list[Origin]
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: FinishReason | None = None
    timings: Timings | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """A whole answer. `tokens` include the one that ended it, and those of a stop string, unlike `text`."""

    text: str
    tokens: list[int]
    origins: list[Origin]
    logprobs: list[TokenLogprobs] | None
    finish_reason: FinishReason
    timings: Timings
    prompt_logprobs: list[TokenLogprobs] | None = None


@dataclass(slots=True)
class _Cost:
    timings: Timings | None = None


class ChunkStream(Iterator[Chunk]):
    """An answer piece by piece, as it comes; `close`, or dropping it, cancels what is left of it.

    `timings` is None until the answer has ended. Of one that was cancelled it is what it cost until then,
    which the engine says behind the step under way.
    """

    def __init__(self, start: Callable[[_Cost], Generator[Chunk, None, None]]) -> None:
        # A third party, lest stream and generator keep each other alive when the caller drops this one.
        self._cost = _Cost()
        self._chunks = start(self._cost)

    def __next__(self) -> Chunk:
        return next(self._chunks)

    def close(self) -> None:
        self._chunks.close()

    @property
    def timings(self) -> Timings | None:
        return self._cost.timings


class Engine:
    """A target model, and maybe a draft model that guesses ahead for it, ready to generate.

        with Engine("qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b") as engine:
            print(engine.generate("def fib(n):", SamplingParams(max_tokens=64)).text)

    A model is a path, a name that `lucebox pull` knows or `hf:owner/repo/file.gguf`. `options` are the
    further fields of lucebox.config.EngineOptions, e.g. ctx_size=4096. Thread-safe; up to `parallel` answers
    are generated at the same time. A worker that is lost with layers of the target ends this process, or
    halts the engine in it; where it had the draft model alone, answers go on without drafts until it is back.
    Raises ConfigError, DownloadError, ModelFileError and the like.
    """

    def __init__(self, target_model: str, draft_model: str | None = None, **options: Any) -> None:
        chosen = EngineOptions(target_model=target_model, draft_model=draft_model, **options)
        self._open(resolve_engine(chosen))

    @classmethod
    def from_options(
        cls,
        options: EngineOptions,
        *,
        on_download: Progress | None = None,
        on_status: StatusHandler | None = None,
        remembers: bool = True,
    ) -> Self:
        """An engine for `options`; the handlers hear of downloads and of loading, from other threads too.

        Without `remembers`, drafters forget a request when it ends: for comparisons that ask the same again.
        """
        config = replace(resolve_engine(options, on_progress=on_download), remembers=remembers)
        return cls.from_config(config, on_status=on_status)

    @classmethod
    def from_config(
        cls,
        config: EngineConfig,
        *,
        on_status: StatusHandler | None = None,
        on_round: RoundHandler | None = None,
        on_work: WorkHandler = ignore,
    ) -> Self:
        """An engine for a resolved configuration; `on_round` hears of rounds, in its thread, and `on_work` of
        what each model computed when."""
        engine = cls.__new__(cls)
        engine._open(config, on_status, on_round, on_work)
        return engine

    def _open(
        self,
        config: EngineConfig,
        on_status: StatusHandler | None = None,
        on_round: RoundHandler | None = None,
        on_work: WorkHandler = ignore,
    ) -> None:
        self._ids = itertools.count()
        self._client = ThreadClient(config, on_status, on_round, on_work)
        self._client.start()
        try:
            with read(config.target.path) as file:
                self.tokenizer = Tokenizer.from_metadata(file.metadata, config.target.path)
                self._template = ChatTemplate.from_metadata(file.metadata, config.target.path)
            self._grammars = GrammarCompiler(lambda: self.tokenizer)
            self.info: EngineInfo = self._client.wait_ready()
        except BaseException:
            self._client.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends answers under way with an EngineError, after the step, and frees all memory. Idempotent."""
        self._client.close(timeout_s=CLOSE_TIMEOUT_S)

    def generate(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        prediction: str | None = None,
    ) -> Completion:
        """Continues `prompt`: text, in which names of control tokens count as such, or token ids.

        `prediction` is text that the answer is expected to be, or to have much of, as when a file is edited:
        it makes the answer come faster, and changes nothing in it. Raises RequestError for what cannot be
        asked, EngineError when the engine ends first.
        """
        return _collect(self.stream(prompt, params, prediction=prediction))

    def stream(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        prediction: str | None = None,
    ) -> ChunkStream:
        """As `generate`, piece by piece; errors come with the first piece. Closing it cancels the request."""
        tokens = partial(self._tokens, prompt)
        return ChunkStream(partial(self._stream, tokens, params or SamplingParams(), prediction))

    def chat(
        self, messages: Messages, params: SamplingParams | None = None, *, prediction: str | None = None
    ) -> Completion:
        """Answers a conversation: `[{"role": "user", "content": "…"}, …]`. Raises TemplateError too."""
        return _collect(self.stream_chat(messages, params, prediction=prediction))

    def stream_chat(
        self, messages: Messages, params: SamplingParams | None = None, *, prediction: str | None = None
    ) -> ChunkStream:
        """As `chat`, piece by piece; errors come with the first piece. Closing it cancels the request."""
        tokens = partial(self.encode_chat, messages)
        return ChunkStream(partial(self._stream, tokens, params or SamplingParams(), prediction))

    def encode_chat(self, messages: Messages) -> list[int]:
        """The token ids that the model's chat template makes of `messages`. Raises TemplateError."""
        if self._template is None:
            raise TemplateError("this model has no chat template", remedy="use generate, or a chat model")
        return self._template.encode(messages, self.tokenizer)

    def check_grammar(self, grammar: Grammar) -> None:
        """Raises RequestError for a grammar that no request could use: it is wrong, or too complex."""
        self._grammars.check(grammar)

    def stats(self) -> EngineStats:
        """Sums over all answers that ended, and what is going on now."""
        return self._client.stats()

    def _tokens(self, prompt: str | Sequence[int]) -> list[int]:
        return self.tokenizer.encode(prompt, parse_special=True) if isinstance(prompt, str) else list(prompt)

    def _stream(
        self, tokens: Callable[[], list[int]], params: SamplingParams, prediction: str | None, cost: _Cost
    ) -> Generator[Chunk, None, None]:
        submit = Submit(
            id=f"answer-{next(self._ids)}",
            prompt=tokens(),
            params=params,
            seed=fresh_seed() if params.seed is None else params.seed,
            prediction=self.tokenizer.encode(prediction or "", parse_special=False, add_bos=False),
        )
        events = Outbox()
        output = TextOutput(self.tokenizer.vocabulary, params.stop)
        finished = False
        try:
            self._client.submit(submit, partial(_note, cost, events))
            while not finished:
                event = events.take()
                if isinstance(event, Failed):
                    finished = True
                    raise event.error()
                assert isinstance(event, StepEvent)
                finished = event.finish is not None
                yield _chunk(event, output)
        finally:
            if not finished:
                self._client.cancel(submit.id)


def _note(cost: _Cost, events: Outbox, event: RequestEvent) -> None:
    """Passes `event` on, and keeps what the answer cost, also where nobody waits for it any more."""
    if isinstance(event, StepEvent) and event.finish is not None:
        cost.timings = event.finish.timings
    events.put(event)


def _chunk(event: StepEvent, output: TextOutput) -> Chunk:
    text = output.push(event.tokens)
    finish = event.finish
    if finish is None:
        return Chunk(text, event.tokens, event.origins, event.logprobs, prompt_logprobs=event.prompt_logprobs)
    if finish.reason in ("cancelled", "error"):
        raise EngineError("the engine was closed before the answer was complete")
    text += output.finish(finish.keep_bytes)
    return Chunk(
        text,
        event.tokens,
        event.origins,
        event.logprobs,
        finish.reason,
        finish.timings,
        event.prompt_logprobs,
    )


def _collect(chunks: Iterator[Chunk]) -> Completion:
    text: list[str] = []
    tokens: list[int] = []
    origins: list[Origin] = []
    logprobs: list[TokenLogprobs] = []
    prompt_logprobs: list[TokenLogprobs] | None = None
    for chunk in chunks:
        prompt_logprobs = prompt_logprobs or chunk.prompt_logprobs
        text.append(chunk.text)
        tokens += chunk.tokens
        origins += chunk.origins
        logprobs += chunk.logprobs or ()
    assert chunk.finish_reason is not None
    assert chunk.timings is not None
    return Completion(
        "".join(text),
        tokens,
        origins,
        logprobs or None,
        chunk.finish_reason,
        chunk.timings,
        prompt_logprobs,
    )
