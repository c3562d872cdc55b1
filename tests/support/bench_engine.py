"""An engine that answers in no time and says how long it took: arms of any speed, for benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from lucebox.api import Completion
from lucebox.core import Origin
from lucebox.engine.timings import Timings
from lucebox.sampling.params import SamplingParams

PROMPT_MS = 100.0


def drafted(n_rounds: int, depth: int, accepted: Sequence[int]) -> Timings:
    """What `n_rounds` drafts of `depth` tokens add to a request's timings; `accepted` per position."""
    return Timings(
        draft_n=n_rounds * depth,
        draft_n_accepted=sum(accepted),
        drafted_per_position=[n_rounds] * depth,
        accepted_per_position=list(accepted),
    )


@dataclass
class ScriptedBench:
    """Answers with `answer(params)`, at `ms_per_token(params)`; its clock runs only while it answers."""

    ms_per_token: Callable[[SamplingParams], float] = lambda params: 10.0
    answer: Callable[[SamplingParams], str] = lambda params: "a" * (params.max_tokens or 1)
    guessed: Callable[[SamplingParams], Timings] = lambda params: Timings()
    asked: list[tuple[tuple[int, ...], SamplingParams]] = field(default_factory=list)
    now_s: float = 0.0
    closed: bool = False

    def __post_init__(self) -> None:
        model = SimpleNamespace(name="scripted", device="CPU")
        self.info: Any = SimpleNamespace(n_ctx=8192, acceptance="auto", target=model, draft=model)
        self.tokenizer = SimpleNamespace(encode=lambda text, *, parse_special: list(text.encode()))

    def __enter__(self) -> ScriptedBench:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return list("".join(f"{m['role']}: {m['content']}\n" for m in messages).encode())

    def chat(self, messages: Sequence[dict[str, str]], params: SamplingParams) -> Completion:
        return self.generate(self.encode_chat(messages), params)

    def generate(self, prompt: Any, params: SamplingParams) -> Completion:
        tokens = tuple(prompt.encode() if isinstance(prompt, str) else prompt)
        self.asked.append((tokens, params))
        text = self.answer(params)
        answered = list(text.encode())
        decode_ms = self.ms_per_token(params) * (len(answered) - 1)
        self.now_s += (PROMPT_MS + decode_ms) / 1000.0
        timings = self.guessed(params) + Timings(
            prompt_n=len(tokens), prompt_ms=PROMPT_MS, predicted_n=len(answered), predicted_ms=decode_ms
        )
        return Completion(text, answered, [Origin.PLAIN] * len(answered), None, "length", timings)

    def clock(self) -> float:
        """Seconds, as time.perf_counter gives them."""
        return self.now_s
