"""The bodies of POST /v1/messages and its count_tokens, and what they mean to sampler and template."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from lucebox.grammar import Grammar
from lucebox.sampling.params import SamplingParams
from lucebox.server.anthropic_errors import NO_THREADS
from lucebox.server.decode import by_type
from lucebox.server.effort import EFFORT_VARIABLE, SWITCHES, Effort
from lucebox.server.errors import ApiError
from lucebox.server.messages_api.blocks import Inert, InputMessage
from lucebox.server.sampled_request import Int64, Speculative, speculative_params
from lucebox.server.sampling_fields import sampling_params

MaxTokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Temperature = Annotated[float, Meta(ge=0.0, le=1.0)]


class ThinkingEnabled(msgspec.Struct, tag_field="type", tag="enabled", forbid_unknown_fields=True):
    """The budget is not enforced: thinking ends by itself or at `max_tokens`."""

    budget_tokens: MaxTokens | None = None
    display: Literal["summarized", "omitted"] | None = None


class ThinkingAdaptive(msgspec.Struct, tag_field="type", tag="adaptive", forbid_unknown_fields=True):
    display: Literal["summarized", "omitted"] | None = None


class ThinkingDisabled(msgspec.Struct, tag_field="type", tag="disabled", forbid_unknown_fields=True):
    display: None = None


Thinking = ThinkingEnabled | ThinkingAdaptive | ThinkingDisabled
_THINKING: Mapping[str, type[Thinking]] = {
    "enabled": ThinkingEnabled,
    "adaptive": ThinkingAdaptive,
    "disabled": ThinkingDisabled,
}


class JsonFormat(msgspec.Struct, tag_field="type", tag="json_schema", forbid_unknown_fields=True):
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct, forbid_unknown_fields=True):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: Any = None


class ContextManagement(msgspec.Struct, forbid_unknown_fields=True):
    edits: list[Any] = []


class ClearThinking(
    msgspec.Struct, tag_field="type", tag="clear_thinking_20251015", forbid_unknown_fields=True
):
    """What of earlier thinking is kept is up to the model's chat template."""

    keep: Inert = None


class CountRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/messages/count_tokens, and what the other one has in common with it."""

    model: str | None = None
    messages: list[InputMessage]
    system: str | list[Any] | None = None
    tools: list[Any] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: OutputConfig | None = None
    output_format: Any = None  # the same as output_config.format, in an older form
    context_management: ContextManagement | None = None
    mcp_servers: list[Any] | None = None
    thread: Any = None
    compaction: Any = None
    cache_control: Inert = None  # prompts are always cached
    fallbacks: Inert = None  # for models that decline
    fallback_credit_token: Inert = None
    billing_policy: Inert = None
    speed: Inert = None
    user_profile_id: Inert = None
    workspace_id: Inert = None


class MessagesRequest(CountRequest, kw_only=True, forbid_unknown_fields=True):
    """The body of POST /v1/messages."""

    max_tokens: MaxTokens
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: Temperature | None = None
    top_p: float | None = None
    top_k: Int64 | None = None
    metadata: dict[str, Any] | None = None
    service_tier: Inert = None
    inference_geo: Inert = None
    diagnostics: Inert = None
    container: Any = None
    # Ours.
    seed: Int64 | None = None
    min_p: float | None = None
    speculative: bool | Speculative | None = None


def refuse_unsupported(request: CountRequest) -> None:
    """Raises ApiError naming the first field that asks for something we do not do."""
    for name in ("container", "mcp_servers"):
        if getattr(request, name, None):
            raise ApiError(
                f"'{name}' is not supported: this server runs no tools; describe in 'tools' what you run.",
                param=name,
                code="unsupported_parameter",
            )
    if request.thread is not None:
        raise ApiError(
            "'thread' is not supported: this server keeps nothing between requests; send all 'messages'.",
            param="thread",
            code=NO_THREADS,
        )
    if request.compaction is not None:
        raise ApiError(
            "'compaction' is not supported: ask for a summary in 'messages'.",
            param="compaction",
            code="unsupported_parameter",
        )
    edits = [] if request.context_management is None else request.context_management.edits
    for i, edit in enumerate(edits):
        by_type(edit, {"clear_thinking_20251015": ClearThinking}, f"context_management.edits[{i}]")


def params_of(request: MessagesRequest, n_vocab: int) -> SamplingParams:
    """Raises ApiError naming the field out of range."""
    given: dict[str, Any] = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "min_p": request.min_p,
        "seed": request.seed,
        "stop": None if request.stop_sequences is None else tuple(request.stop_sequences),
        "max_tokens": request.max_tokens,
        "speculative": speculative_params(request.speculative),
        "grammar": _grammar(request),
    }
    return sampling_params(given, n_vocab, {"stop": "stop_sequences"})


def thinking_of(request: CountRequest) -> Thinking | None:
    """Raises ApiError naming what is wrong with it."""
    return None if request.thinking is None else by_type(request.thinking, _THINKING, "thinking")


def effort_of(
    request: CountRequest, thinking: Thinking | None, variables: Collection[str], *, reasons: bool
) -> Effort | None:
    """How hard a model is to think that may be one that `reasons`, with a chat template that has `variables`.

    A request allows thinking, and does not demand it: a model that does none just answers. Without the field
    it is off, unless the model cannot do otherwise.
    """
    if isinstance(thinking, ThinkingDisabled):
        return "none"
    if thinking is None:
        can_switch = any(name in variables for name in (*SWITCHES, EFFORT_VARIABLE))
        return "none" if can_switch or not reasons else None
    asked = None if request.output_config is None else request.output_config.effort
    effort: Effort | None = "xhigh" if asked == "max" else asked
    if effort is None and isinstance(thinking, ThinkingEnabled):
        effort = "medium"
    return effort if reasons else None


def _grammar(request: CountRequest) -> Grammar | None:
    given = None if request.output_config is None else request.output_config.format
    at = "output_config.format" if given is not None else "output_format"
    given = request.output_format if given is None else given
    if given is None:
        return None
    format = by_type(given, {"json_schema": JsonFormat}, at)
    return Grammar.json_schema(format.schema)
