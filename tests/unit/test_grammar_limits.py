"""Grammars that meet llguidance's bounds on the way: who fails for that, and who does not."""

from __future__ import annotations

import random

import numpy as np
import pytest

from lucebox.core import Draft
from lucebox.errors import RequestError
from lucebox.grammar import Grammar
from lucebox.sampling import constraint as module
from lucebox.sampling.constraint import Constraint, share_spare_time
from lucebox.sampling.params import SamplingParams
from lucebox.text.grammar import GrammarCompiler, GrammarMatcher
from lucebox.text.tokenizer import Tokenizer
from tests.support.engine_harness import Harness
from tests.support.fake_runtime import random_model
from tests.support.vocabularies import byte_level_metadata

TOKENIZER = Tokenizer.from_metadata(byte_level_metadata())
ENDS = TOKENIZER.vocabulary.eog_ids
USED_UP = Grammar("regex", "((((a{0,10}){0,10}){0,10}){0,10})")
ONE_WAY = Grammar("lark", 'start: "a" c{100000} | "b" ("b" | "c"){10}\nc: "d" "e"')


def compiler() -> GrammarCompiler:
    return GrammarCompiler(lambda: TOKENIZER)


def n_steps(matcher: GrammarMatcher, seed: int) -> int:
    """How far an answer at random comes before the grammar is too complex."""
    rng = random.Random(seed)
    for n in range(200):
        try:
            bits = np.unpackbits(matcher.words().view(np.uint8), bitorder="little")
            matcher.advance([rng.choice([t for t in np.flatnonzero(bits).tolist() if t not in ENDS])])
        except RequestError:
            return n
    return 200


def token(letter: str) -> int:
    (id,) = TOKENIZER.encode_piece(letter)
    return id


def test_what_one_answer_uses_up_the_next_has_again() -> None:
    shared = compiler()
    alone = n_steps(compiler().compile(USED_UP), 3)
    assert 3 < alone < 200
    for _ in range(4):
        assert n_steps(shared.compile(USED_UP), 3) == alone


def test_one_way_that_is_too_complex_closes_no_other() -> None:
    shared = compiler()
    for way, sound in (("a", False), ("b", True), ("a", False), ("b", True)):
        matcher = shared.compile(ONE_WAY)
        if sound:
            assert matcher.advance([token(way)] * 11) == 11
            continue
        assert matcher.advance([token(way)]) == 1
        matcher.words()
        with pytest.raises(RequestError, match="too complex"):
            matcher.advance([token("d")])
        assert matcher.is_used_up


def test_where_every_way_is_too_complex_the_grammar_is_refused() -> None:
    shared = compiler()
    for text in (
        'start: c{100000}\nc: "d" "e"',
        'start: "in" c{100000}\nc: "d" "e"',
    ):
        with pytest.raises(RequestError, match="too complex"):
            shared.compile(Grammar("lark", text))


def bound() -> Constraint:
    vocabulary = TOKENIZER.vocabulary
    return Constraint(compiler().compile(ONE_WAY), vocabulary.n_tokens, ENDS, min(ENDS))


def answer(made: Constraint, text: str) -> None:
    """Letter by letter, as if each had been drawn."""
    for letter in text:
        made.mask()
        made.commit([token(letter)])
    made.mask()


def test_a_draft_that_goes_astray_leaves_the_answer_its_way() -> None:
    made = bound()
    share_spare_time([made])
    a, b, d = token("a"), token("b"), token("d")
    made.commit([])
    assert len(made.permitted(Draft.chain([a, d, d], [None] * 3))) == 2
    assert made.permitted(Draft.chain([a, d, d], [None] * 3)).tokens.tolist() == [a, d]
    for _ in range(11):
        share_spare_time([made])
        mask = made.mask()
        assert mask is not None
        assert mask.allows(b)
        assert made.forced([b]) == [], "no more is tried than is needed"
        made.commit([b])
    mask = made.mask()
    assert mask is not None
    assert set(mask.tokens().tolist()) == set(ENDS)


def test_what_takes_long_to_compile_is_not_compiled_beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_RENEWAL_S", -1.0)
    made = bound()
    with pytest.raises(RequestError, match="too complex"):
        answer(made, "ad")
    for _ in range(2):
        with pytest.raises(RequestError, match="too complex"):
            made.mask()


def test_an_answer_that_becomes_too_complex_fails_where_more_of_it_is_wanted() -> None:
    """Not where the token that leads there is committed, which may have been the last one."""
    made = bound()
    with pytest.raises(RequestError, match="too complex") as raised:
        answer(made, "a" + 20 * "de")
    assert raised.value.param == "grammar"
    for _ in range(2):
        with pytest.raises(RequestError, match="too complex"):
            made.mask()


@pytest.mark.parametrize("drafter", ["ngram", "suffix"])
def test_drafts_that_go_astray_change_no_answer(drafter: str) -> None:
    params = SamplingParams(temperature=0.0, grammar=ONE_WAY, logit_bias={0: -50.0})
    for seed in range(4):
        target = random_model(9, seed)
        plain = Harness(9, target).ask([0, 3] * 6, params)
        drafted = Harness(9, target, specs=(drafter,)).ask([0, 3] * 6, params)
        assert drafted.tokens == plain.tokens
        assert drafted.finish.reason == plain.finish.reason == "stop"
        assert drafted.finish.timings.draft_n > 0
