"""What a request may ask of sampling. Plain, validated, and sent as it is to the engine process."""

from __future__ import annotations

import math

import msgspec

from lucebox.errors import RequestError

MAX_STOPS = 16
MAX_LOGPROBS = 20
BAN = -100.0


class SpeculativeParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Per-request overrides of speculation. None leaves the engine's own setting."""

    enabled: bool | None = None
    drafter: str | None = None
    draft_length: str | None = None
    acceptance: str | None = None


class SamplingParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How tokens are drawn, and when to stop.

    Order of the chain: logit_bias, penalties, temperature, min_p, top_k, top_p. A bias of -100 bans.
    Frequency and presence penalties count generated tokens; the repetition penalty also sees the prompt.
    Defaults are OpenAI's: temperature 1, top_p 1, everything else off.
    """

    temperature: float = 1.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: dict[int, float] = {}
    seed: int | None = None
    max_tokens: int | None = None  # None: until the context is full
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None  # None: none; n: the chosen token's and the n likeliest
    speculative: SpeculativeParams = SpeculativeParams()

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    def validate(self, n_vocab: int) -> None:
        """Raises RequestError naming the first field out of range."""
        self._check_range("temperature", self.temperature, 0.0, 100.0)
        self._check_range("top_p", self.top_p, 0.0, 1.0, low_open=True)
        self._check_range("min_p", self.min_p, 0.0, 1.0)
        self._check_range("repetition_penalty", self.repetition_penalty, 0.01, 100.0)
        self._check_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        self._check_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        self._check_range("top_k", self.top_k, 0, 2**31 - 1)
        if self.seed is not None:
            self._check_range("seed", self.seed, -(2**63), 2**64 - 1)
        if self.max_tokens is not None:
            self._check_range("max_tokens", self.max_tokens, 1, 2**31 - 1)
        if self.logprobs is not None:
            self._check_range("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        if len(self.stop) > MAX_STOPS:
            raise RequestError(
                f"stop has {len(self.stop)} strings, at most {MAX_STOPS} are allowed", param="stop"
            )
        if any(not s for s in self.stop):
            raise RequestError("stop contains an empty string", param="stop")
        for token, bias in self.logit_bias.items():
            if not 0 <= token < n_vocab:
                raise RequestError(
                    f"logit_bias: token id {token} is outside the vocabulary of {n_vocab}", param="logit_bias"
                )
            self._check_range("logit_bias", bias, -100.0, 100.0)
        if sum(bias == BAN for bias in self.logit_bias.values()) == n_vocab:
            raise RequestError("logit_bias bans every token", param="logit_bias")
        try:
            msgspec.convert(msgspec.structs.asdict(self.speculative), SpeculativeParams)
        except (TypeError, msgspec.ValidationError) as error:
            raise RequestError(f"speculative: {error}", param="speculative") from None

    @staticmethod
    def _check_range(name: str, value: float, low: float, high: float, *, low_open: bool = False) -> None:
        too_low = value <= low if low_open else value < low
        if not math.isfinite(value) or too_low or value > high:
            bounds = f"{'(' if low_open else '['}{low:g}, {high:g}]"
            raise RequestError(f"{name} must be in {bounds}, not {value!r}", param=name)
