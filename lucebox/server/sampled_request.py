"""What every request that generates may say of sampling, and what that means to the sampler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lucebox import acceptance, draft_length, drafters
from lucebox.config import AUTO
from lucebox.errors import ConfigError
from lucebox.sampling.params import SamplingParams, SpeculativeParams
from lucebox.server.errors import ApiError
from lucebox.server.response_format import GrammarText, ResponseFormat, grammar_of
from lucebox.server.sampling_fields import sampling_params

MAX_CHOICES = 128

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]
Inert = Any  # documented by OpenAI, and without effect on what we do

# Fields of SampledRequest that are fields of SamplingParams, by the same name and with the same meaning.
_DIRECT = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "xtc_probability",
    "xtc_threshold",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "ignore_eos",
    "seed",
)


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_usage: Annotated[
        bool | None, Meta(description="end the stream with a chunk that has `usage`, and no choices")
    ] = None
    include_obfuscation: Annotated[bool | None, Meta(description="without effect: nothing is padded")] = None


class Speculative(msgspec.Struct, forbid_unknown_fields=True):
    """Per-request overrides of speculation; a whole `draft_length` is short for `fixed:n=…`."""

    enabled: Annotated[
        bool | None, Meta(description="`false` decodes token by token; `true` needs a drafter, or is refused")
    ] = None
    drafter: Annotated[
        str | None,
        Meta(description="who guesses: one of the server's drafters by name, `auto` for the server's choice"),
    ] = None
    draft_length: Annotated[
        str | Int64 | None,
        Meta(description="how far ahead: a number of tokens, or a controller such as `threshold:n=8`"),
    ] = None
    acceptance: Annotated[
        str | None,
        Meta(description="by which rule guesses stand; `auto`, the default, changes no answer's law"),
    ] = None


class SampledRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What chat and completions have in common. Null anywhere means the default."""

    model: Annotated[str | None, Meta(description="must be the served model, if given")] = None
    stream: Annotated[bool | None, Meta(description="send the answer as server-sent events, as it comes")] = (
        None
    )
    stream_options: Annotated[StreamOptions | None, Meta(description="only with `stream`")] = None
    n: Annotated[
        Count | None,
        Meta(description=f"choices for each prompt, 1 to {MAX_CHOICES}; each drawn with a seed of its own"),
    ] = None
    temperature: Annotated[float | None, Meta(description="0 always takes the likeliest token")] = None
    top_p: Annotated[
        float | None, Meta(description="draw among the likeliest tokens that hold this much probability")
    ] = None
    frequency_penalty: Annotated[
        float | None, Meta(description="over 0: the more often a token was generated, the less likely")
    ] = None
    presence_penalty: Annotated[
        float | None, Meta(description="over 0: tokens that were generated become less likely")
    ] = None
    logit_bias: Annotated[
        dict[str, float] | None, Meta(description="token ids and what to add to their logits; -100 bans")
    ] = None
    seed: Annotated[
        Int64 | None, Meta(description="the same seed gives the same text, whatever else the server does")
    ] = None
    stop: Annotated[
        str | list[str] | None, Meta(description="end in front of this text, or of one of up to 16")
    ] = None
    max_tokens: Annotated[Int64 | None, Meta(description="most tokens to generate")] = None
    user: Annotated[Inert, Meta(description="without effect")] = None
    response_format: Annotated[
        ResponseFormat | None, Meta(description="`text`, `json_object` or `json_schema`; always kept to")
    ] = None
    # Ours; names as vLLM or llama.cpp have them.
    top_k: Annotated[Int64 | None, Meta(description="draw among the k likeliest tokens; 0: all")] = None
    min_p: Annotated[
        float | None, Meta(description="leave out tokens less likely than this share of the likeliest")
    ] = None
    typical_p: Annotated[
        float | None,
        Meta(description="draw among the tokens of average surprise that hold this much probability; 1: off"),
    ] = None
    xtc_probability: Annotated[
        float | None, Meta(description="how often XTC leaves out the top choices; 0: never")
    ] = None
    xtc_threshold: Annotated[
        float | None, Meta(description="tokens this likely are top choices; the least likely of them stays")
    ] = None
    repetition_penalty: Annotated[
        float | None, Meta(description="over 1: tokens that occurred become less likely")
    ] = None
    dry_multiplier: Annotated[
        float | None, Meta(description="over 0: what would prolong a repetition becomes less likely (DRY)")
    ] = None
    dry_base: Annotated[
        float | None, Meta(description="by what DRY's penalty grows with each repeated token")
    ] = None
    dry_allowed_length: Annotated[
        Int64 | None, Meta(description="tokens that may be repeated before DRY acts")
    ] = None
    dry_penalty_last_n: Annotated[
        Int64 | None, Meta(description="tokens that DRY looks back; -1: all, 0: off")
    ] = None
    dry_sequence_breakers: Annotated[
        list[str] | None, Meta(description="texts across which DRY sees no repetition")
    ] = None
    ignore_eos: Annotated[bool | None, Meta(description="generate on behind the end of the answer")] = None
    grammar: Annotated[
        str | GrammarText | None, Meta(description="a grammar of the answer: GBNF or Lark; or with its type")
    ] = None
    speculative: Annotated[
        bool | Speculative | None, Meta(description="how this request is guessed ahead for; see below")
    ] = None

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


def params_of(
    request: SampledRequest,
    n_vocab: int,
    names: Mapping[str, str],
    *,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None = None,
) -> SamplingParams:
    """What `request` asks for; `names` tells what a field of SamplingParams is called in it.

    Raises ApiError naming the field that is out of range.
    """
    stop, breakers = request.stop, request.dry_sequence_breakers
    given: dict[str, Any] = {name: getattr(request, name) for name in _DIRECT}
    given |= {
        "stop": (stop,) if isinstance(stop, str) else None if stop is None else tuple(stop),
        "dry_sequence_breakers": None if breakers is None else tuple(breakers),
        "logit_bias": _logit_bias(request.logit_bias),
        "speculative": speculative_params(request.speculative),
        "grammar": grammar_of(request.response_format, request.grammar),
        "max_tokens": max_tokens,
        "logprobs": logprobs,
        "prompt_logprobs": prompt_logprobs,
    }
    return sampling_params(given, n_vocab, names)


def speculative_params(asked: bool | Speculative | None) -> SpeculativeParams | None:
    """Raises ApiError naming what is no spec."""
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


def _logit_bias(bias: dict[str, float] | None) -> dict[int, float] | None:
    """Raises ApiError for a key that is no token id or names a token a second time, as "05" after "5"."""
    if bias is None:
        return None
    by_token: dict[int, float] = {}
    for key, value in bias.items():
        if not (key.isascii() and key.isdigit() and len(key) <= 10):
            raise ApiError(
                f"Invalid key in 'logit_bias': {key!r} is no token id.",
                param="logit_bias",
                code="invalid_value",
            )
        if int(key) in by_token:
            raise ApiError(
                f"Invalid key in 'logit_bias': {key!r} names token {int(key)} a second time.",
                param="logit_bias",
                code="invalid_value",
            )
        by_token[int(key)] = value
    return by_token
