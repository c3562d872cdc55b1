"""What requests may say, field by field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from lucebox.sampling.params import SamplingParams
from lucebox.server.effort import Effort
from lucebox.server.errors import ApiError, invalid
from lucebox.server.messages import Message, Prediction
from lucebox.server.sampled_request import (
    MAX_CHOICES,
    Inert,
    Int64,
    SampledRequest,
    StreamOptions,
    params_of,
)
from lucebox.server.tools import ToolChoice, ToolDefinition

# OpenAI's default for its legacy endpoint; chat answers end by themselves.
COMPLETION_MAX_TOKENS = 16

_IDLE = Meta(description="without effect")
_REFUSED = Meta(description="refused, but for what it asks for by default")


class ChatStreamOptions(StreamOptions, forbid_unknown_fields=True):
    """`include_tokens`: chunks say where each token came from, as lucebox.server.token_report has it."""

    include_tokens: Annotated[bool | None, Meta(description="say where each token came from")] = None


class ChatRequest(SampledRequest, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/chat/completions."""

    messages: Annotated[list[Message], Meta(description="the conversation; parts must be text")]
    stream_options: Annotated[ChatStreamOptions | None, Meta(description="only with `stream`")] = None
    max_completion_tokens: Annotated[
        Int64 | None, Meta(description="most tokens to generate; the newer name of `max_tokens`")
    ] = None
    logprobs: Annotated[bool | None, Meta(description="tell log-probabilities: the target model's")] = None
    top_logprobs: Annotated[
        Int64 | None, Meta(description="those of this many likeliest tokens, too, up to 20")
    ] = None
    tools: Annotated[list[ToolDefinition] | None, Meta(description="functions that may be called")] = None
    tool_choice: Annotated[
        ToolChoice | None, Meta(description="`none`, `auto`, `required` or one function; enforced")
    ] = None
    parallel_tool_calls: Annotated[
        bool | None, Meta(description="`false`: at most one call in an answer")
    ] = None
    reasoning_effort: Annotated[
        Effort | None, Meta(description="how much to think, where the model's template can tell it")
    ] = None
    prediction: Annotated[
        Prediction | None, Meta(description="text the answer will have much of: drafted from")
    ] = None
    metadata: Annotated[Inert, _IDLE] = None
    service_tier: Annotated[Inert, _IDLE] = None
    safety_identifier: Annotated[Inert, _IDLE] = None
    prompt_cache_key: Annotated[Inert, _IDLE] = None
    prompt_cache_options: Annotated[Inert, _IDLE] = None
    prompt_cache_retention: Annotated[Inert, _IDLE] = None
    store: Annotated[bool | None, _REFUSED] = None
    functions: Annotated[Any, _REFUSED] = None
    function_call: Annotated[Any, _REFUSED] = None
    modalities: Annotated[Any, _REFUSED] = None
    audio: Annotated[Any, _REFUSED] = None
    moderation: Annotated[Any, _REFUSED] = None
    verbosity: Annotated[Any, _REFUSED] = None
    web_search_options: Annotated[Any, _REFUSED] = None
    # Ours, as vLLM has it.
    chat_template_kwargs: Annotated[
        dict[str, Any] | None, Meta(description="variables for the model's chat template")
    ] = None

    @property
    def include_tokens(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_tokens)


class CompletionRequest(SampledRequest, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/completions."""

    prompt: Annotated[
        str | list[str | Int64 | list[Int64]],
        Meta(description="a text, token ids, or a list of either"),
    ]
    logprobs: Annotated[
        Int64 | None,
        Meta(
            description="tell log-probabilities, the target model's, and those of this many likeliest tokens"
        ),
    ] = None
    echo: Annotated[bool | None, Meta(description="begin with the prompt; with `logprobs`, its own, too")] = (
        None
    )
    best_of: Annotated[
        Int64 | None, Meta(description="generate this many, and give the `n` likeliest; not streamed")
    ] = None
    suffix: Annotated[
        str | None, Meta(description="fill in the middle between `prompt` and this, where the model can")
    ] = None


# Values of fields we do not act on that ask for what we do anyway; any other value is refused.
_HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "store": (False,),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "modalities": (["text"],),
    "audio": (),
    "moderation": (),
    "verbosity": ("medium",),
    "web_search_options": (),
}


def refuse_unsupported(request: SampledRequest) -> None:
    """Raises ApiError naming the first field that asks for something we do not do."""
    for name, harmless in _HARMLESS.items():
        value = getattr(request, name, None)
        if value is not None and value not in harmless:
            harmless_words = f", or send {' or '.join(map(json.dumps, harmless))}" if harmless else ""
            raise ApiError(
                f"'{name}' asks for something that this server does not do yet. "
                f"Leave it out{harmless_words}.",
                param=name,
                code="unsupported_parameter",
            )
    if request.stream_options is not None and not request.stream:
        raise invalid(
            "stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        )


def chat_params(request: ChatRequest, n_vocab: int) -> SamplingParams:
    """Raises ApiError or RequestError naming the field out of range."""
    name, max_tokens = "max_tokens", request.max_tokens
    if request.max_completion_tokens is not None:
        if max_tokens is not None:
            raise invalid(
                name, "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
            )
        name, max_tokens = "max_completion_tokens", request.max_completion_tokens
    if max_tokens is not None and max_tokens < 1:
        raise invalid(name, f"{name} must be at least 1, not {max_tokens}.")
    if request.top_logprobs is not None and not request.logprobs:
        raise invalid("top_logprobs", "'top_logprobs' needs 'logprobs' to be true.")
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    names = {"logprobs": "top_logprobs", "max_tokens": name}
    return params_of(request, n_vocab, names, max_tokens=max_tokens, logprobs=logprobs)


def completion_params(request: CompletionRequest, n_vocab: int) -> SamplingParams:
    """Raises ApiError or RequestError naming the field out of range."""
    n, best_of = request.n or 1, request.best_of
    if best_of is not None:
        if not n <= best_of <= MAX_CHOICES:
            raise invalid("best_of", f"'best_of' must be from 'n', which is {n}, to {MAX_CHOICES}.")
        if best_of > n and request.stream:
            raise invalid("best_of", "'best_of' over 'n' cannot be streamed: the best is known at the end.")
    if request.suffix and request.echo:
        raise invalid("echo", "'echo' together with 'suffix' is not supported.")
    max_tokens = COMPLETION_MAX_TOKENS if request.max_tokens is None else request.max_tokens
    logprobs = request.logprobs
    if logprobs is None and best_of is not None and best_of > n:
        logprobs = 0  # to tell which are the best
    return params_of(
        request,
        n_vocab,
        {"prompt_logprobs": "logprobs"},
        max_tokens=max_tokens,
        logprobs=logprobs,
        prompt_logprobs=request.logprobs if request.echo else None,
    )
