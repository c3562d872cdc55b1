"""What a request may ask of sampling. Plain, validated, and sent as it is to the engine process."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from lucebox.errors import NoTokenError, RequestError
from lucebox.grammar import Grammar

MAX_STOPS = 16
MAX_LOGPROBS = 20
MAX_SEQUENCE_BREAKERS = 64
MAX_SEQUENCE_BREAKER_BYTES = 64
BAN = -100.0


class SpeculativeParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Per-request overrides of speculation. None leaves the engine's own setting."""

    enabled: bool | None = None
    drafter: str | None = None
    draft_length: str | None = None
    acceptance: str | None = None


class SamplingParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How tokens are drawn, and when to stop.

    Order of the chain: logit_bias, penalties, DRY, temperature, min_p, top_k, typical_p, top_p, XTC. A bias
    of -100 bans. Frequency and presence penalties count generated tokens; the repetition penalty and DRY also
    see the prompt. Temperature 0 takes the likeliest token of what DRY leaves, whatever filters follow.
    Defaults are OpenAI's: temperature 1, top_p 1, everything else off; those of DRY and XTC are llama.cpp's.
    """

    temperature: float = 1.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0  # 1: off
    xtc_probability: float = 0.0  # 0: off
    xtc_threshold: float = 0.1
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0  # 0: off
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1  # tokens that are looked at; -1: all
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    logit_bias: dict[int, float] = {}
    seed: int | None = None
    max_tokens: int | None = None  # None: until the context is full; 0: read the prompt, and end
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None  # None: none; n: the chosen token's and the n likeliest
    prompt_logprobs: int | None = None  # the same of the prompt's tokens, but for the first
    speculative: SpeculativeParams = SpeculativeParams()
    grammar: Grammar | None = None  # what the whole answer must be a sentence of

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def banned(self) -> frozenset[int]:
        """Tokens that `logit_bias` leaves no chance. Samplers have biases as float32."""
        return frozenset(token for token, bias in self.logit_bias.items() if np.float32(bias) <= BAN)

    def validate(self, n_vocab: int) -> None:
        """Raises RequestError naming the first field out of range."""
        self._check_range("temperature", self.temperature, 0.0, 100.0)
        self._check_range("top_p", self.top_p, 0.0, 1.0, low_open=True)
        self._check_range("min_p", self.min_p, 0.0, 1.0)
        self._check_range("typical_p", self.typical_p, 0.0, 1.0, low_open=True)
        self._check_range("xtc_probability", self.xtc_probability, 0.0, 1.0)
        self._check_range("xtc_threshold", self.xtc_threshold, 0.0, 1.0)
        self._check_range("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        self._check_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        self._check_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        self._check_range("top_k", self.top_k, 0, 2**31 - 1)
        if self.seed is not None:
            self._check_range("seed", self.seed, -(2**63), 2**64 - 1)
        if self.max_tokens is not None:
            self._check_range("max_tokens", self.max_tokens, 0, 2**31 - 1)
        if self.logprobs is not None:
            self._check_range("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        if self.prompt_logprobs is not None:
            self._check_range("prompt_logprobs", self.prompt_logprobs, 0, MAX_LOGPROBS)
        self._check_dry()
        self._check_stop()
        self._check_bias(n_vocab)
        try:
            msgspec.convert(msgspec.structs.asdict(self.speculative), SpeculativeParams)
        except (TypeError, msgspec.ValidationError) as error:
            raise RequestError(f"speculative: {error}", param="speculative") from None

    def _check_dry(self) -> None:
        self._check_range("dry_multiplier", self.dry_multiplier, 0.0, 100.0)
        self._check_range("dry_base", self.dry_base, 1.0, 100.0)
        self._check_range("dry_allowed_length", self.dry_allowed_length, 1, 2**31 - 1)
        self._check_range("dry_penalty_last_n", self.dry_penalty_last_n, -1, 2**31 - 1)
        breakers, name = self.dry_sequence_breakers, "dry_sequence_breakers"
        if len(breakers) > MAX_SEQUENCE_BREAKERS:
            raise RequestError(
                f"{name} has {len(breakers)} strings, at most {MAX_SEQUENCE_BREAKERS} are allowed", param=name
            )
        if not all(0 < len(s.encode("utf-8", "replace")) <= MAX_SEQUENCE_BREAKER_BYTES for s in breakers):
            raise RequestError(f"{name} must be of 1 to {MAX_SEQUENCE_BREAKER_BYTES} bytes each", param=name)

    def _check_stop(self) -> None:
        if len(self.stop) > MAX_STOPS:
            raise RequestError(
                f"stop has {len(self.stop)} strings, at most {MAX_STOPS} are allowed", param="stop"
            )
        if any(not s for s in self.stop):
            raise RequestError("stop contains an empty string", param="stop")

    def _check_bias(self, n_vocab: int) -> None:
        for token, bias in self.logit_bias.items():
            if not 0 <= token < n_vocab:
                raise RequestError(
                    f"logit_bias: token id {token} is outside the vocabulary of {n_vocab}", param="logit_bias"
                )
            self._check_range("logit_bias", bias, -100.0, 100.0)
        if len(self.banned) == n_vocab:
            raise NoTokenError("logit_bias bans every token", param="logit_bias")

    @staticmethod
    def _check_range(name: str, value: float, low: float, high: float, *, low_open: bool = False) -> None:
        too_low = value <= low if low_open else value < low
        if math.isfinite(value) and not too_low and value <= high:
            return
        if too_low:
            bound = f"{'over' if low_open else 'at least'} {_number(low)}"
        else:
            bound = "a number" if math.isnan(value) else f"at most {_number(high)}"
        raise RequestError(f"{name} must be {bound}, not {value!r:.40}", param=name)


def _number(value: float) -> str:
    """As it is written: without the exponents of large ones."""
    return str(value) if isinstance(value, int) else f"{value:g}"
