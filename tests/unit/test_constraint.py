"""Grammars over the tokens of a request: masks, memory of them, and what cannot be otherwise."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucebox.core import Distribution, Draft
from lucebox.errors import RequestError
from lucebox.grammar import Grammar
from lucebox.sampling.constraint import MAX_FORCED, SPARE_S, Constraint, Mask, share_spare_time
from lucebox.sampling.params import SamplingParams
from lucebox.sampling.sampler import Sampler
from lucebox.sampling.spare_time import SpareTime
from lucebox.text.grammar import GrammarCompiler
from lucebox.text.tokenizer import Tokenizer
from tests.support.vocabularies import byte_level_metadata

TOKENIZER = Tokenizer.from_metadata(byte_level_metadata())
VOCABULARY = TOKENIZER.vocabulary
N_VOCAB = VOCABULARY.n_tokens + 5  # models may have more rows than the table has ids
ENDS = VOCABULARY.eog_ids
END = VOCABULARY.eos_id or 0
COMPILER = GrammarCompiler(lambda: TOKENIZER)
PERSON = Grammar.json_schema(
    {
        "type": "object",
        "properties": {"hello": {"type": "string"}, "there": {"enum": ["in", "inner", "on"]}},
        "required": ["hello", "there"],
        "additionalProperties": False,
    }
)
TEXT = TOKENIZER.encode_piece('{"hello": "the air", "there": "inner"}')


def constraint(grammar: Grammar = PERSON, *, ignores_end: bool = False) -> Constraint:
    return Constraint(COMPILER.compile(grammar), N_VOCAB, ENDS, END, ignores_end=ignores_end)


def tokens(mask: Mask | None) -> list[int]:
    assert mask is not None
    return mask.tokens().tolist()


def as_llguidance_has_it(grammar: Grammar, path: list[int]) -> list[int]:
    """By a matcher that has gone there straight."""
    matcher = COMPILER.compile(grammar)
    assert matcher.advance(path) == len(path)
    return np.flatnonzero(np.unpackbits(matcher.words().view(np.uint8), bitorder="little")).tolist()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(TEXT)), st.integers(0, 10**6), st.booleans()), max_size=12))
def test_masks_are_llguidance_s_wherever_the_matcher_was_before(steps: list[tuple[int, int, bool]]) -> None:
    made, committed = constraint(), 0
    for length, choice, commits in steps:
        path = TEXT[committed:length]
        mask = made.mask(path)
        whole = TEXT[: max(length, committed)]
        assert tokens(mask) == as_llguidance_has_it(PERSON, whole)
        side = tokens(mask)[choice % len(tokens(mask))]
        if side not in ENDS:
            assert tokens(made.mask([*path, side])) == as_llguidance_has_it(PERSON, [*whole, side])
        if commits:
            made.commit(path)
            committed = max(length, committed)
            assert tokens(made.mask()) == as_llguidance_has_it(PERSON, TEXT[:committed])


def test_each_place_is_looked_at_once() -> None:
    """A draft of k tokens takes k steps, and what was found behind accepted ones is kept."""
    made = constraint()
    n_steps = 0
    advance, words = made._matcher.advance, made._matcher.words

    def counted(*args: object) -> object:
        nonlocal n_steps
        n_steps += 1
        return words()

    made._matcher.words = counted  # type: ignore[method-assign, assignment]
    n_fed = 0

    def fed(path: list[int]) -> int:
        nonlocal n_fed
        n_fed += len(path)
        return advance(path)

    made._matcher.advance = fed  # type: ignore[method-assign, assignment]
    for i in range(8):
        made.mask(TEXT[:i])
    for i in range(8):
        made.mask(TEXT[:i])
    assert made.n_allowed(TEXT[:8]) == 8
    assert (n_steps, n_fed) == (8, 7)
    made.commit(TEXT[:5])
    made.mask(TEXT[5:7])
    assert n_steps == 8


def test_behind_what_is_not_allowed_everything_is() -> None:
    made = constraint()
    (a,) = TOKENIZER.encode_piece("a")
    assert made.mask([a]) is None
    assert made.mask([a, a]) is None
    assert made.mask([*TEXT, END]) is None
    assert made.n_allowed([a]) == 0
    assert made.n_allowed([*TEXT[:3], a, *TEXT[3:]]) == 3
    assert made.n_allowed([*TEXT, END]) == len(TEXT) + 1
    assert made.n_allowed([END]) == 0


def test_what_is_forced() -> None:
    made = constraint(Grammar("lark", 'start: "hello there" | "in" /[a-z]/ "ner"'))
    (hello,) = TOKENIZER.encode_piece("hello")
    assert made.forced() == []
    assert made.forced([hello]) == [*TOKENIZER.encode_piece(" there"), END]
    path = TOKENIZER.encode_piece("inx")
    assert made.forced(path)[-1] == END
    assert TOKENIZER.decode(made.forced(path)[:-1]) == "ner"
    made.commit([hello])
    assert made.forced() == [*TOKENIZER.encode_piece(" there"), END]
    made.commit([*made.forced()])


def test_few_are_forced_at_a_time() -> None:
    made = constraint(Grammar("regex", "z{500}"))
    assert len(made.forced()) in range(1, MAX_FORCED + 1)


class SlowClock:
    """Each time it is asked, as much has passed."""

    def __init__(self, step_s: float) -> None:
        self.now_s, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def test_what_takes_long_is_not_done_before_it_is_needed() -> None:
    """Neither forced nor looked up for drafts; what must be known is found all the same."""
    grammar = Grammar("regex", "z{500}")
    slow = Constraint(COMPILER.compile(grammar), N_VOCAB, ENDS, END, spare=SpareTime(SlowClock(SPARE_S)))
    quick = Constraint(COMPILER.compile(grammar), N_VOCAB, ENDS, END, spare=SpareTime(SlowClock(1e-9)))
    share_spare_time([slow, quick])
    (z,) = tokens(slow.mask())[:1]
    assert len(quick.forced()) > 10
    assert len(slow.forced()) <= 2
    assert slow.n_allowed([z] * 8) <= 2
    assert len(slow.permitted(Draft.chain([z] * 8, [None] * 8))) <= 2
    n_done = 0
    while n_done < 20:  # a step each
        share_spare_time([slow, quick])
        assert slow.mask() is not None
        done = slow.forced() or [z]
        assert len(done) <= 2
        slow.commit(done)
        n_done += len(done)


def test_many_grammars_share_what_time_there_is() -> None:
    made = [constraint() for _ in range(4)]
    share_spare_time(made)
    for one in made:
        with one.spare.measured(is_spare=True):
            pass
        assert one.spare.is_left
    assert sum(one.spare._left_s for one in made) <= SPARE_S


COMPLEX = {
    "properties": Grammar.json_schema({"properties": {f"p{i}": {"type": "string"} for i in range(700)}}),
    "repeated rule": Grammar("lark", 'start: a{100000}\na: "x" "y"'),
    "long literal": Grammar("lark", 'start: "' + "hello there " * 9_600 + '"'),
    "nested repetition": Grammar("regex", "((((a{0,10}){0,10}){0,10}){0,10})"),
    "backtracking": Grammar("regex", "[a-h]*a[a-h]{30}b"),
}


@pytest.mark.parametrize("grammar", COMPLEX.values(), ids=COMPLEX)
def test_a_grammar_goes_on_or_is_refused_wherever_it_is_asked(grammar: Grammar) -> None:
    """Drafts that go astray do not take the committed path's way on."""
    rng = np.random.default_rng(1)
    with suppress(RequestError):
        made = constraint(grammar)
        for _ in range(12):
            share_spare_time([made])
            allowed = [token for token in tokens(made.mask()) if token not in ENDS]
            if not allowed:
                break
            path = [int(rng.choice(allowed))]
            made.forced(path)
            made.permitted(Draft.chain([*path, *path, *path], [None] * 3))
            with suppress(RequestError):
                made.mask([*path, path[0]])
            assert tokens(made.mask()), "what was allowed before is allowed still"
            made.commit(path)


def test_no_token_is_not_the_end() -> None:
    made = Constraint(COMPILER.compile(Grammar("regex", "z")), N_VOCAB, ENDS, END, banned=frozenset(ENDS))
    (z,) = TOKENIZER.encode_piece("z")
    assert made.forced() == [z]
    mask = made.mask([z])
    assert mask is not None
    assert mask.n_allowed == 0


def test_ends_are_ignored_where_there_is_more_to_say() -> None:
    made = constraint(Grammar("regex", "a{0,2}"), ignores_end=True)
    plain = constraint(Grammar("regex", "a{0,2}"))
    (a,) = TOKENIZER.encode_piece("a")
    assert set(tokens(plain.mask())) == {a, *ENDS}
    assert tokens(made.mask()) == [a]
    assert set(tokens(made.mask([a, a]))) == ENDS
    assert made.n_allowed([a, END]) == 1
    assert made.n_allowed([a, a, END]) == 3


def test_a_copy_goes_its_own_way() -> None:
    made = constraint()
    made.mask(TEXT[:6])
    other = made.copy()
    other.commit(TEXT[:4])
    assert tokens(made.mask()) == as_llguidance_has_it(PERSON, [])
    assert tokens(other.mask()) == as_llguidance_has_it(PERSON, TEXT[:4])
    assert tokens(made.mask(TEXT[:9])) == tokens(other.mask(TEXT[4:9]))


def test_permitted_keeps_what_was_drawn() -> None:
    """Whatever was drawn is for the strategy to judge: dropping it by its value would change the law."""
    made = constraint(Grammar("regex", "[ab]{3}"))
    a, b, c = (TOKENIZER.encode_piece(letter)[0] for letter in "abc")
    law = Distribution.one_hot(N_VOCAB, c)
    drawn = Draft.chain([a, c, b], [None, law, None])
    kept = made.permitted(drawn)
    assert kept.tokens.tolist() == [
        a,
        c,
    ]  # what stands behind the drawn one was looked up, and is not allowed
    assert made.permitted(Draft.chain([a, b], [None, None])).tokens.tolist() == [a, b]


def test_a_sampler_gives_forbidden_tokens_no_chance() -> None:
    sampler = Sampler(SamplingParams(logit_bias={0: 5.0}), N_VOCAB, [1], constraint=constraint())
    logits = np.random.default_rng(0).normal(size=N_VOCAB).astype(np.float32)
    for i in range(len(TEXT)):
        law = sampler.law(logits, TEXT[:i])
        assert np.flatnonzero(law.dense()).tolist() == as_llguidance_has_it(PERSON, TEXT[:i])
        assert sampler.argmax(logits, TEXT[:i]) == law.argmax()
    ahead = sampler.ahead(TEXT[:5])
    assert np.array_equal(ahead.law(logits).dense(), sampler.law(logits, TEXT[:5]).dense())
    astray = sampler.ahead([TEXT[0], TEXT[0]])
    assert np.count_nonzero(astray.law(logits).dense()) == N_VOCAB
    sampler.commit(TEXT[:5])
    assert np.array_equal(ahead.law(logits).dense(), sampler.law(logits).dense())
