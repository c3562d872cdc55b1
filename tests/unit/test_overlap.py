"""Guessing on while the target verifies changes when drafts are made, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from lucebox.core import Float32Array
from lucebox.engine.overlap import MAX_FAILURES, Overlap
from lucebox.runtime.output import Output
from lucebox.runtime.rows import Rows
from lucebox.sampling.params import SamplingParams, SpeculativeParams
from tests.support.engine_harness import Answer, Harness
from tests.support.fake_runtime import FakeRuntime, random_model

N_VOCAB = 12
PROMPT = [1, 2, 3]
TARGET = random_model(N_VOCAB, 1)
DRAFT = random_model(N_VOCAB, 1, noise=0.7)
GREEDY = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
SAMPLED = SamplingParams(temperature=0.9, max_tokens=40, ignore_eos=True)


class PatientRuntime(FakeRuntime):
    """A target that is done when the draft model has nothing left to guess, or after `n_rounds` of it."""

    overlap: Overlap | None = None
    forwards_s = 0.0

    def forward(self, rows: Rows) -> Output:
        output = super().forward(rows)
        step = None if self.overlap is None else self.overlap._step
        if step is not None and step.job is not None:
            time.sleep(self.forwards_s)
            while not self.forwards_s and self.overlap is not None and not self._is_done():
                time.sleep(0.0005)
        return output

    def _is_done(self) -> bool:
        assert self.overlap is not None
        job = self.overlap.thread._begun
        return job is None or job.done.is_set()


def harness(overlap: Any = "on", forwards_s: float = 0.0, **options: Any) -> Harness:
    n_parallel, n_ctx = options.get("n_parallel", 1), options.get("n_ctx", 64)
    target = PatientRuntime(N_VOCAB, TARGET, n_ctx=n_ctx, n_sequences=n_parallel)
    draft = FakeRuntime(N_VOCAB, options.pop("draft", DRAFT), n_ctx=n_ctx, n_sequences=n_parallel, n_spare=16)
    made = Harness(N_VOCAB, TARGET, DRAFT, overlap=overlap, runtimes=(target, draft), **options)
    target.overlap, target.forwards_s = made.overlap, forwards_s
    return made


def ask(
    overlap: str, params: SamplingParams, prompts: Sequence[Sequence[int]] = (PROMPT,), **options: Any
) -> list[Answer]:
    made = harness(overlap, **options)
    ids = [made.submit(prompt, params, seed=i) for i, prompt in enumerate(prompts)]
    made.run()
    check_nothing_is_held(made)
    made.stepper.close()
    return [made.answers[id] for id in ids]


def check_nothing_is_held(made: Harness) -> None:
    """Apart from sequences that ended well, which others may begin as."""
    cache = made.draft.cache
    made.pool.forget()
    cache.check_integrity()
    held = {s: cache.length(s) for s in range(cache.n_sequences) if cache.length(s)}
    assert not held, f"an idle draft cache holds {held}"


VARIANTS = {
    "greedy": GREEDY,
    "token": replace(SAMPLED, speculative=SpeculativeParams(acceptance="token")),
    "block": replace(SAMPLED, speculative=SpeculativeParams(acceptance="block")),
    "match": replace(SAMPLED, speculative=SpeculativeParams(acceptance="match")),
    "gumbel": replace(SAMPLED, speculative=SpeculativeParams(acceptance="gumbel")),
    "top-k": replace(SAMPLED, top_k=3, speculative=SpeculativeParams(acceptance="block")),
    "penalties": replace(SAMPLED, repetition_penalty=1.3, frequency_penalty=0.4),
    "greedy with penalties": replace(GREEDY, repetition_penalty=1.3, presence_penalty=0.8),
    "end tokens": replace(SAMPLED, ignore_eos=False),
    "unsure": replace(SAMPLED, speculative=SpeculativeParams(draft_length="threshold:n=5,p_min=0.3")),
    "svip": replace(SAMPLED, speculative=SpeculativeParams(draft_length="svip")),
    "one": replace(GREEDY, max_tokens=2),
}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("forwards_s", [0.0, 0.001], ids=["patient", "hasty"])
def test_what_is_said_is_the_same(name: str, forwards_s: float) -> None:
    prompts = [[i + 1, 5, i] for i in range(4)]
    serial = ask("off", VARIANTS[name], prompts)
    ahead = ask("on", VARIANTS[name], prompts, forwards_s=forwards_s)
    for one, other in zip(serial, ahead, strict=True):
        assert one.tokens == other.tokens
        assert one.origins == other.origins
        assert [step.drafted for step in one.steps] == [step.drafted for step in other.steps]


def test_several_at_once_say_the_same() -> None:
    prompts = [[i + 1, 5, i] for i in range(6)]
    params = VARIANTS["block"]
    serial = ask("off", params, prompts, n_parallel=3)
    ahead = ask("on", params, prompts, n_parallel=3)
    assert [a.tokens for a in serial] == [a.tokens for a in ahead]
    assert sum(a.finish.timings.n_foreseen for a in ahead) > 10


def test_a_draft_model_that_is_right_is_always_ahead() -> None:
    (answer,) = ask("on", GREEDY, draft=TARGET)
    timings = answer.finish.timings
    assert timings.n_overlapped >= timings.n_rounds - 2
    assert timings.n_foreseen >= timings.n_overlapped - 3  # until it is known that it is right
    assert timings.n_drafted_rounds - timings.n_foreseen <= 3


def test_second_guesses_are_drafted_for() -> None:
    """A draft model whose likeliest token is never right, and whose second guess always is."""

    def draft(context: tuple[int, ...]) -> Float32Array:
        logits = TARGET(context)
        best = int(logits.argmax())
        logits[(best + 1) % N_VOCAB] = logits[best] + 0.5
        return logits

    (answer,) = ask("on", GREEDY, draft=draft)
    timings = answer.finish.timings
    assert timings.draft_n_accepted == 0
    assert timings.n_foreseen >= timings.n_overlapped - 1 > 20


def test_trees_and_lookups_are_drafted_as_ever() -> None:
    for params in (
        replace(GREEDY, speculative=SpeculativeParams(draft_length="fixed:n=6,shape=2x2")),
        replace(GREEDY, speculative=SpeculativeParams(drafter="suffix,model")),
        replace(GREEDY, speculative=SpeculativeParams(drafter="suffix")),
    ):
        serial, ahead = (ask(mode, params, specs=["suffix", "suffix,model"])[0] for mode in ("off", "on"))
        assert serial.tokens == ahead.tokens
        assert [step.drafted for step in serial.steps] == [step.drafted for step in ahead.steps]


def test_cancelling_in_mid_overlap_frees_everything() -> None:
    made = harness(n_parallel=2)
    ids = [made.submit([i, 4], GREEDY) for i in range(2)]
    for _ in range(4):
        made.step()
    made.cancel(ids[0])
    made.submit([7, 8], GREEDY)
    made.run()
    check_nothing_is_held(made)
    alone = ask("off", GREEDY, [[1, 4]])[0]
    assert made.answers[ids[1]].tokens == alone.tokens
    made.stepper.close()


def break_ahead(made: Harness) -> list[int]:
    """The draft model fails whenever it runs ahead; the list grows with each time."""
    usual = made.draft.forward
    failures: list[int] = []

    def failing(rows: Rows) -> Output:
        step = made.overlap._step if made.overlap else None
        if step is not None and step.job is not None and not step.verify_ms:
            failures.append(len(rows))
            raise RuntimeError("no such luck")
        return usual(rows)

    made.draft.forward = failing  # type: ignore[method-assign]
    return failures


def test_what_fails_ahead_costs_guesses_only(caplog: pytest.LogCaptureFixture) -> None:
    made = harness()
    failures = break_ahead(made)
    answer = made.ask(PROMPT, GREEDY)
    assert answer.tokens == ask("off", GREEDY)[0].tokens
    assert answer.finish.timings.n_foreseen == 0
    assert answer.finish.timings.draft_n > 0
    assert len(failures) == MAX_FAILURES
    assert caplog.text.count("guessing ahead failed") == MAX_FAILURES
    check_nothing_is_held(made)
    made.stepper.close()


def test_failures_are_in_a_row_however_often_they_are_waited_for() -> None:
    """Requests that begin and end wait, too."""
    made = harness()
    failures = break_ahead(made)
    for i in range(4 * MAX_FAILURES):
        made.ask([*PROMPT, i % 5], replace(GREEDY, max_tokens=6))
    assert len(failures) == MAX_FAILURES
    made.stepper.close()


def test_a_full_cache_costs_guesses_only() -> None:
    params = replace(GREEDY, max_tokens=None)
    serial, ahead = (ask(mode, params, n_ctx=24)[0] for mode in ("off", "on"))
    assert serial.tokens == ahead.tokens
    assert len(serial.tokens) == 21


def test_full_contexts_of_several_cost_guesses_only(caplog: pytest.LogCaptureFixture) -> None:
    """Their guesses take cells that the sequences themselves need; what was guessed before is used."""
    params = replace(GREEDY, max_tokens=None)
    prompts = [[1, 2, 3], [4, 5], [6, 7, 8]]
    options = {"n_ctx": 24, "n_parallel": 3, "draft_length": "fixed:n=6"}
    serial, ahead = (ask(mode, params, prompts, **options) for mode in ("off", "on"))
    assert [answer.tokens for answer in serial] == [answer.tokens for answer in ahead]
    assert [len(answer.tokens) for answer in ahead] == [24 - len(prompt) for prompt in prompts]
    assert not caplog.records


def test_auto_begins_when_costs_are_known() -> None:
    made = harness("auto", draft=TARGET)
    made.costs.verify.set([(1, 0, 5.0), (5, 0, 5.0)])
    assert made.ask(PROMPT, GREEDY).finish.timings.n_overlapped == 0  # nothing is known of the draft model
    made.costs.draft.set([(1, 0, 0.1)])
    timings = made.ask(PROMPT, GREEDY).finish.timings
    assert 0 < timings.n_foreseen <= timings.n_overlapped < timings.n_rounds
    assert timings.hidden_ms > 0.0
    assert made.costs.hidden_share > 0.1
    made.stepper.close()
