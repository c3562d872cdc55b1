"""What every drafter must hold to, whoever adds one: found by its name."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from lucebox import drafters
from lucebox.core import Draft, DrawMode, Verdict
from lucebox.drafters.base import Drafter, DraftRequest, Observation
from lucebox.text.tokenizer import Tokenizer
from tests.support.drafter_laws import draft_request
from tests.support.drafting import drafter_context
from tests.support.fake_runtime import FakeRuntime, random_model
from tests.support.tiny_models import TinySpec, tiny_metadata

TOKENIZER = Tokenizer.from_metadata(tiny_metadata(TinySpec()))
N_VOCAB = TOKENIZER.vocabulary.n_tokens
MODEL = random_model(N_VOCAB, 1, order=2)
NAMES = drafters.names()
MODES = list(DrawMode)
PREDICTION = TOKENIZER.encode("abcabcabbaccabcab" * 3, parse_special=False)


def make(name: str) -> Drafter:
    """With a draft model of the target's vocabulary, for those who need one."""
    draft = FakeRuntime(N_VOCAB, MODEL, n_ctx=128, n_sequences=4) if drafters.get(name).needs_model else None
    context = drafter_context(N_VOCAB, draft, n_ctx=128, n_sequences=4, tokenizers=(TOKENIZER, TOKENIZER))
    return drafters.create(name, context)


def repetitive(seed: int, n: int = 40) -> list[int]:
    """A text over a few tokens, so that everybody finds something to guess."""
    rng = random.Random(seed)
    return [TOKENIZER.encode("abc", parse_special=False)[rng.randrange(3)] for _ in range(n)]


def ask(text: Sequence[int], n_max: int = 6, *, sequence: int = 0, **changes: object) -> DraftRequest:
    return draft_request(
        text,
        n_max,
        n_vocab=N_VOCAB,
        sequence=sequence,
        prediction=PREDICTION,
        **changes,  # type: ignore[arg-type]
    )


def observed(text: list[int], n_prefix: int) -> Observation:
    """A plain round of sequence 0."""
    logits = [MODEL(tuple(text[:n_prefix]))]
    return Observation(
        0, text[: n_prefix + 1], n_prefix, Draft.empty(), Verdict((), text[n_prefix], 0), logits
    )


def taught(name: str) -> Drafter:
    """One that saw a request and its rounds."""
    drafter = make(name)
    text = repetitive(9)
    for n_prefix in range(20, len(text)):
        drafter.observe(observed(text, n_prefix))
    drafter.remember(text, 20)
    drafter.release(0)
    return drafter


def parts(draft: Draft) -> tuple[list[int], list[int]]:
    return draft.tokens.tolist(), draft.parents.tolist()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NAMES)
def test_drafts_are_well_formed(name: str, mode: DrawMode) -> None:
    drafter = taught(name)
    n_drafted = 0
    for seed in range(12):
        shape = [(), (2,), (3, 2)][seed % 3]
        n_max = [1, 2, 7][seed // 3 % 3]
        texts = [repetitive(seed + i) for i in range(3)]
        requests = [
            ask(text, n_max, sequence=i, draw_mode=mode, shape=shape, seed=seed)
            for i, text in enumerate(texts)
        ]
        drafts = drafter.propose(requests)
        assert len(drafts) == len(requests)
        for draft in drafts:
            assert len(draft) == len(draft.parents) == len(draft.q) <= n_max
            assert all(0 <= token < N_VOCAB for token in draft.tokens.tolist())
            assert all(0 <= parent <= i for i, parent in enumerate(draft.parents.tolist()))
            assert shape or draft.is_chain
            assert all(
                q is None or q.prob(t) > 0 for q, t in zip(draft.q, draft.tokens.tolist(), strict=True)
            )
            n_drafted += len(draft)
        for i in range(3):
            drafter.release(i)
    assert n_drafted > 0, "nothing was ever drafted, and nothing tested"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_follows_a_stop_token(name: str) -> None:
    drafter = taught(name)
    n_stopped = 0
    for seed in range(12):
        text = repetitive(seed)
        (free,) = drafter.propose([ask(text, 6)])
        if not len(free):
            continue
        stop = int(free.tokens[0])
        drafter.release(0)
        (draft,) = drafter.propose([ask(text, 6, stop_tokens=frozenset({stop}))])
        stops = np.flatnonzero(draft.tokens == stop)
        assert not set((stops + 1).tolist()) & set(draft.parents.tolist())
        n_stopped += len(stops)
        drafter.release(0)
    assert n_stopped > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_same_history_gives_the_same_drafts(name: str) -> None:
    ours, theirs = taught(name), taught(name)
    for n in range(20, 40):
        text = repetitive(3)[:n]
        for mode in MODES:
            requests = [ask(text, 4, draw_mode=mode), ask(text, 4, draw_mode=mode)]
            (a,), (b,) = ours.propose(requests[:1]), theirs.propose(requests[1:])
            assert parts(a) == parts(b)


@pytest.mark.parametrize("name", NAMES)
def test_the_company_of_other_sequences_changes_nothing(name: str) -> None:
    alone, together = taught(name), taught(name)
    for n in range(20, 40):
        texts = [repetitive(i)[: n + i] for i in range(3)]
        drafts = together.propose([ask(text, 5, sequence=i) for i, text in enumerate(texts)])
        for i, text in enumerate(texts):
            (draft,) = alone.propose([ask(text, 5, sequence=i)])
            assert parts(draft) == parts(drafts[i])


@pytest.mark.parametrize("name", NAMES)
def test_a_released_sequence_is_forgotten(name: str) -> None:
    used, fresh = taught(name), taught(name)
    used.propose([ask(repetitive(1))])
    used.release(0)
    used.release(0)  # and once more, as after a failure
    for value in vars(used).values():
        assert not (isinstance(value, dict) and 0 in value)
    if used.context.draft_model is not None:
        assert used.context.draft_model.cache.length(0) == 0
    assert used.n_behind(0, 9) == fresh.n_behind(0, 9)
    (ours,), (theirs,) = used.propose([ask(repetitive(2))]), fresh.propose([ask(repetitive(2))])
    assert parts(ours) == parts(theirs)


@pytest.mark.parametrize("name", NAMES)
def test_a_fork_goes_on_as_its_source_does(name: str) -> None:
    drafter = taught(name)
    text = repetitive(5)
    drafter.propose([ask(text[:30])])
    drafter.propose([ask(text[:10], sequence=2)])
    drafter.fork(0, 2)
    drafts = drafter.propose([ask(text, sequence=0), ask(text, sequence=2)])
    assert parts(drafts[0]) == parts(drafts[1])
    drafter.release(0)
    (alone,) = drafter.propose([ask([*text, text[3]], sequence=2)])
    (fresh,) = taught(name).propose([ask([*text, text[3]], sequence=2)])
    if name != "prediction":  # which knows where the answer began, as the fork does
        assert parts(alone) == parts(fresh)


@pytest.mark.parametrize("name", NAMES)
def test_guesses_in_front_that_were_rejected_leave_no_trace(name: str) -> None:
    used, fresh = taught(name), taught(name)
    text = repetitive(6)
    for drafter in (used, fresh):
        drafter.propose([ask(text[:20])])
    used.propose([ask([*text[:20], text[0], text[0], text[1]], n_before=3)])
    (ours,), (theirs,) = used.propose([ask(text[:22])]), fresh.propose([ask(text[:22])])
    assert parts(ours) == parts(theirs)
