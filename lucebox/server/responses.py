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
    """Of the tokens that a prediction was tried for. Unlike OpenAI's, rejected ones are not billed."""

    accepted_prediction_tokens: int
    rejected_prediction_tokens: int

    @classmethod
    def of(cls, timings: Timings) -> CompletionTokensDetails:
        tried = timings.drafters.get(PREDICTION_DRAFTER, DrafterTotals())
        return cls(tried.n_accepted, tried.n_drafted - tried.n_accepted)


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET

    @classmethod
    def of(cls, bill: Bill) -> Usage:
        details = CompletionTokensDetails.of(bill.timings) if bill.has_prediction else UNSET
        return cls(bill.n_prompt, bill.n_completion, bill.n_prompt + bill.n_completion, details)


class TimingsBody(msgspec.Struct, frozen=True):
    """As far as llama.cpp's server has the same figure, by its name; then those of lucebox.engine.timings."""

    prompt_n: int
    prompt_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_second: float
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
            prompt_n=timings.prompt_n,
            prompt_ms=round(timings.prompt_ms, 3),
            prompt_per_second=round(timings.prompt_per_second, 3),
            predicted_n=timings.predicted_n,
            predicted_ms=round(timings.predicted_ms, 3),
            predicted_per_second=round(timings.predicted_per_second, 3),
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


class AssistantReply(msgspec.Struct, frozen=True):
    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class ChatChoice(msgspec.Struct, frozen=True):
    index: int
    message: AssistantReply
    finish_reason: FinishReason
    logprobs: ChatLogprobs | None = None


class Delta(msgspec.Struct, frozen=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChatChunkChoice(msgspec.Struct, frozen=True):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None


class TextLogprobs(msgspec.Struct, frozen=True):
    """`text_offset` counts characters from the start of the choice's text."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


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
