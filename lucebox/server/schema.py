"""What requests may say, field by field, and what that means to the sampler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lucebox import acceptance, draft_length, drafters
from lucebox.config import AUTO
from lucebox.errors import ConfigError, RequestError
from lucebox.sampling.params import SamplingParams, SpeculativeParams
from lucebox.server.errors import ApiError
from lucebox.server.messages import Message, Prediction

MAX_CHOICES = 128
# OpenAI's default for its legacy endpoint; chat answers end by themselves.
COMPLETION_MAX_TOKENS = 16

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]
Inert = Any  # documented by OpenAI, and without effect on what we do


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_usage: bool = False
    include_obfuscation: bool = False


class Speculative(msgspec.Struct, forbid_unknown_fields=True):
    """Per-request overrides of speculation; a whole `draft_length` is short for `fixed:n=…`."""

    enabled: bool | None = None
    drafter: str | None = None
    draft_length: str | Int64 | None = None
    acceptance: str | None = None


class SampledRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What chat and completions have in common."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: Int64 | None = None
    stop: str | list[str] | None = None
    max_tokens: Int64 | None = None
    user: Inert = None
    # Ours.
    top_k: Int64 | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    ignore_eos: bool | None = None
    speculative: bool | Speculative | None = None

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class ChatRequest(SampledRequest, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/chat/completions."""

    messages: list[Message]
    max_completion_tokens: Int64 | None = None
    logprobs: bool | None = None
    top_logprobs: Int64 | None = None
    metadata: Inert = None
    service_tier: Inert = None
    safety_identifier: Inert = None
    prompt_cache_key: Inert = None
    prompt_cache_options: Inert = None
    prompt_cache_retention: Inert = None
    parallel_tool_calls: Inert = None
    store: bool | None = None
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    response_format: Any = None
    modalities: Any = None
    audio: Any = None
    prediction: Prediction | None = None
    moderation: Any = None
    reasoning_effort: Any = None
    verbosity: Any = None
    web_search_options: Any = None


class CompletionRequest(SampledRequest, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/completions."""

    prompt: str | list[str | Int64 | list[Int64]]
    logprobs: Int64 | None = None
    echo: bool | None = None
    best_of: Int64 | None = None
    suffix: str | None = None


# Values of fields we do not act on that ask for what we do anyway; any other value is refused.
_HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "store": (False,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "moderation": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "web_search_options": (),
    "suffix": ("",),
}


def refuse_unsupported(request: SampledRequest) -> None:
    """Raises ApiError naming the first field that asks for something we do not do."""
    for name, harmless in _HARMLESS.items():
        value = getattr(request, name, None)
        if value is not None and value not in harmless:
            raise ApiError(
                f"'{name}' asks for something that this server does not do yet.",
                param=name,
                code="unsupported_parameter",
            )
    if request.stream_options is not None and not request.stream:
        raise ApiError(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            param="stream_options",
            code="invalid_value",
        )


def chat_params(request: ChatRequest, n_vocab: int) -> SamplingParams:
    """Raises ApiError or RequestError naming the field out of range."""
    names = {"logprobs": "top_logprobs"}
    max_tokens = request.max_tokens
    if request.max_completion_tokens is not None:
        if max_tokens is not None:
            raise ApiError(
                "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.",
                param="max_tokens",
                code="invalid_value",
            )
        max_tokens = request.max_completion_tokens
        names["max_tokens"] = "max_completion_tokens"
    if request.top_logprobs is not None and not request.logprobs:
        raise ApiError(
            "'top_logprobs' needs 'logprobs' to be true.", param="top_logprobs", code="invalid_value"
        )
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    return _params(request, n_vocab, names, max_tokens=max_tokens, logprobs=logprobs)


def completion_params(request: CompletionRequest, n_vocab: int) -> SamplingParams:
    """Raises ApiError or RequestError naming the field out of range."""
    if request.best_of is not None and request.best_of != (request.n or 1):
        raise ApiError(
            "'best_of' other than 'n' is not supported.", param="best_of", code="unsupported_parameter"
        )
    if request.echo and request.logprobs is not None:
        raise ApiError(
            "'echo' together with 'logprobs' is not supported.", param="echo", code="unsupported_parameter"
        )
    max_tokens = COMPLETION_MAX_TOKENS if request.max_tokens is None else request.max_tokens
    return _params(request, n_vocab, {}, max_tokens=max_tokens, logprobs=request.logprobs)


def _params(
    request: SampledRequest,
    n_vocab: int,
    names: Mapping[str, str],
    *,
    max_tokens: int | None,
    logprobs: int | None,
) -> SamplingParams:
    """`names` tells what a field of SamplingParams is called in this request."""
    stop = request.stop
    given: dict[str, Any] = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "min_p": request.min_p,
        "repetition_penalty": request.repetition_penalty,
        "frequency_penalty": request.frequency_penalty,
        "presence_penalty": request.presence_penalty,
        "ignore_eos": request.ignore_eos,
        "seed": request.seed,
        "stop": (stop,) if isinstance(stop, str) else None if stop is None else tuple(stop),
        "logit_bias": _logit_bias(request.logit_bias),
        "speculative": _speculative(request.speculative),
        "max_tokens": max_tokens,
        "logprobs": logprobs,
    }
    params = SamplingParams(**{name: value for name, value in given.items() if value is not None})
    try:
        params.validate(n_vocab)
    except RequestError as error:
        ours = error.param or ""
        name = names.get(ours, ours)
        raise ApiError(str(error).replace(ours, name, 1), param=name, code="invalid_value") from None
    return params


def _logit_bias(bias: dict[str, float] | None) -> dict[int, float] | None:
    if bias is None:
        return None
    for key in bias:
        if not (key.isascii() and key.isdigit() and len(key) <= 10):
            raise ApiError(
                f"Invalid key in 'logit_bias': {key!r} is no token id.",
                param="logit_bias",
                code="invalid_value",
            )
    return {int(key): value for key, value in bias.items()}


def _speculative(asked: bool | Speculative | None) -> SpeculativeParams | None:
    if asked is None:
        return None
    if isinstance(asked, bool):
        return SpeculativeParams(enabled=asked)
    length = asked.draft_length
    length = f"fixed:n={length}" if isinstance(length, int) else length
    for name, spec, check in (
        ("drafter", asked.drafter, drafters.check),
        ("draft_length", length, draft_length.create),
        ("acceptance", asked.acceptance, acceptance.create),
    ):
        try:
            if spec is not None and spec != AUTO:
                check(spec)
        except ConfigError as error:
            raise ApiError(
                f"speculative.{name}: {error}", param=f"speculative.{name}", code="invalid_value"
            ) from None
    return SpeculativeParams(
        enabled=asked.enabled,
        drafter=asked.drafter,
        draft_length=length,
        acceptance=asked.acceptance,
    )
