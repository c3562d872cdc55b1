"""One step after the other, over fake runtimes: what is emitted, counted, kept, and forgotten."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from lucebox.core import Draft, Float32Array, Origin
from lucebox.drafters.base import Drafter, DraftRequest
from lucebox.errors import ContextLengthError, RequestError
from lucebox.sampling.params import SamplingParams, SpeculativeParams
from tests.support.engine_harness import Harness
from tests.support.fake_runtime import random_model, scripted

N_VOCAB = 12
PROMPT = [1, 2, 3]
GREEDY = SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True)
PLAIN = SpeculativeParams(enabled=False)


def replace(params: SamplingParams, **fields: object) -> SamplingParams:
    values = {name: getattr(params, name) for name in params.__struct_fields__}
    return SamplingParams(**(values | fields))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("draft_length", ["fixed:n=1", "fixed:n=3", "fixed:n=8", "threshold:n=6,p_min=0.3"])
def test_greedy_text_is_the_same_with_and_without_drafts(seed: int, draft_length: str) -> None:
    target = random_model(N_VOCAB, seed)
    plain = Harness(N_VOCAB, target).ask(PROMPT, GREEDY)
    harness = Harness(N_VOCAB, target, random_model(N_VOCAB, seed, noise=1.0), draft_length=draft_length)
    answer = harness.ask(PROMPT, GREEDY)
    assert answer.tokens == plain.tokens
    assert set(plain.origins) == {Origin.PLAIN}
    timings = answer.finish.timings
    assert 0 < timings.draft_n_accepted < timings.draft_n
    assert timings.draft_n_accepted == answer.origins.count(Origin.ACCEPTED)
    assert timings.n_rounds < plain.finish.timings.n_rounds == 30


@pytest.mark.parametrize("penalties", [{}, {"frequency_penalty": 1.0, "repetition_penalty": 1.3}])
@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_seeded_text_depends_neither_on_drafts_nor_on_company(
    temperature: float, penalties: dict[str, float]
) -> None:
    params = SamplingParams(
        temperature=temperature, seed=7, max_tokens=25, ignore_eos=True, top_k=8, **penalties
    )
    target = random_model(N_VOCAB, 3)
    plain = Harness(N_VOCAB, target).ask(PROMPT, params, seed=7).tokens
    for n in (1, 2, 5):
        draft = random_model(N_VOCAB, 3, noise=0.7)
        harness = Harness(N_VOCAB, target, draft, draft_length=f"fixed:n={n}", n_parallel=3)
        ids = [harness.submit(PROMPT, params, seed=7) for _ in range(2)]
        others = [harness.submit([4, 4], replace(params, seed=9), seed=9) for _ in range(3)]
        harness.run()
        assert [harness.answers[id].tokens for id in ids] == [plain, plain]
        assert all(harness.answers[id].tokens != plain for id in others)


def test_a_resubmitted_request_goes_on_as_if_nothing_had_happened() -> None:
    params = SamplingParams(
        temperature=1.0,
        seed=7,
        max_tokens=20,
        ignore_eos=True,
        frequency_penalty=0.5,
        repetition_penalty=1.2,
        stop=("zz",),
    )
    target, draft = random_model(N_VOCAB, 5), random_model(N_VOCAB, 5, noise=0.7)
    whole = Harness(N_VOCAB, target, draft).ask(PROMPT, params, seed=7)
    assert len(whole.tokens) == 20
    for n_sent in (1, 7, 19):
        rest = Harness(N_VOCAB, target, draft).ask(PROMPT, params, seed=7, generated=whole.tokens[:n_sent])
        assert rest.tokens == whole.tokens[n_sent:]
        assert rest.finish.reason == "length"
        assert rest.finish.timings.predicted_n == 20 - n_sent


def test_the_end_token_inside_an_accepted_block_ends_everything() -> None:
    end = N_VOCAB - 1
    script = [5, 6, end, 7, 8, 9]
    harness = Harness(N_VOCAB, scripted(N_VOCAB, script, 3), scripted(N_VOCAB, script, 3))
    answer = harness.ask(PROMPT)
    assert answer.tokens == [5, 6, end]
    assert answer.origins == [Origin.PLAIN, Origin.ACCEPTED, Origin.ACCEPTED]
    assert answer.finish.reason == "stop"
    assert answer.finish.keep_bytes is None
    timings = answer.finish.timings
    assert (timings.predicted_n, timings.draft_n, timings.draft_n_accepted) == (3, 2, 2)
    assert harness.target.n_rows_fed == [3, 3]  # nothing behind the end token was verified


def test_ignore_eos_goes_on() -> None:
    end = N_VOCAB - 1
    script = [5, end, 7, 8]
    harness = Harness(N_VOCAB, scripted(N_VOCAB, script, 3), scripted(N_VOCAB, script, 3))
    answer = harness.ask(PROMPT, SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True))
    assert answer.tokens == script
    assert answer.finish.reason == "length"


@pytest.mark.parametrize("with_draft", [False, True])
def test_a_stop_string_across_tokens_ends_at_the_right_byte(with_draft: bool) -> None:
    letters = [ord(c) - ord("a") for c in "abcdefgh"]
    script = scripted(N_VOCAB, letters, 3)
    harness = Harness(N_VOCAB, script, script if with_draft else None, draft_length="fixed:n=6")
    answer = harness.ask(PROMPT, SamplingParams(temperature=0.0, stop=("de", "zz")))
    assert answer.tokens == letters[:5]
    assert answer.finish.reason == "stop"
    assert answer.finish.stop_string == b"de"
    assert answer.finish.keep_bytes == 3
    if with_draft:
        assert answer.finish.timings.draft_n_accepted == 4
        assert answer.finish.timings.draft_n == 6


def test_a_stop_string_begun_before_a_restart_is_met() -> None:
    letters = [ord(c) - ord("a") for c in "abcdef"]
    harness = Harness(N_VOCAB, scripted(N_VOCAB, letters, 3))
    params = SamplingParams(temperature=0.0, stop=("cd",))
    answer = harness.ask(PROMPT, params, generated=letters[:3])
    assert answer.tokens == letters[3:4]
    assert answer.finish.keep_bytes == 2


@pytest.mark.parametrize("max_tokens", [1, 2, 5, 6])
def test_max_tokens_is_exact_and_caps_drafts(max_tokens: int) -> None:
    script = scripted(N_VOCAB, [1] * 20, 3)
    harness = Harness(N_VOCAB, script, script)
    answer = harness.ask(PROMPT, SamplingParams(temperature=0.0, max_tokens=max_tokens))
    assert answer.tokens == [1] * max_tokens
    assert answer.finish.reason == "length"
    assert answer.finish.timings.draft_n < max_tokens  # the last token needs no draft


@pytest.mark.parametrize("with_draft", [False, True])
def test_generation_fills_the_context_to_its_last_token(with_draft: bool) -> None:
    script = scripted(N_VOCAB, [1] * 100, 3)
    harness = Harness(N_VOCAB, script, script if with_draft else None, n_ctx=20)
    answer = harness.ask(PROMPT)
    assert len(answer.tokens) == 17
    assert answer.finish.reason == "length"


def test_a_draft_model_with_a_shorter_context_stops_helping_and_nothing_else() -> None:
    target = random_model(N_VOCAB, 1)
    plain = Harness(N_VOCAB, target).ask(PROMPT, GREEDY).tokens
    answer = Harness(N_VOCAB, target, target, draft_n_ctx=12).ask(PROMPT, GREEDY)
    assert answer.tokens == plain
    assert answer.origins[-8:] == [Origin.PLAIN] * 8
    assert Origin.ACCEPTED in answer.origins


def test_drafts_can_be_switched_off_or_changed_per_request() -> None:
    target = random_model(N_VOCAB, 1)
    harness = Harness(N_VOCAB, target, target, draft_length="fixed:n=2", n_parallel=3)
    off = harness.submit(PROMPT, replace(GREEDY, speculative=PLAIN))
    longer = harness.submit(PROMPT, replace(GREEDY, speculative=SpeculativeParams(draft_length="fixed:n=5")))
    default = harness.submit(PROMPT, GREEDY)
    harness.run()
    answers = {id: harness.answers[id] for id in (off, longer, default)}
    assert len({tuple(answer.tokens) for answer in answers.values()}) == 1
    assert answers[off].finish.timings.draft_n == 0
    assert [max(e.n_drafted for e in answers[id].steps) for id in (longer, default)] == [5, 2]


def test_acceptance_can_be_chosen_per_request() -> None:
    target, draft = random_model(N_VOCAB, 1), random_model(N_VOCAB, 1, noise=0.5)
    harness = Harness(N_VOCAB, target, draft)
    params = SamplingParams(temperature=1.0, max_tokens=30, ignore_eos=True)
    as_token = harness.ask(PROMPT, params, seed=3)
    as_match = harness.ask(PROMPT, replace(params, speculative=SpeculativeParams(acceptance="match")), seed=3)
    plain_match = Harness(N_VOCAB, target, acceptance="match").ask(PROMPT, params, seed=3)
    assert as_match.tokens == plain_match.tokens
    assert as_token.tokens != as_match.tokens


@pytest.mark.parametrize(
    ("override", "param"),
    [
        (SpeculativeParams(acceptance="mach"), "speculative.acceptance"),
        (SpeculativeParams(draft_length="fixed:k=2"), "speculative.draft_length"),
    ],
)
def test_unknown_overrides_name_the_field(override: SpeculativeParams, param: str) -> None:
    harness = Harness(N_VOCAB, random_model(N_VOCAB, 1))
    with pytest.raises(RequestError) as caught:
        harness.submit(PROMPT, replace(GREEDY, speculative=override))
    assert caught.value.param == param


def test_logprobs_are_the_verifiers_with_and_without_drafts() -> None:
    target = random_model(N_VOCAB, 2)
    params = replace(GREEDY, logprobs=3, frequency_penalty=0.5)
    plain = Harness(N_VOCAB, target).ask(PROMPT, params)
    answer = Harness(N_VOCAB, target, random_model(N_VOCAB, 2, noise=0.6)).ask(PROMPT, params)
    assert Origin.ACCEPTED in answer.origins
    assert answer.logprobs == plain.logprobs
    assert [entry.token for entry in answer.logprobs] == answer.tokens
    context = tuple(PROMPT)
    for entry in answer.logprobs:
        logits = target(context).astype(np.float64)
        expected = logits - np.log(np.exp(logits).sum())
        assert entry.logprob == pytest.approx(expected[entry.token], abs=1e-5)
        assert [id for id, _ in entry.top] == np.argsort(-expected, kind="stable")[:3].tolist()
        context = (*context, entry.token)


@pytest.mark.parametrize("n_prompt", [1, 2, 63, 64, 65, 150, 255])
def test_prompts_of_any_length(n_prompt: int) -> None:
    prompt = [i % N_VOCAB for i in range(n_prompt)]
    target = random_model(N_VOCAB, 1, order=6)
    harness = Harness(N_VOCAB, target, target, n_ctx=256)
    answer = harness.ask(prompt, replace(GREEDY, max_tokens=3))
    context = tuple(prompt)
    for token in answer.tokens:
        assert token == int(target(context).argmax())
        context = (*context, token)
    assert sum(harness.target.n_rows_fed) <= n_prompt + 6  # no token twice


def test_decoding_goes_on_beside_a_long_prompt() -> None:
    harness = Harness(N_VOCAB, random_model(N_VOCAB, 1), n_ctx=400, n_parallel=2)
    first = harness.submit(PROMPT, replace(GREEDY, max_tokens=50))
    harness.step()
    second = harness.submit([1] * 300, replace(GREEDY, max_tokens=2))
    while not harness.answers[second].events:
        n = len(harness.answers[first].events)
        harness.step()
        assert len(harness.answers[first].events) == n + 1
    harness.run()
    assert len(harness.answers[second].tokens) == 2


def test_more_requests_than_slots_wait_their_turn() -> None:
    harness = Harness(N_VOCAB, random_model(N_VOCAB, 1), n_parallel=2)
    ids = [harness.submit([i + 1], replace(GREEDY, max_tokens=4)) for i in range(5)]
    harness.step()
    assert [bool(harness.answers[id].events) for id in ids] == [True, True, False, False, False]
    harness.run()
    alone = Harness(N_VOCAB, random_model(N_VOCAB, 1))
    for i, id in enumerate(ids):
        assert harness.answers[id].tokens == alone.ask([i + 1], replace(GREEDY, max_tokens=4)).tokens


def test_cancel_frees_everything_at_once() -> None:
    target = random_model(N_VOCAB, 1)
    harness = Harness(N_VOCAB, target, target, n_parallel=1)
    running, waiting = harness.submit(PROMPT, GREEDY), harness.submit(PROMPT, GREEDY)
    harness.step()
    harness.cancel(running)
    harness.cancel(waiting)
    harness.cancel("unknown")
    assert harness.stepper.scheduler.is_idle
    assert harness.answers[running].finish.reason == "cancelled"
    assert harness.answers[running].finish.timings.predicted_n == len(harness.answers[running].tokens) > 0
    assert harness.answers[waiting].finish.reason == "cancelled"
    assert harness.target.cache.length(0) == harness.draft.cache.length(0) == 0


def test_bad_prompts_are_refused_by_name() -> None:
    harness = Harness(N_VOCAB, random_model(N_VOCAB, 1), n_ctx=16)
    with pytest.raises(RequestError, match="prompt is empty"):
        harness.submit([])
    with pytest.raises(RequestError, match=f"token id {N_VOCAB}"):
        harness.submit([1, N_VOCAB])
    with pytest.raises(RequestError, match="token id -1"):
        harness.submit([-1])
    with pytest.raises(ContextLengthError) as caught:
        harness.submit([1] * 16)
    assert (caught.value.n_ctx, caught.value.n_prompt) == (16, 16)
    assert len(harness.ask([1] * 15, GREEDY).tokens) == 1


def test_an_error_in_one_request_ends_no_other() -> None:
    fine = random_model(N_VOCAB, 1)

    def target(context: tuple[int, ...]) -> Float32Array:
        logits = fine(context)
        return np.full_like(logits, np.nan) if context[0] == 9 and len(context) == 5 else logits

    harness = Harness(N_VOCAB, target, fine, n_parallel=2)
    good, bad = harness.submit(PROMPT, GREEDY), harness.submit([9, 1], GREEDY)
    harness.run()
    assert harness.answers[bad].failure.kind == "LogitsError"
    assert harness.answers[good].tokens == Harness(N_VOCAB, fine).ask(PROMPT, GREEDY).tokens


def test_a_drafter_that_fails_costs_drafts_only(caplog: pytest.LogCaptureFixture) -> None:
    def broken(request: DraftRequest) -> Draft:
        raise RuntimeError("no idea")

    target = random_model(N_VOCAB, 1)
    answer = Harness(N_VOCAB, target, drafter=Guessing(broken)).ask(PROMPT, GREEDY)
    assert answer.tokens == Harness(N_VOCAB, target).ask(PROMPT, GREEDY).tokens
    assert [record.levelname for record in caplog.records] == ["ERROR"]  # said once, not in every round
    assert "drafter plugin failed" in caplog.text


class Guessing(Drafter):
    """Proposes what the test gives it."""

    def __init__(self, make: Callable[[DraftRequest], Draft]) -> None:
        self._make = make

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [self._make(request) for request in requests]

    def release(self, sequence: int) -> None:
        pass


def test_an_accepted_path_of_a_tree_is_kept_and_its_siblings_are_not() -> None:
    target = random_model(N_VOCAB, 1)

    def tree(request: DraftRequest) -> Draft:
        context, best = list(request.prefix), []
        for _ in range(2):
            best.append(int(target((*context, *best)).argmax()))
        wrong = [(token + 1) % N_VOCAB for token in best]
        tokens = [wrong[0], best[0], 3, wrong[1], best[1]]
        return Draft(np.array(tokens, np.int32), np.array([0, 0, 1, 2, 2], np.int32), [None] * 5)

    harness = Harness(N_VOCAB, target, drafter=Guessing(tree), draft_length="fixed:n=5")
    answer = harness.ask(PROMPT, GREEDY)
    assert answer.tokens == Harness(N_VOCAB, target).ask(PROMPT, GREEDY).tokens
    assert answer.origins[1:7] == [Origin.ACCEPTED, Origin.ACCEPTED, Origin.BONUS] * 2
    timings = answer.finish.timings  # positions are depths of the tree, not indices of its tokens
    assert timings.accepted_per_position == timings.drafted_per_position == [8, 8]
    assert (timings.draft_n, timings.draft_n_accepted) == (40, 16)


@pytest.mark.parametrize(
    ("tokens", "parents", "words"),
    [
        ([N_VOCAB], [0], "token ids"),
        ([-1], [0], "token ids"),
        ([1] * 5, [0, 1, 2, 3, 4], "n_max 4"),
        ([1, 1], [1, 0], "no tree"),
        ([1, 2], [0, 0], "chains only"),
    ],
)
def test_an_impossible_draft_costs_drafts_only(
    tokens: list[int], parents: list[int], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    def make(request: DraftRequest) -> Draft:
        return Draft(np.array(tokens, np.int32), np.array(parents, np.int32), [None] * len(tokens))

    target = random_model(N_VOCAB, 1)
    params = replace(GREEDY, speculative=SpeculativeParams(acceptance="token"))
    harness = Harness(N_VOCAB, target, drafter=Guessing(make))
    assert harness.ask(PROMPT, params).tokens == Harness(N_VOCAB, target).ask(PROMPT, GREEDY).tokens
    assert words in caplog.text


def test_speculation_cannot_be_asked_of_an_engine_without_a_drafter() -> None:
    harness = Harness(N_VOCAB, random_model(N_VOCAB, 1))
    with pytest.raises(RequestError, match="no drafter") as caught:
        harness.submit(PROMPT, replace(GREEDY, speculative=SpeculativeParams(enabled=True)))
    assert caught.value.param == "speculative.enabled"


def test_drafted_tokens_of_many_sequences_fit_one_batch() -> None:
    target = random_model(N_VOCAB, 1)
    harness = Harness(N_VOCAB, target, target, n_parallel=20, draft_length="fixed:n=9")
    for i in range(20):
        harness.submit([i % N_VOCAB, 1], replace(GREEDY, max_tokens=12))
    harness.run()
    assert max(harness.target.n_rows_fed) <= harness.target.n_batch
    assert all(len(answer.tokens) == 12 for answer in harness.answers.values())
