"""What crosses between an engine and its clients: plain msgspec structs, msgpack on the wire."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

import lucebox.errors as errors
from lucebox.config import Pooling
from lucebox.core import Origin
from lucebox.engine.engine_load import EngineLoad
from lucebox.engine.timings import DraftedRound, RoundTrace, Timings
from lucebox.sampling.params import SamplingParams

FinishReason = Literal["stop", "length", "cancelled", "error"]


class TokenLogprobs(msgspec.Struct, frozen=True):
    """Natural-log probabilities of one emitted token's row, from the raw logits of the target:
    the token's own, and the likeliest (id, logprob) pairs, best first."""

    token: int
    logprob: float
    top: list[tuple[int, float]]


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended.

    `stop_string` is the stop string that was met (UTF-8), and `keep_bytes` how many bytes of all the text
    generated for the request stand in front of it. Both are None when no stop string was met.
    """

    reason: FinishReason
    stop_string: bytes | None = None
    keep_bytes: int | None = None
    timings: Timings = Timings()


class Submit(msgspec.Struct, tag="submit", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to continue `prompt` + `generated`.

    `generated` is what an engine that died had already sent: it counts towards max_tokens, penalties and stop
    strings, and is not sent again. `seed` fixes the random numbers, whether or not the user gave one.
    Requests of one `group` (the choices that one client asked for at once) leave free slots to others.
    `prediction` is what the answer is expected to be, or to have much of. If it is `traced`, events tell the
    times of every round.
    """

    id: str
    prompt: list[int]
    params: SamplingParams
    seed: int
    generated: list[int] = []
    prediction: list[int] = []
    traced: bool = False
    group: str = ""


class Cancel(msgspec.Struct, tag="cancel", frozen=True, forbid_unknown_fields=True):
    """End a request; its last event says `cancelled`. Unknown or finished ids are ignored."""

    id: str


class Shutdown(msgspec.Struct, tag="shutdown", frozen=True, forbid_unknown_fields=True):
    """End the engine; running requests end as `cancelled`."""


class Ping(msgspec.Struct, tag="ping", frozen=True, forbid_unknown_fields=True):
    """Asks for a Pong at once: an engine that sends none hangs, however long its forwards take."""


class Embed(msgspec.Struct, tag="embed", frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for one vector that stands for `prompt`. It is cancelled, and of a `group`, as any other."""

    id: str
    prompt: list[int]
    pooling: Pooling
    group: str = ""


Request = Submit | Embed
Message = Request | Cancel | Shutdown | Ping


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A loaded model, as `/v1/models` and the library report it. `n_embd` numbers are its hidden state."""

    path: str
    name: str
    architecture: str
    device: str
    n_vocab: int
    n_embd: int
    n_ctx_train: int
    n_bytes: int


class DeviceUse(msgspec.Struct, frozen=True, kw_only=True):
    """What one model, by its `role`, takes of one device. Mapped weights lie in the file's pages and need not
    be free; `free_bytes` were before any model was loaded. `elsewhere` names operations that the device lacks
    and that the CPU computes."""

    device: str
    role: str
    n_layers: int
    weights_bytes: int
    mapped_bytes: int
    kv_bytes: int
    compute_bytes: int
    free_bytes: int
    elsewhere: tuple[str, ...] = ()

    @property
    def needed_bytes(self) -> int:
        return self.weights_bytes + self.kv_bytes + self.compute_bytes


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a ready engine has to offer. `n_ctx` is per sequence; `load_ms` is the time that loading took.
    `changes` are flags that differ from those asked for, so that the models fit."""

    target: ModelInfo
    draft: ModelInfo | None
    n_ctx: int
    n_parallel: int
    drafters: tuple[str, ...]
    acceptance: str
    draft_length: str
    load_ms: float
    memory: tuple[DeviceUse, ...] = ()
    changes: tuple[str, ...] = ()


class Loading(msgspec.Struct, tag="loading", frozen=True):
    """Progress of loading: `stage` names the model, `fraction` runs from 0 to 1 in each stage."""

    stage: str
    fraction: float


class Planned(msgspec.Struct, tag="planned", frozen=True):
    """What the models will take of the devices; they are loaded next. `changes` are as in EngineInfo."""

    memory: tuple[DeviceUse, ...]
    changes: tuple[str, ...] = ()


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The engine takes requests from now on. Submits sent before are not lost."""

    info: EngineInfo


class Degraded(msgspec.Struct, tag="degraded", frozen=True):
    """The engine works, but not as fast as it was meant to, for `reason`; "" when it does again."""

    reason: str


class Pong(msgspec.Struct, tag="pong", frozen=True):
    """The answer to a Ping. `busy_s`: how long the step that runs has been running, 0 between two."""

    busy_s: float = 0.0


class StepEvent(msgspec.Struct, tag="step", frozen=True, kw_only=True):
    """What one round emitted for one request, in order; several rounds when the reader was slow.

    `origins[i]` says where `tokens[i]` came from; `logprobs`, when asked for, has one entry per token.
    An end-of-generation token is listed (it was generated and counts), nothing behind it is. `drafted` has
    an entry for each of the rounds that had a draft. Of `n_rounds` rounds, the last was the request's
    `round`-th, and `time_ms` is the monotonic clock at its end. The first event has `prompt_logprobs`, when
    asked for, one entry for each token of the prompt but the first. `traces` has all rounds, if asked for.
    """

    id: str
    tokens: list[int]
    origins: list[Origin]
    drafted: list[DraftedRound] = []
    round: int = 0
    n_rounds: int = 1
    logprobs: list[TokenLogprobs] | None = None
    prompt_logprobs: list[TokenLogprobs] | None = None
    time_ms: float = 0.0
    finish: Finish | None = None
    traces: list[RoundTrace] = []

    @property
    def n_drafted(self) -> int:
        """Tokens that drafters proposed."""
        return sum(drafted.n_drafted for drafted in self.drafted)

    @property
    def drafters(self) -> list[str]:
        """Who proposed them, each once, first come first."""
        return list(dict.fromkeys(drafted.drafter for drafted in self.drafted))

    def followed_by(self, later: StepEvent) -> StepEvent:
        """This event and the next one of the same request as one."""
        logprobs = None
        if self.logprobs is not None or later.logprobs is not None:
            logprobs = (self.logprobs or []) + (later.logprobs or [])
        return StepEvent(
            id=self.id,
            tokens=self.tokens + later.tokens,
            origins=self.origins + later.origins,
            drafted=self.drafted + later.drafted,
            round=later.round,
            n_rounds=self.n_rounds + later.n_rounds,
            logprobs=logprobs,
            prompt_logprobs=self.prompt_logprobs,
            time_ms=later.time_ms,
            finish=later.finish,
            traces=self.traces + later.traces,
        )


Detail = str | int | float | None


class Failed(msgspec.Struct, tag="failed", frozen=True, kw_only=True):
    """A request (`id`) or, with id None, the engine failed. `kind` names a class of lucebox.errors, `details`
    holds its further attributes, so that the error arrives with the type it was raised with."""

    id: str | None
    kind: str
    message: str
    remedy: str = ""
    details: dict[str, Detail] = {}

    @classmethod
    def of(cls, id: str | None, error: BaseException) -> Failed:
        """Describes `error`; one that is not a LuceboxError arrives as an EngineError that names it."""
        if not isinstance(error, errors.LuceboxError):
            text = f"internal error: {type(error).__name__}: {error}"
            return cls(id=id, kind="EngineError", message=text)
        details: dict[str, Detail] = {
            name: value
            for name, value in vars(error).items()
            if name not in ("message", "remedy") and isinstance(value, str | int | float | None)
        }
        kind = type(error).__name__
        return cls(id=id, kind=kind, message=error.message, remedy=error.remedy, details=details)

    def error(self) -> errors.LuceboxError:
        """The exception this event describes."""
        kind: Any = getattr(errors, self.kind, errors.EngineError)
        if not (isinstance(kind, type) and issubclass(kind, errors.LuceboxError)):
            kind = errors.EngineError
        error: errors.LuceboxError = kind.__new__(kind, self.message)
        errors.LuceboxError.__init__(error, self.message, remedy=self.remedy)
        for name, value in self.details.items():
            setattr(error, name, value)
        return error


class Embedded(msgspec.Struct, tag="embedded", frozen=True, kw_only=True):
    """The answer to an Embed: float32 numbers, little-endian, of a vector of length 1."""

    id: str
    vector: bytes


RequestEvent = StepEvent | Embedded | Failed
Event = Loading | Planned | Ready | Degraded | Pong | EngineLoad | StepEvent | Embedded | Failed


def is_last(event: RequestEvent) -> bool:
    """Whether nothing follows `event` for its request."""
    return not isinstance(event, StepEvent) or event.finish is not None
