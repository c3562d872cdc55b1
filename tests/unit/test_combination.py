"""Several drafters in one round: who is asked what, and how their guesses are put together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from lucebox import drafters
from lucebox.core import Distribution, Draft, DrawMode
from lucebox.drafters.base import Drafter, DraftRequest
from lucebox.drafters.combination import Combination
from lucebox.drafters.model import ModelDrafter
from lucebox.errors import ConfigError
from lucebox.sampling.params import SamplingParams
from lucebox.sampling.sampler import Sampler
from tests.support.drafter_laws import draft_request
from tests.support.drafting import drafter_context
from tests.support.fake_runtime import FakeRuntime, random_model

N_VOCAB = 16
CONTEXT = drafter_context(N_VOCAB)
LAW = Distribution.one_hot(N_VOCAB, 0)


class Scripted(Drafter):
    """Answers with the first of `drafts`, cut to n_max where it is a chain, and keeps what it was asked."""

    def __init__(self, *drafts: Draft, n_behind: int = 0) -> None:
        super().__init__(CONTEXT)
        self.asked: list[DraftRequest] = []
        self.calls: list[tuple[object, ...]] = []
        self._drafts = drafts
        self._n_behind = n_behind

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        self.asked += requests
        return [self._cut(draft, request) for draft, request in zip(self._drafts, requests, strict=False)]

    def n_behind(self, sequence: int, n_prefix: int) -> int:
        return self._n_behind

    def fork(self, source: int, target: int) -> None:
        self.calls.append(("fork", source, target))

    def release(self, sequence: int) -> None:
        self.calls.append(("release", sequence))

    @staticmethod
    def _cut(draft: Draft, request: DraftRequest) -> Draft:
        if not draft.is_chain:
            return draft
        return Draft.chain(draft.tokens[: request.n_max], draft.q[: request.n_max])


def chain(*tokens: int, q: Distribution | None = None) -> Draft:
    return Draft.chain(tokens, [q] * len(tokens))


def combine(*parts: Drafter) -> Combination:
    return Combination(CONTEXT, parts)


def test_the_next_goes_on_behind_the_first() -> None:
    first, second = Scripted(chain(5, 6)), Scripted(chain(7, 8, q=LAW))
    request = draft_request([1, 2], 4, n_vocab=N_VOCAB, shape=(3, 2, 2))
    (draft,) = combine(first, second).propose([request])
    assert draft.tokens.tolist() == [5, 6, 7, 8]
    assert draft.is_chain
    assert list(draft.q) == [None, None, LAW, LAW]
    assert first.asked == [request]
    (asked,) = second.asked
    assert (asked.prefix, asked.n_max, asked.n_before, asked.shape) == ([1, 2, 5, 6], 2, 2, (2,))
    assert list(asked.before) == [5, 6]
    assert (asked.random, asked.sampler) == (request.random, request.sampler)


def test_a_third_goes_on_behind_both() -> None:
    third = Scripted(chain(9))
    (draft,) = combine(Scripted(chain(5)), Scripted(chain(7)), third).propose([draft_request([1], 9)])
    assert draft.tokens.tolist() == [5, 7, 9]
    assert (third.asked[0].n_before, third.asked[0].n_max) == (2, 7)


def test_nobody_is_asked_for_what_cannot_be_used() -> None:
    tree = Draft(np.array([5, 6], np.int32), np.zeros(2, np.int32), [None] * 2)
    for first, n_max in ((chain(5, 6), 2), (chain(5, 3), 9), (tree, 9)):
        second = Scripted(chain(7))
        request = draft_request([1], n_max, stop_tokens=frozenset({3}))
        (draft,) = combine(Scripted(first), second).propose([request])
        assert draft is first or draft.tokens.tolist() == first.tokens.tolist()
        assert not second.asked


def test_where_the_first_has_nothing_the_second_starts() -> None:
    second = Scripted(chain(7, q=LAW))
    request = draft_request([1], 3, shape=(2,))
    (draft,) = combine(Scripted(Draft.empty()), second).propose([request])
    assert (draft.tokens.tolist(), list(draft.q)) == ([7], [LAW])
    assert (second.asked[0].n_before, second.asked[0].shape, second.asked[0].n_max) == (0, (2,), 3)


def test_a_tree_grows_behind_a_chain() -> None:
    tree = Draft(np.array([7, 8, 9], np.int32), np.array([0, 0, 2], np.int32), [LAW] * 3)
    (draft,) = combine(Scripted(chain(5, 6)), Scripted(tree)).propose([draft_request([1], 9)])
    assert draft.tokens.tolist() == [5, 6, 7, 8, 9]
    assert draft.parents.tolist() == [0, 1, 2, 2, 4]


def test_each_of_several_requests_is_completed_by_itself() -> None:
    second = Scripted(chain(7), chain(8))
    requests = [draft_request([i], 2, sequence=i) for i in range(3)]
    first = Scripted(chain(4), chain(5, 6), Draft.empty())
    drafts = combine(first, second).propose(requests)
    assert [draft.tokens.tolist() for draft in drafts] == [[4, 7], [5, 6], [8]]
    assert [request.sequence for request in second.asked] == [0, 2]


def test_parts_are_forked_and_released_together_and_owned_by_nobody_here() -> None:
    parts = [Scripted(n_behind=3), Scripted(n_behind=4)]
    combination = combine(*parts)
    assert combination.n_behind(0, 9) == 7
    combination.fork(0, 1)
    combination.release(0)
    combination.close()
    assert [part.calls for part in parts] == [[("fork", 0, 1), ("release", 0)]] * 2


@pytest.mark.parametrize("mode", [DrawMode.ARGMAX, DrawMode.SAMPLE, DrawMode.SHARED_NOISE])
def test_a_model_behind_a_guess_draws_as_if_it_had_drawn_that_itself(mode: DrawMode) -> None:
    """Same depths, same random numbers, same history for penalties: the same tokens."""
    params = SamplingParams(frequency_penalty=1.5, temperature=1.3)
    depths: list[int] = []

    def request(n_max: int) -> DraftRequest:
        asked = draft_request([1, 2, 3], n_max, n_vocab=N_VOCAB, draw_mode=mode, seed=4)
        asked.sampler = Sampler(params, N_VOCAB, [1, 2, 3])
        asked.keep_drafting = lambda law, depth: depths.append(depth) is None
        return asked

    def model() -> ModelDrafter:
        return ModelDrafter(drafter_context(N_VOCAB, FakeRuntime(N_VOCAB, random_model(N_VOCAB, 1))))

    (whole,) = model().propose([request(6)])
    depths.clear()
    first = Scripted(Draft.chain(whole.tokens[:2], [None, None]))
    (draft,) = combine(first, model()).propose([request(6)])
    assert draft.tokens.tolist() == whole.tokens.tolist()
    assert depths == [2, 3, 4, 5]
    for q, expected in zip(draft.q[2:], whole.q[2:], strict=True):
        assert (q is None) == (expected is None)
        if q is not None and expected is not None:
            np.testing.assert_allclose(q.dense(), expected.dense(), rtol=1e-6)


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("model", ["model"]),
        ("suffix,model", ["suffix", "model"]),
        ("ngram:n=3,n_min=2,model", ["ngram:n=3,n_min=2", "model"]),
        (" recycle:k=4 , ngram:n=3, n_min=1 ", ["recycle:k=4", "ngram:n=3,n_min=1"]),
    ],
)
def test_specs_are_split_at_names(spec: str, parts: list[str]) -> None:
    assert drafters.split(spec) == parts


@pytest.mark.parametrize(
    "spec", ["", ",", "model,", "model,,suffix", "n=3,model", "suffix,suffix", "model,n=3"]
)
def test_malformed_specs_are_refused(spec: str) -> None:
    with pytest.raises(ConfigError):
        drafters.check(spec)


def test_names_and_options_are_checked_without_making_anything() -> None:
    assert drafters.check("suffix:n_min=3,model") == ["suffix", "model"]
    for spec, words in (("sufix", "did you mean suffix"), ("suffix:k=3", "no option 'k'")):
        with pytest.raises(ConfigError, match=words):
            drafters.check(spec)
