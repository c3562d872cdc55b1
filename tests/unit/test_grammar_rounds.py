"""Rounds that a grammar binds: their law, the tokens it forces, and drafts that it forbids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from scipy import stats

from lucebox.core import Draft, Origin
from lucebox.drafters.base import Drafter, DraftRequest
from lucebox.engine.messages import Submit
from lucebox.errors import RequestError
from lucebox.grammar import Grammar
from lucebox.sampling.params import SamplingParams
from lucebox.text import grammar as grammar_module
from tests.support.engine_harness import Harness
from tests.support.fake_runtime import LogitsOf, random_model

N_VOCAB = 9
END = N_VOCAB - 1
PROMPT = [1, 2, 3]
PHRASES = Grammar("regex", "([a-c]{2}(deaf|h[a-h]))+")
SHORT = Grammar("regex", "(a|bc)(dd|[e-f]g)?")
GRAMMARS = {
    "phrases": PHRASES,
    "nested": Grammar("lark", 'start: "a" start "b" | "c" /[d-h]/ | "de"'),
    "counted": Grammar("gbnf", 'root ::= ("a" | "bb" | "ccc" [d-f]){2,5} "hgfedcba"'),
}
WAYS: dict[str, dict[str, Any]] = {
    "chains": {"draft_length": "fixed:n=4"},
    "long chains": {"draft_length": "fixed:n=9"},
    "confident": {"draft_length": "threshold:n=6,p_min=0.3"},
    "trees": {"draft_length": "fixed:n=6,shape=3x2", "acceptance": "specinfer"},
    "more trees": {"draft_length": "fixed:n=9,shape=2x2x1", "acceptance": "rrs"},
    "overlapped": {"draft_length": "fixed:n=3", "overlap": "on"},
}


def letters(tokens: Sequence[int]) -> str:
    return "".join("abcdefgh."[token] for token in tokens)


def tokens_of(text: str) -> list[int]:
    return ["abcdefgh.".index(letter) for letter in text]


def bound(grammar: Grammar, **fields: Any) -> SamplingParams:
    return SamplingParams(**{"temperature": 0.0, "max_tokens": 40, "grammar": grammar, **fields})


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS)
def test_greedy_text_is_that_of_plain_decoding(grammar: Grammar, way: dict[str, Any]) -> None:
    n_accepted = 0
    for seed in range(4):
        target = random_model(N_VOCAB, seed)
        plain = Harness(N_VOCAB, target).ask(PROMPT, bound(grammar))
        harness = Harness(N_VOCAB, target, random_model(N_VOCAB, seed, noise=1.0), **way)
        answer = harness.ask(PROMPT, bound(grammar))
        assert answer.tokens == plain.tokens
        n_accepted += answer.finish.timings.draft_n_accepted
        if harness.overlap is not None:
            harness.stepper.close()
    assert n_accepted > 0


def exact_law(target: LogitsOf, grammar: Grammar, n_max: int) -> dict[str, float]:
    """What plain decoding writes, by the laws that its own sampler has behind every text."""
    admission = Harness(N_VOCAB, target).admission
    params = bound(grammar, temperature=1.0)
    sampler = admission.admit(Submit(id="a", prompt=PROMPT, params=params, seed=0)).sampler
    done: dict[str, float] = {}
    open_texts: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(n_max):
        longer: dict[tuple[int, ...], float] = {}
        for text, weight in open_texts.items():
            law = sampler.law(target((*PROMPT, *text)), text).dense()
            for token in law.nonzero()[0].tolist():
                if token == END:
                    done[letters(text)] = weight * float(law[token])
                else:
                    longer[(*text, token)] = weight * float(law[token])
        open_texts = longer
    assert not open_texts
    return done


@pytest.mark.parametrize("acceptance", ["token", "block", "match", "specinfer"])
def test_speculation_keeps_the_law(acceptance: str) -> None:
    target, n_runs = random_model(N_VOCAB, 1, sharpness=0.7), 600
    expected = exact_law(target, SHORT, 5)
    assert len(expected) == 2 * (1 + 1 + 2)
    assert sum(expected.values()) == pytest.approx(1.0, abs=1e-5)
    shape = ",shape=2x2" if acceptance == "specinfer" else ""
    harness = Harness(
        N_VOCAB,
        target,
        random_model(N_VOCAB, 1, sharpness=0.7, noise=1.0),
        draft_length=f"fixed:n=4{shape}",
        acceptance=acceptance,
        n_parallel=4,
    )
    ids = [harness.submit(PROMPT, bound(SHORT, temperature=1.0), seed=seed) for seed in range(n_runs)]
    harness.run()
    counts = Counter(letters(harness.answers[id].tokens).rstrip(".") for id in ids)
    assert counts.keys() <= expected.keys()
    observed = [counts[text] for text in expected]
    weights = [n_runs * weight for weight in expected.values()]
    assert stats.chisquare(observed, [w * n_runs / sum(weights) for w in weights]).pvalue > 1e-3
    assert any(harness.answers[id].finish.timings.draft_n_accepted for id in ids)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("draft", [False, True])
def test_forced_tokens_are_those_that_would_have_been_drawn(draft: bool, temperature: float) -> None:
    """Log-probabilities take a row for every token, so nothing is forced for a request that wants them."""
    n_forced = 0
    for seed in range(6):
        target = random_model(N_VOCAB, seed)
        drafted = random_model(N_VOCAB, seed, noise=1.0) if draft else None
        forced, drawn = (
            Harness(N_VOCAB, target, drafted, draft_length="fixed:n=1").ask(
                PROMPT, bound(PHRASES, temperature=temperature, seed=seed, logprobs=logprobs), seed=seed
            )
            for logprobs in (None, 0)
        )
        assert forced.tokens == drawn.tokens
        assert Origin.FORCED not in drawn.origins
        assert drawn.finish.timings.n_forced == 0
        timings = forced.finish.timings
        assert timings.n_forced == forced.origins.count(Origin.FORCED)
        assert timings.predicted_n == len(forced.tokens)
        n_forced += timings.n_forced
        if not draft:
            assert timings.n_rounds == len(forced.tokens) - timings.n_forced
    assert n_forced > 0


def test_forced_tokens_are_fed_with_the_next_draw() -> None:
    harness = Harness(N_VOCAB, random_model(N_VOCAB, 3))
    answer = harness.ask(PROMPT, bound(Grammar("regex", "[a-c]hgfed[a-c]")))
    assert [letters(step.tokens)[1:] for step in answer.steps] == ["hgfed", "."]
    assert answer.origins == [Origin.PLAIN, *[Origin.FORCED] * 5, Origin.PLAIN, Origin.FORCED]
    assert harness.target.n_rows_fed == [len(PROMPT), 6]


def test_drafts_go_on_behind_forced_tokens() -> None:
    target = random_model(N_VOCAB, 3)
    grammar = Grammar("regex", "[a-c]hgfed[a-h]{9}")
    harness = Harness(N_VOCAB, target, random_model(N_VOCAB, 3, noise=0.5))
    answer = harness.ask(PROMPT, bound(grammar))
    assert answer.steps[0].origins == [Origin.PLAIN, *[Origin.FORCED] * 5]
    assert answer.steps[1].n_drafted == 4
    assert harness.target.n_rows_fed[1] == 6 + 4
    assert answer.tokens == Harness(N_VOCAB, target).ask(PROMPT, bound(grammar)).tokens


class Parrot(Drafter):
    """Proposes the same text each time, from anywhere."""

    def __init__(self, context: Any, text: str, shape: Sequence[int] = ()) -> None:
        super().__init__(context)
        self.tokens = tokens_of(text)
        self.parents = list(shape) or list(range(len(text)))

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [
            Draft(
                Draft.chain(self.tokens, ()).tokens,
                Draft.chain(self.parents, ()).tokens,
                [None] * len(self.tokens),
            )
            for _ in requests
        ]

    def release(self, sequence: int) -> None:
        pass


def parroted(text: str, shape: Sequence[int] = (), **options: Any) -> Harness:
    made = Harness(N_VOCAB, random_model(N_VOCAB, 0))
    parrot = Parrot(made.pool._context, text, shape)
    return Harness(
        N_VOCAB, random_model(N_VOCAB, 0), drafter=parrot, draft_length="fixed:n=8,shape=2x2", **options
    )


def test_what_the_grammar_forbids_is_cut_from_drafts_that_were_looked_up() -> None:
    grammar = Grammar("regex", "[a-d]{3}[e-h]{3}")
    answer = parroted("aabbe").ask(PROMPT, bound(grammar))
    drafted = [step.n_drafted for step in answer.steps[1:]]
    assert drafted[0] == 2
    assert len(answer.tokens) == 7
    tree = parroted("abehae", (0, 0, 1, 2, 2, 5), acceptance="specinfer")
    answer = tree.ask(PROMPT, bound(Grammar("regex", "[a-d]{3}[e-h]{3}")))
    assert answer.steps[1].n_drafted == 4  # not the e behind a, not the h behind b
    assert answer.steps[1].drafted[0].depth == 3


def test_the_grammar_s_end_is_the_answer_s() -> None:
    answer = Harness(N_VOCAB, random_model(N_VOCAB, 5)).ask(PROMPT, bound(Grammar("regex", "[a-h]{5}")))
    assert answer.finish.reason == "stop"
    assert len(answer.tokens) == 6
    assert answer.tokens[-1] == END
    assert answer.origins[-1] is Origin.FORCED


@pytest.mark.parametrize("max_tokens", range(1, 9))
def test_max_tokens_counts_forced_tokens(max_tokens: int) -> None:
    harness = Harness(N_VOCAB, random_model(N_VOCAB, 3))
    answer = harness.ask(PROMPT, bound(Grammar("regex", "[a-c]hgfed[a-c]"), max_tokens=max_tokens))
    assert len(answer.tokens) == max_tokens
    assert answer.finish.reason == ("stop" if max_tokens == 8 else "length")


def test_the_context_counts_forced_tokens() -> None:
    harness = Harness(N_VOCAB, random_model(N_VOCAB, 3), n_ctx=8)
    answer = harness.ask(PROMPT, bound(Grammar("regex", "[a-c]hgfed[a-c]")))
    assert len(answer.tokens) == 5
    assert answer.finish.reason == "length"


def test_a_stop_string_may_end_within_forced_tokens() -> None:
    harness = Harness(N_VOCAB, random_model(N_VOCAB, 3))
    answer = harness.ask(PROMPT, bound(Grammar("regex", "[a-c]hgfed[a-c]"), stop=("gf",)))
    assert letters(answer.tokens)[1:] == "hgf"
    assert answer.finish.reason == "stop"
    assert answer.finish.stop_string == b"gf"
    assert answer.finish.keep_bytes == 2


def test_ignoring_the_end_takes_the_longest_way() -> None:
    for draft in (None, random_model(N_VOCAB, 5, noise=1.0)):
        for seed in range(5):
            harness = Harness(N_VOCAB, random_model(N_VOCAB, 5), draft)
            params = bound(Grammar("regex", "[a-h]{0,6}"), ignore_eos=True, temperature=1.0)
            answer = harness.ask(PROMPT, params, seed=seed)
            assert len(answer.tokens) == 7
            assert answer.tokens[-1] == END
            assert answer.finish.reason == "stop"


def test_many_forced_tokens_hold_nobody_up() -> None:
    """No more than the batch has rows for, and others go on meanwhile."""
    target = random_model(N_VOCAB, 3)
    long = bound(Grammar("regex", "[a-c]" + "hgfed" * 30), max_tokens=None)
    other = bound(PHRASES)
    harness = Harness(N_VOCAB, target, n_ctx=256, n_parallel=2)
    ids = [harness.submit(PROMPT, long), harness.submit(PROMPT, other)]
    harness.run()
    answers = [harness.answers[id] for id in ids]
    assert letters(answers[0].tokens)[1:] == "hgfed" * 30 + "."
    assert max(harness.target.n_rows_fed) <= harness.target.n_batch
    assert answers[1].tokens == Harness(N_VOCAB, target).ask(PROMPT, other).tokens


def test_a_resubmitted_request_goes_on_within_its_grammar() -> None:
    target = random_model(N_VOCAB, 5)
    params = bound(PHRASES, temperature=1.0, seed=7)
    whole = Harness(N_VOCAB, target).ask(PROMPT, params, seed=7)
    for n_sent in range(1, len(whole.tokens)):
        rest = Harness(N_VOCAB, target).ask(PROMPT, params, seed=7, generated=whole.tokens[:n_sent])
        assert rest.tokens == whole.tokens[n_sent:]


def test_a_grammar_that_becomes_too_complex_ends_its_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(N_VOCAB, random_model(N_VOCAB, 5), n_ctx=128, n_parallel=2)
    ids = [harness.submit(PROMPT, bound(PHRASES))]
    monkeypatch.setattr(grammar_module, "MAX_LEXER_STATES", 32)
    ids.insert(0, harness.submit(PROMPT, bound(Grammar("regex", "[a-h]*a[a-h]{30}b"), temperature=1.0)))
    harness.run()
    assert harness.answers[ids[1]].finish.reason in ("stop", "length")
    failure = harness.answers[ids[0]].failure
    assert failure.kind == "RequestError"
    assert "too complex" in failure.message


def test_a_grammar_and_a_bias_that_leave_nothing_fail_the_request_alone() -> None:
    harness = Harness(N_VOCAB, random_model(N_VOCAB, 5))
    answer = harness.ask(PROMPT, bound(Grammar("regex", "[bc]aa"), logit_bias={0: -100.0}))
    assert "bans every token that the grammar allows" in answer.failure.message
    assert harness.ask(PROMPT, bound(Grammar("regex", "bb"), logit_bias={0: -100.0})).finish.reason == "stop"


def test_a_wrong_grammar_is_refused() -> None:
    harness = Harness(N_VOCAB, random_model(N_VOCAB, 5))
    with pytest.raises(RequestError, match="The grammar cannot be used") as raised:
        harness.submit(PROMPT, bound(Grammar("regex", "(")))
    assert raised.value.param == "grammar"
