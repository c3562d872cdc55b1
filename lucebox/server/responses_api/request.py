"""The body of POST /v1/responses, field by field, and what it means to the sampler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from lucebox.grammar import Grammar
from lucebox.sampling.params import SamplingParams
from lucebox.server.decode import by_type
from lucebox.server.effort import Effort
from lucebox.server.errors import ApiError
from lucebox.server.response_format import (
    JsonObjectFormat,
    JsonSchema,
    JsonSchemaFormat,
    TextFormat,
    grammar_of,
)
from lucebox.server.sampled_request import Inert, Int64, Speculative, speculative_params
from lucebox.server.sampling_fields import sampling_params

MAX_METADATA = 16
MAX_METADATA_KEY = 64  # characters
MAX_METADATA_VALUE = 512  # characters

MaxTokens = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Include = Literal[
    "message.output_text.logprobs",
    # Of these there is nothing to include: they are about OpenAI's own tools, images, and encryption.
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
]


class FlatJsonSchema(msgspec.Struct, tag_field="type", tag="json_schema", forbid_unknown_fields=True):
    """As in `response_format`, one level up."""

    name: str
    schema: dict[str, Any]
    strict: bool | None = None
    description: str | None = None


class TextConfig(msgspec.Struct, forbid_unknown_fields=True):
    format: Any = None
    verbosity: Literal["medium"] | None = None


class ReasoningConfig(msgspec.Struct, forbid_unknown_fields=True):
    """The reasoning is returned whole, so there is no summary of it, whatever kind is asked for."""

    effort: Effort | Literal["max"] | None = None
    summary: Inert = None
    generate_summary: Inert = None
    context: Inert = None
    mode: Literal["standard"] | None = None


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_obfuscation: bool | None = None


class ResponsesRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    model: str | None = None
    input: str | list[Any]
    instructions: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_output_tokens: MaxTokens | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: Int64 | None = None
    include: list[Include] | None = None
    tools: list[Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None  # nothing is kept, and the answer says so
    truncation: str | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Inert = None
    prompt_cache_options: Inert = None
    service_tier: Inert = None
    max_tool_calls: Int64 | None = None  # counts calls of OpenAI's own tools
    background: bool | None = None
    previous_response_id: Any = None
    conversation: Any = None
    prompt: Any = None
    context_management: Any = None
    moderation: Any = None
    # Ours.
    seed: Int64 | None = None
    top_k: Int64 | None = None
    min_p: float | None = None
    speculative: bool | Speculative | None = None

    @property
    def wants_logprobs(self) -> bool:
        return "message.output_text.logprobs" in (self.include or ())


_STATEFUL = "this server keeps nothing between requests: send the whole conversation as 'input'"
_REFUSED: Mapping[str, str] = {
    "previous_response_id": _STATEFUL,
    "conversation": _STATEFUL,
    "background": "this server answers on the same connection: leave it out, or use 'stream'",
    "prompt": "this server keeps no prompts: send 'instructions' and 'input'",
    "context_management": "this server compacts nothing: send what is to be read as 'input'",
    "moderation": "this server moderates nothing: leave it out",
}


def refuse_unsupported(request: ResponsesRequest) -> None:
    """Raises ApiError naming the first field that asks for something we do not do."""
    for name, why in _REFUSED.items():
        if getattr(request, name):
            raise ApiError(f"'{name}' is not supported; {why}.", param=name, code="unsupported_parameter")
    if request.truncation not in (None, "disabled"):
        raise ApiError(
            "'truncation' other than 'disabled' is not supported; leave out of 'input' what is too much.",
            param="truncation",
            code="unsupported_parameter",
        )
    if request.top_logprobs is not None and not request.wants_logprobs:
        raise ApiError(
            "'top_logprobs' needs 'include' to have 'message.output_text.logprobs'.",
            param="top_logprobs",
            code="invalid_value",
        )
    _check_metadata(request.metadata or {})


def params_of(request: ResponsesRequest, n_vocab: int) -> SamplingParams:
    """Raises ApiError naming the field out of range."""
    given: dict[str, Any] = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "min_p": request.min_p,
        "seed": request.seed,
        "max_tokens": request.max_output_tokens,
        "logprobs": (request.top_logprobs or 0) if request.wants_logprobs else None,
        "speculative": speculative_params(request.speculative),
        "grammar": _grammar(request.text),
    }
    return sampling_params(given, n_vocab, {"max_tokens": "max_output_tokens", "logprobs": "top_logprobs"})


def effort_of(request: ResponsesRequest) -> Effort | None:
    asked = None if request.reasoning is None else request.reasoning.effort
    return "xhigh" if asked == "max" else asked


def _grammar(text: TextConfig | None) -> Grammar | None:
    if text is None or text.format is None:
        return None
    kinds: Mapping[str, type[TextFormat | JsonObjectFormat | FlatJsonSchema]] = {
        "text": TextFormat,
        "json_object": JsonObjectFormat,
        "json_schema": FlatJsonSchema,
    }
    format = by_type(text.format, kinds, "text.format")
    if isinstance(format, FlatJsonSchema):
        schema = JsonSchema(format.name, format.schema, format.strict, format.description)
        return grammar_of(JsonSchemaFormat(schema), None)
    return grammar_of(format, None)


def _check_metadata(metadata: dict[str, str]) -> None:
    if len(metadata) > MAX_METADATA:
        raise ApiError(
            f"'metadata' has {len(metadata)} entries, at most {MAX_METADATA} are allowed.",
            param="metadata",
            code="invalid_value",
        )
    for key, value in metadata.items():
        if len(key) > MAX_METADATA_KEY or len(value) > MAX_METADATA_VALUE:
            raise ApiError(
                f"'metadata' has an entry of more than {MAX_METADATA_KEY} characters as its key or "
                f"{MAX_METADATA_VALUE} as its value.",
                param="metadata",
                code="invalid_value",
            )
