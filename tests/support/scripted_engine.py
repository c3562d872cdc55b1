"""An engine that answers from a script: what the server does with events, without a model."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lucebox.core import Origin
from lucebox.engine.client import EngineClient, EngineState
from lucebox.engine.messages import (
    Cancel,
    Embed,
    Embedded,
    EngineInfo,
    Event,
    Failed,
    Finish,
    FinishReason,
    Message,
    ModelInfo,
    Ready,
    Shutdown,
    StepEvent,
    Submit,
    TokenLogprobs,
)
from lucebox.engine.timings import DrafterTotals, Timings
from lucebox.errors import EngineError, LuceboxError, RequestError, TemplateError
from lucebox.grammar import Grammar

N_VOCAB = 260
EOS, BOS = 256, 257
N_CTX = 64
N_EMBD = 8

Script = Callable[[Submit], Iterable[Event]]


class ByteVocabulary:
    """Token i is byte i; 256 and above are control tokens."""

    def bytes_of(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else f"<|{token}|>".encode()

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else b""


class ByteText:
    """The text side that goes with it; its template is one line per message."""

    n_vocab = N_VOCAB
    vocabulary = ByteVocabulary()

    def __init__(
        self,
        template: str = "<tool_call>",
        *,
        variables: Collection[str] = (),
        named_tokens: Mapping[str, int] | None = None,
        tail: str = "",
        fills_in: bool = False,
    ) -> None:
        """`template` and `variables` are what tells of the model, `tail` what every prompt ends with;
        `named_tokens` are control tokens from 258 on."""
        self.template_source = template
        self.template_variables = variables
        self.named_tokens = named_tokens or {}
        self._tail = tail
        self.fills_in = fills_in
        self.seen: list[list[dict[str, Any]]] = []
        self.tools: list[Any] = []
        self.template_kwargs: list[dict[str, Any]] = []
        self.grammars: list[Grammar] = []

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_plain(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_infill(self, before: str | list[int], behind: str) -> list[int]:
        """258 stands for all three markers."""
        if not self.fills_in:
            raise RequestError("no tokens to fill in the middle with", param="suffix")
        first = list(before.encode()) if isinstance(before, str) else before
        return [258, *first, 258, *behind.encode(), 258]

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        special = f"<|{EOS}|>".encode()
        pieces = text.encode().split(special) if parse_special else [text.encode()]
        tokens = [token for piece in pieces for token in (EOS, *piece)][1:]
        return [BOS, *tokens] if add_special else tokens

    def apply_template(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: Sequence[Any] = (),
        template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        if messages[0]["content"] == "refuse me":
            raise TemplateError("conversation roles must alternate")
        end = "assistant:" if add_generation_prompt else ""
        return "".join(f"{m['role']}:{m['content']}\n" for m in messages) + end

    def check_grammar(self, grammar: Grammar) -> None:
        self.grammars.append(grammar)

    def encode_chat(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: Sequence[Any] = (),
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[int]:
        self.seen.append(messages)
        self.tools.append(tools)
        self.template_kwargs.append(dict(template_kwargs or {}))
        if messages[0]["content"] == "refuse me":
            raise TemplateError("conversation roles must alternate")
        return [
            BOS,
            *"".join(f"{m['role']}:{m['content']}\n" for m in messages).encode(),
            *self._tail.encode(),
        ]


def steps(
    submit: Submit,
    pieces: Sequence[bytes],
    reason: FinishReason | None = "stop",
    *,
    eos: bool = True,
    stop_string: bytes | None = None,
    keep_bytes: int | None = None,
) -> Iterator[StepEvent]:
    """A step per piece, a token per byte; the end comes with the last one."""
    tokens = [list(piece) for piece in pieces]
    if reason == "stop" and eos and stop_string is None:
        tokens[-1].append(EOS)
    n = sum(map(len, tokens))
    timings = Timings(
        prompt_n=len(submit.prompt),
        prompt_ms=10.0,
        predicted_n=n,
        predicted_ms=100.0,
        n_rounds=4,
        draft_n=9,
        draft_n_accepted=6,
        draft_ms=20.0,
        verify_ms=60.0,
        accepted_per_position=[3, 2, 1],
        drafted_per_position=[3, 3, 3],
        drafters={
            "model": DrafterTotals(n_rounds=2, n_drafted=6, n_accepted=5),
            "suffix": DrafterTotals(n_rounds=1, n_drafted=3, n_accepted=1),
        },
    )
    for i, step in enumerate(tokens):
        is_last = i == len(tokens) - 1
        finish = None
        if is_last and reason is not None:
            finish = Finish(reason=reason, stop_string=stop_string, keep_bytes=keep_bytes, timings=timings)
        yield StepEvent(
            id=submit.id,
            tokens=step,
            origins=[Origin.PLAIN] * len(step),
            logprobs=None if submit.params.logprobs is None else [_logprobs(submit, t) for t in step],
            prompt_logprobs=None if i or submit.params.prompt_logprobs is None else _prompt_logprobs(submit),
            finish=finish,
        )


def _prompt_logprobs(submit: Submit) -> list[TokenLogprobs]:
    """Each token's place is its surprise."""
    n = submit.params.prompt_logprobs or 0
    return [TokenLogprobs(t, -float(i), [(EOS, -0.25)][:n]) for i, t in enumerate(submit.prompt) if i]


def _logprobs(submit: Submit, token: int) -> TokenLogprobs:
    n = submit.params.logprobs or 0
    return TokenLogprobs(token, -0.5, [(token, -0.5), (EOS, float("-inf"))][:n])


class ScriptedEngine(EngineClient):
    """Each submit is played by a thread of its own from `script`; a cancel ends it.

    `gate`, once cleared, holds every further step back, so that a test can look at what is in between.
    """

    def __init__(self, script: Script, *, n_ctx: int = N_CTX, ready: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.script = script
        self.submits: list[Submit] = []
        self.embeds: list[Embed] = []
        self.embed: Callable[[Embed], Event] = embedded
        self.cancelled: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self._ready = ready
        self._n_ctx = n_ctx
        self._ended = threading.Event()
        self._cancel_seen = threading.Condition()

    def start(self) -> None:
        if self._ready:
            self.become_ready()

    def become_ready(self) -> None:
        model = ModelInfo(
            path="/secret/folder/tiny.gguf",
            name="tiny",
            architecture="llama",
            device="CPU",
            n_vocab=N_VOCAB,
            n_embd=N_EMBD,
            n_ctx_train=N_CTX,
            n_bytes=1000,
        )
        info = EngineInfo(
            target=model,
            draft=None,
            n_ctx=self._n_ctx,
            n_parallel=1,
            drafters=(),
            acceptance="auto",
            draft_length="fixed:n=4",
            load_ms=1.0,
        )
        self._dispatch(Ready(info))

    def restart(self, why: str) -> None:
        self._set_status(EngineState.RESTARTING, why, n_deaths=1)

    def fail(self, error: LuceboxError) -> None:
        self._give_up(error)

    def close(self, timeout_s: float = 10.0) -> None:
        self._ended.set()
        self.gate.set()
        self._give_up(EngineError("the engine was closed"), EngineState.STOPPED)

    def wait_cancelled(self, n: int = 1, timeout_s: float = 5.0) -> bool:
        """Whether `n` cancels have come, or come within `timeout_s`."""
        with self._cancel_seen:
            return self._cancel_seen.wait_for(lambda: len(self.cancelled) >= n, timeout_s)

    def _send(self, message: Message) -> None:
        match message:
            case Submit():
                self.submits.append(message)
                threading.Thread(target=self._play, args=(message,), daemon=True).start()
            case Embed():
                self.embeds.append(message)
                threading.Thread(target=self._embed, args=(message,), daemon=True).start()
            case Cancel(id=id):
                with self._cancel_seen:
                    self.cancelled.append(id)
                    self._cancel_seen.notify_all()
            case Shutdown():
                self._ended.set()

    def _embed(self, embed: Embed) -> None:
        self.gate.wait()
        if embed.id in self.cancelled or self._ended.is_set():
            self._dispatch(StepEvent(id=embed.id, tokens=[], origins=[], finish=Finish(reason="cancelled")))
        else:
            self._dispatch(self.embed(embed))

    def _play(self, submit: Submit) -> None:
        for event in self.script(submit):
            self.gate.wait()
            if submit.id in self.cancelled or self._ended.is_set():
                self._dispatch(
                    StepEvent(id=submit.id, tokens=[], origins=[], finish=Finish(reason="cancelled"))
                )
                return
            self._dispatch(event)


def embedded(embed: Embed) -> Embedded:
    """How often a text has tokens of each class modulo N_EMBD, as a vector of length 1."""
    counts = np.bincount(np.array(embed.prompt) % N_EMBD, minlength=N_EMBD)
    return Embedded(id=embed.id, vector=(counts / np.linalg.norm(counts)).astype("<f4").tobytes())


def says(*pieces: bytes, reason: FinishReason | None = "stop", **options: Any) -> Script:
    """A script that gives every request the same answer."""
    return lambda submit: steps(submit, pieces, reason, **options)


def endless(submit: Submit) -> Iterator[Event]:
    """A script that ends with its client alone."""
    while True:
        yield from steps(submit, [b"x"], None)
        time.sleep(0.001)


def thinker() -> ByteText:
    """The text side of a model that reasons and calls tools."""
    return ByteText("<think> <tool_call>")


def fails(error: LuceboxError, *pieces: bytes) -> Script:
    """A script that says `pieces` and then fails."""

    def script(submit: Submit) -> Iterator[Event]:
        if pieces:
            yield from steps(submit, pieces, None)
        yield Failed.of(submit.id, error)

    return script
