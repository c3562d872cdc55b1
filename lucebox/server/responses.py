"""What is sent back, field by field."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from lucebox.config import PREDICTION_DRAFTER
from lucebox.engine.timings import DrafterTotals, Timings
from lucebox.server.generation import Bill, FinishReason

ChoiceT = TypeVar("ChoiceT")
ObjectName = Literal["chat.completion", "chat.completion.chunk", "text_completion"]


class CompletionTokensDetails(msgspec.Struct, frozen=True):
    """Tokens of reasoning, and those that a prediction was tried for. Unlike OpenAI's, rejected ones are not
    billed."""

    reasoning_tokens: int | UnsetType = UNSET
    accepted_prediction_tokens: int | UnsetType = UNSET
    rejected_prediction_tokens: int | UnsetType = UNSET

    @classmethod
    def of(cls, bill: Bill) -> CompletionTokensDetails | UnsetType:
        """UNSET for a request without a prediction to a model that does not reason."""
        reasoning: int | UnsetType = UNSET if bill.n_reasoning is None else bill.n_reasoning
        if bill.has_prediction:
            tried = bill.timings.drafters.get(PREDICTION_DRAFTER, DrafterTotals())
            return cls(reasoning, tried.n_accepted, tried.n_drafted - tried.n_accepted)
        return UNSET if bill.n_reasoning is None else cls(reasoning)


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """`cached_tokens` were known from other requests."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET

    @classmethod
    def of(cls, bill: Bill) -> Usage:
        n_prompt, n_completion = bill.n_prompt, bill.n_completion
        cached = PromptTokensDetails(bill.n_cached)
        return cls(n_prompt, n_completion, n_prompt + n_completion, cached, CompletionTokensDetails.of(bill))


class TimingsBody(msgspec.Struct, frozen=True):
    """As far as llama.cpp's server has the same figure, by its name; then those of lucebox.engine.timings."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_second: float
    n_forced: int
    draft_n: int
    draft_n_accepted: int
    draft_ms: float
    verify_ms: float
    n_overlapped: int
    n_foreseen: int
    hidden_ms: float
    acceptance_rate: float
    mean_acceptance_length: float
    accepted_per_position: list[int]
    drafted_per_position: list[int]
    drafters: dict[str, DrafterTotals]

    @classmethod
    def of(cls, timings: Timings) -> TimingsBody:
        return cls(
            cache_n=timings.cache_n,
            prompt_n=timings.prompt_n,
            prompt_ms=round(timings.prompt_ms, 3),
            prompt_per_second=round(timings.prompt_per_second, 3),
            predicted_n=timings.predicted_n,
            predicted_ms=round(timings.predicted_ms, 3),
            predicted_per_second=round(timings.predicted_per_second, 3),
            n_forced=timings.n_forced,
            draft_n=timings.draft_n,
            draft_n_accepted=timings.draft_n_accepted,
            draft_ms=round(timings.draft_ms, 3),
            verify_ms=round(timings.verify_ms, 3),
            n_overlapped=timings.n_overlapped,
            n_foreseen=timings.n_foreseen,
            hidden_ms=round(timings.hidden_ms, 3),
            acceptance_rate=round(timings.acceptance_rate, 4),
            mean_acceptance_length=round(timings.mean_acceptance_length, 4),
            accepted_per_position=timings.accepted_per_position,
            drafted_per_position=timings.drafted_per_position,
            drafters=timings.drafters,
        )


class TopLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    content: list[TokenLogprob]
    refusal: None = None


class CalledFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class ToolCallBody(msgspec.Struct, frozen=True):
    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class AssistantReply(msgspec.Struct, frozen=True):
    """`content` is null beside calls, if there is none."""

    content: str | None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallBody] | UnsetType = UNSET
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class ChatChoice(msgspec.Struct, frozen=True):
    index: int
    message: AssistantReply
    finish_reason: FinishReason
    logprobs: ChatLogprobs | None = None


class FunctionDelta(msgspec.Struct, frozen=True):
    arguments: str
    name: str | UnsetType = UNSET


class ToolCallDelta(msgspec.Struct, frozen=True):
    """A piece of call `index`; id, type and name come with the first."""

    index: int
    function: FunctionDelta
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class Delta(msgspec.Struct, frozen=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None


class TextLogprobs(msgspec.Struct, frozen=True):
    """`text_offset` counts characters from the start of the choice's text. The first token of an echoed
    prompt has no probability, and is null."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]

    def followed_by(self, later: TextLogprobs) -> TextLogprobs:
        return TextLogprobs(
            self.tokens + later.tokens,
            self.token_logprobs + later.token_logprobs,
            self.top_logprobs + later.top_logprobs,
            self.text_offset + later.text_offset,
        )


class TextChoice(msgspec.Struct, frozen=True):
    index: int
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: FinishReason | None = None


class Completion(msgspec.Struct, Generic[ChoiceT], frozen=True, kw_only=True):
    """A whole answer of either endpoint, or a chunk of a streamed one.

    In chunks `usage` is absent unless asked for, and null in all but the last.
    """

    id: str
    object: ObjectName
    created: int
    model: str
    choices: list[ChoiceT]
    usage: Usage | UnsetType | None = UNSET
    timings: TimingsBody | UnsetType = UNSET
    system_fingerprint: str
