"""Requests that begin alike: what they share and do not compute again, and that answers stay the same.

The fake runtime reads each row's context from its cells: a wrong or missing one gives another answer.
"""

from __future__ import annotations

import random
from functools import cache

import pytest

from lucebox.engine.prefix_cache import N_BLOCK
from lucebox.engine.scheduler import PREFILL_ROWS
from lucebox.sampling.params import SamplingParams
from tests.support.engine_harness import Harness
from tests.support.fake_runtime import random_model

N_VOCAB = 10
N_CTX = 160
GREEDY = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)
SYSTEM = [1 + i % 7 for i in range(5 * N_BLOCK)]
target_logits = cache(random_model(N_VOCAB, 1, order=9))
draft_logits = cache(random_model(N_VOCAB, 1, order=9, noise=0.7))


def harness(*, n_parallel: int = 1, n_prefix_tokens: int | None = None, draft: bool = True) -> Harness:
    return Harness(
        N_VOCAB,
        target_logits,
        draft_logits if draft else None,
        n_ctx=N_CTX,
        n_parallel=n_parallel,
        n_prefix_tokens=n_prefix_tokens,
    )


def solo(prompt: list[int], params: SamplingParams = GREEDY) -> list[int]:
    """The answer of an engine that does nothing else."""
    return harness(n_prefix_tokens=0, draft=False).ask(prompt, params).tokens


def test_a_second_request_computes_what_is_new() -> None:
    engine = harness(draft=False)
    first = engine.ask([*SYSTEM, 1, 2, 3], GREEDY)
    assert first.finish.timings.cache_n == 0
    engine.target.n_rows_fed.clear()
    second = engine.ask([*SYSTEM, 3, 2, 1], GREEDY)
    assert engine.target.n_rows_fed[0] == 3
    timings = second.finish.timings
    assert (timings.cache_n, timings.prompt_n) == (len(SYSTEM), 3)
    assert second.tokens == solo([*SYSTEM, 3, 2, 1])


@pytest.mark.parametrize("n_less", [0, 1, N_BLOCK, N_BLOCK + 1])
def test_a_prompt_that_is_known_whole_is_asked_for_its_last_token(n_less: int) -> None:
    """Also one that is shorter than what is known: never is more taken than all but its last token."""
    engine = harness()
    engine.ask(SYSTEM, GREEDY)
    prompt = SYSTEM[: len(SYSTEM) - n_less]
    engine.target.n_rows_fed.clear()
    answer = engine.ask(prompt, GREEDY)
    n_known = (len(prompt) - 1) // N_BLOCK * N_BLOCK
    assert answer.finish.timings.cache_n == n_known
    assert answer.tokens == solo(prompt)


def test_the_next_turn_finds_the_answer_of_the_last_one() -> None:
    engine = harness()
    answer = engine.ask(SYSTEM, SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True))
    turn = [*SYSTEM, *answer.tokens, 5, 6, 7]
    again = engine.ask(turn, GREEDY)
    n_computed = len(SYSTEM) + 40 - 1
    assert again.finish.timings.cache_n == n_computed // N_BLOCK * N_BLOCK
    assert again.tokens == solo(turn)


def test_those_who_come_together_compute_their_prompt_once() -> None:
    engine = harness(n_parallel=4, draft=False)
    prompts = [[*SYSTEM, 1 + i, 2, 3] for i in range(4)]
    ids = [engine.submit(prompt, GREEDY) for prompt in prompts]
    engine.run()
    for id, prompt in zip(ids, prompts, strict=True):
        assert engine.answers[id].tokens == solo(prompt)
    n_cached = [engine.answers[id].finish.timings.cache_n for id in ids]
    assert sum(n_cached) == 3 * len(SYSTEM)
    n_decoded = 4 * (GREEDY.max_tokens or 0) - 4
    assert sum(engine.target.n_rows_fed) == len(SYSTEM) + 4 * 3 + n_decoded


def test_one_who_comes_while_a_long_prompt_is_computed_goes_on_behind_it() -> None:
    engine = harness(n_parallel=2, draft=False)
    prompt = [1 + i % 6 for i in range(2 * engine.target.n_batch + 9)]
    assert len(prompt) < N_CTX
    first = engine.submit([*prompt, 7], GREEDY)
    engine.step()
    n_done = engine.stepper.scheduler.running[0].n_cached
    assert 0 < n_done < PREFILL_ROWS
    second = engine.submit([*prompt, 8], GREEDY)
    engine.run()
    assert engine.answers[second].finish.timings.cache_n > n_done // N_BLOCK * N_BLOCK
    for id, last in ((first, 7), (second, 8)):
        assert engine.answers[id].tokens == solo([*prompt, last])


def test_a_cancelled_prompt_leaves_what_it_computed() -> None:
    engine = harness()
    prompt = [1 + i % 6 for i in range(100)]
    id = engine.submit(prompt, GREEDY)
    engine.step()
    engine.cancel(id)
    n_done = engine.target.n_rows_fed[0] // N_BLOCK * N_BLOCK
    assert engine.ask(prompt, GREEDY).finish.timings.cache_n == n_done > 0


def test_what_a_failed_request_computed_is_not_trusted() -> None:
    engine = harness()

    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    engine.stepper._on_round = fail
    assert engine.ask(SYSTEM, GREEDY).failure
    engine.stepper._on_round = None
    assert engine.ask(SYSTEM, GREEDY).finish.timings.cache_n == 0


def test_running_requests_get_the_cells_that_prefixes_hold() -> None:
    engine = harness(n_parallel=2)
    for i in range(8):
        engine.ask([1 + i, *SYSTEM, 1 + i], GREEDY)
    n_all = N_CTX - N_BLOCK
    assert engine.stepper.prefixes.n_cells > engine.target.cache.n_cells - 2 * N_BLOCK
    prompts = [[1 + (i * j) % 7 for j in range(n_all)] for i in (2, 3)]
    ids = [engine.submit(prompt, SamplingParams(temperature=0.0, ignore_eos=True)) for prompt in prompts]
    engine.run()
    for id in ids:
        assert engine.answers[id].finish.reason == "length"
        assert len(engine.answers[id].tokens) == N_BLOCK


def test_a_scored_prompt_does_not_run_out_of_cells() -> None:
    """It is computed whole, beside what is known of it, and kept behind that."""
    engine = harness(draft=False)
    engine.ask([*SYSTEM, 1], GREEDY)
    assert len(SYSTEM) + N_CTX > engine.target.cache.n_cells
    params = SamplingParams(temperature=0.0, max_tokens=N_CTX, ignore_eos=True, prompt_logprobs=1)
    answer = engine.ask([*SYSTEM, *SYSTEM[:20], 2], params)
    assert answer.finish.reason == "length"
    assert len(answer.tokens) == N_CTX - len(SYSTEM) - 21


def test_prefixes_can_be_switched_off() -> None:
    engine = harness(n_prefix_tokens=0)
    engine.ask(SYSTEM, GREEDY)
    assert engine.target.cache.n_free == engine.target.cache.n_cells
    assert engine.ask(SYSTEM, GREEDY).finish.timings.cache_n == 0


@pytest.mark.parametrize("seed", range(6))
def test_answers_are_those_of_solo_requests(seed: int) -> None:
    """Drafts, trees, cancels at any time, prompts that begin alike, and too few cells for all of them."""
    rng = random.Random(seed)
    spec = rng.choice(["fixed:n=4", "fixed:shape=2x2x1"])
    engine = Harness(
        N_VOCAB,
        target_logits,
        draft_logits,
        n_ctx=N_CTX,
        n_parallel=3,
        draft_length=spec,
        acceptance="specinfer" if "shape" in spec else "auto",
        n_prefix_tokens=rng.choice([None, 6 * N_BLOCK]),
    )
    prompts: dict[str, list[int]] = {}
    known: list[list[int]] = [SYSTEM]
    for _ in range(40):
        start = rng.choice(known)
        prompt = [*start[: rng.randint(0, len(start))], *rng.choices(range(1, 8), k=rng.randint(1, 20))]
        prompt = prompt[: N_CTX - 20]
        known.append(prompt)
        prompts[engine.submit(prompt, GREEDY)] = prompt
        for _ in range(rng.randint(0, 6)):
            engine.step()
        running = [s.id for s in engine.stepper.scheduler.running]
        if running and rng.random() < 0.25:
            engine.cancel(rng.choice(running))
    engine.run()
    n_cached = 0
    for id, prompt in prompts.items():
        answer = engine.answers[id]
        n_cached += answer.finish.timings.cache_n
        assert answer.tokens == solo(prompt)[: len(answer.tokens)]
        assert answer.finish.reason == "cancelled" or len(answer.tokens) == GREEDY.max_tokens
    assert n_cached > 0


def test_the_next_turn_is_drafted_without_reading_it_all_again() -> None:
    engine = harness()
    answer = engine.ask(SYSTEM, GREEDY)
    engine.draft.n_rows_fed.clear()
    turn = [*SYSTEM, *answer.tokens, 5, 6, 7]
    again = engine.ask(turn, GREEDY)
    assert again.finish.timings.draft_n > 0
    assert max(engine.draft.n_rows_fed) < N_BLOCK
    assert again.tokens == solo(turn)


def test_draft_model_shares_a_prefix_with_whichever_sequence_has_it() -> None:
    engine = harness(n_parallel=2)
    first = engine.submit([*SYSTEM, 1], SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True))
    for _ in range(4):
        engine.step()
    assert engine.stepper.scheduler.running[0].is_decoding
    engine.draft.n_rows_fed.clear()
    second = engine.submit([*SYSTEM, 2], GREEDY)
    engine.run()
    assert max(engine.draft.n_rows_fed) < N_BLOCK, "nobody reads the system prompt again"
    assert engine.answers[second].tokens == solo([*SYSTEM, 2])
    assert engine.answers[first].tokens[:12] == solo([*SYSTEM, 1])
    engine.draft.cache.check_integrity()


def test_draft_sequences_that_ended_make_room() -> None:
    engine = Harness(
        N_VOCAB,
        target_logits,
        draft_logits,
        n_ctx=N_CTX,
        n_parallel=3,
        draft_n_ctx=N_CTX // 3,  # the drafter takes the length of this cache for that of a sequence
    )
    engine.draft.n_ctx = N_CTX
    for i in range(9):
        prompt = [1 + (i * j) % 7 for j in range(60 + i)]
        assert engine.ask(prompt, GREEDY).tokens == solo(prompt)
    assert engine.answers["r8"].finish.timings.draft_n > 0
    engine.draft.cache.check_integrity()


def test_without_memory_no_draft_prefix_is_kept() -> None:
    engine = Harness(N_VOCAB, target_logits, draft_logits, n_ctx=N_CTX, remembers=False)
    engine.ask(SYSTEM, GREEDY)
    assert engine.draft.cache.n_free == engine.draft.cache.n_cells
