"""What overlap brings on an artificial device is what the simulator says it brings."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from lucebox.config import Overlap
from lucebox.engine.overlap_policy import N_SPARE
from lucebox.engine.timeline import DRAFT, TARGET, Span
from lucebox.engine.timings import Timings
from lucebox.research.costs import CostModel
from lucebox.research.overlapped import Overlapped
from lucebox.sampling.params import SamplingParams
from tests.support.engine_harness import Harness
from tests.support.sleeping_runtime import N_VOCAB, SleepingRuntime, Text

TARGET_MS = 20.0
GAMMA = 4
BETA = 0.5
N_TOKENS = 120
N_PLAIN_TOKENS = 24
N_CTX = 256
PROMPT = [1, 2, 3]
ATTEMPTS = 3  # the machine is shared, and its clock goes on when somebody else computes


@dataclass(frozen=True)
class Decoded:
    timings: Timings
    spans: list[Span]

    @property
    def token_ms(self) -> float:
        return self.timings.predicted_ms / (self.timings.predicted_n - 1)


def typical_text(schedule: Overlapped, alpha: float, costs: CostModel) -> Text:
    """A text on which the schedule does as it does on average."""
    for seed in range(1000):
        text = Text(N_TOKENS + 16, len(PROMPT), alpha, BETA, seed)
        run = schedule.replay(*text.rounds(GAMMA, N_TOKENS), alpha, costs)
        found = run.n_tokens / run.ms * costs.verify_ms(1)
        if abs(found / schedule.speed_up(alpha, costs) - 1.0) < 0.01:
            return text
    raise AssertionError("no text is typical")


def decode(text: Text, draft_ms: float, overlap: Overlap, n_draft: int, n_tokens: int) -> Decoded:
    """Decodes `n_tokens` of `text` greedily; with `n_draft` 0 plainly."""
    spans: list[Span] = []
    target = SleepingRuntime(text.target, TARGET_MS, n_ctx=N_CTX)
    draft = SleepingRuntime(text.draft, draft_ms, n_ctx=N_CTX, n_spare=N_SPARE)
    harness = Harness(
        N_VOCAB,
        text.target,
        text.draft,
        n_ctx=N_CTX,
        draft_length=f"fixed:n={n_draft}",
        overlap=overlap,
        runtimes=(target, draft),
        on_work=spans.append,
    )
    harness.costs.verify.set([(n, 0, TARGET_MS) for n in (1, 8)])
    harness.costs.draft.set([(n, 0, draft_ms) for n in (1, 8)])
    answer = harness.ask(PROMPT, SamplingParams(temperature=0.0, max_tokens=n_tokens, ignore_eos=True))
    harness.stepper.close()
    return Decoded(answer.finish.timings, spans)


@pytest.mark.parametrize("c", [0.1, 0.3])
@pytest.mark.parametrize("alpha", [0.5, 0.8, 0.9])
def test_the_speed_up_is_the_simulators(alpha: float, c: float) -> None:
    schedule = Overlapped(GAMMA, BETA, 1 + N_SPARE)
    costs = CostModel.textbook(c)
    text = typical_text(schedule, alpha, costs)
    expected = schedule.speed_up(alpha, costs)
    found = []
    for _ in range(ATTEMPTS):
        plain = decode(text, c * TARGET_MS, "off", 0, N_PLAIN_TOKENS)
        overlapped = decode(text, c * TARGET_MS, "on", GAMMA, N_TOKENS)
        found.append(plain.token_ms / overlapped.token_ms)
        if found[-1] == pytest.approx(expected, rel=0.1):
            return
    pytest.fail(f"speed-ups {found}, expected {expected:.2f}")


def test_both_are_busy_at_once() -> None:
    spans = decode(Text(N_TOKENS + 16, len(PROMPT), 0.8, BETA, 1), 4.0, "on", GAMMA, N_TOKENS).spans
    ahead = [span for span in spans if span.is_ahead]
    target = [span for span in spans if span.party == TARGET]
    assert all(span.party == DRAFT for span in ahead)
    assert len(ahead) > 20
    for span in ahead:
        assert any(t.start_s - 0.001 < span.start_s < t.end_s + 0.002 for t in target)
