"""The draft-model drafter: what it feeds, what it draws, and what it keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from lucebox.common_prefix import common_prefix_length
from lucebox.core import Distribution, Draft, DrawMode
from lucebox.drafters.base import DraftRequest
from lucebox.drafters.drawing import GrowingDraft
from lucebox.drafters.model import ModelDrafter
from lucebox.sampling.draw import sample
from lucebox.sampling.params import SamplingParams
from lucebox.sampling.random import Purpose, RoundRandom
from lucebox.sampling.sampler import Sampler
from tests.support.drafting import drafter_context
from tests.support.fake_runtime import FakeRuntime, random_model

N_VOCAB = 16


def make(n_ctx: int = 64, n_sequences: int = 2, n_vocab: int = N_VOCAB) -> tuple[ModelDrafter, FakeRuntime]:
    runtime = FakeRuntime(n_vocab, random_model(n_vocab, 1), n_ctx=n_ctx, n_sequences=n_sequences)
    return ModelDrafter(drafter_context(N_VOCAB, runtime)), runtime


def ask(
    prefix: Sequence[int],
    n_max: int = 4,
    *,
    sequence: int = 0,
    mode: DrawMode = DrawMode.ARGMAX,
    params: SamplingParams | None = None,
    keep: Callable[[Distribution, int], bool] = lambda law, depth: True,
    stop_tokens: frozenset[int] = frozenset(),
    seed: int = 5,
) -> DraftRequest:
    return DraftRequest(
        sequence=sequence,
        prefix=list(prefix),
        n_max=n_max,
        draw_mode=mode,
        sampler=Sampler(params or SamplingParams(), N_VOCAB, prefix),
        random=RoundRandom(seed, len(prefix)),
        keep_drafting=keep,
        stop_tokens=stop_tokens,
    )


def expected_argmax(prefix: Sequence[int], n: int) -> list[int]:
    model, context = random_model(N_VOCAB, 1), list(prefix)
    for _ in range(n):
        context.append(int(model(tuple(context)).argmax()))
    return context[len(prefix) :]


def test_drafts_the_likeliest_tokens_without_laws() -> None:
    drafter, _ = make()
    (draft,) = drafter.propose([ask([1, 2, 3])])
    assert draft.tokens.tolist() == expected_argmax([1, 2, 3], 4)
    assert list(draft.q) == [None] * 4
    assert draft.is_chain


def test_feeds_only_what_the_cache_has_not_seen() -> None:
    drafter, runtime = make()
    prefix = [1, 2, 3, 4, 5]
    (draft,) = drafter.propose([ask(prefix)])
    assert runtime.n_rows_fed == [5, 1, 1, 1]  # the last drafted token was never needed

    runtime.n_rows_fed.clear()
    accepted = [*prefix, *draft.tokens.tolist(), 7]  # all accepted, and a bonus
    (draft,) = drafter.propose([ask(accepted)])
    assert runtime.n_rows_fed == [2, 1, 1, 1]
    assert draft.tokens.tolist() == expected_argmax(accepted, 4)

    runtime.n_rows_fed.clear()
    wrong = (int(draft.tokens[1]) + 1) % N_VOCAB
    corrected = [*accepted, int(draft.tokens[0]), wrong]  # one accepted, then a correction
    (draft,) = drafter.propose([ask(corrected)])
    assert runtime.n_rows_fed == [1, 1, 1, 1]
    assert draft.tokens.tolist() == expected_argmax(corrected, 4)
    runtime.cache.check_integrity()


def test_a_whole_prefix_in_the_cache_feeds_one_token_again() -> None:
    drafter, runtime = make()
    never = ask([1, 2, 3], keep=lambda law, depth: False)
    (draft,) = drafter.propose([never])
    assert len(draft) == 0
    assert drafter.n_cached(0) == 3
    runtime.n_rows_fed.clear()
    (draft,) = drafter.propose([ask([1, 2, 3], 2)])
    assert runtime.n_rows_fed == [1, 1]
    assert draft.tokens.tolist() == expected_argmax([1, 2, 3], 2)


def test_long_prompts_are_fed_in_batches() -> None:
    drafter, runtime = make(n_ctx=256)
    prefix = [i % N_VOCAB for i in range(150)]
    (draft,) = drafter.propose([ask(prefix, 2)])
    assert runtime.n_rows_fed == [64, 64, 22, 1]
    assert draft.tokens.tolist() == expected_argmax(prefix, 2)


def test_records_the_law_each_token_was_drawn_from() -> None:
    drafter, _ = make()
    params = SamplingParams(temperature=0.8, top_k=5, frequency_penalty=1.5)
    prefix = [3, 1, 4]
    (draft,) = drafter.propose([ask(prefix, 4, mode=DrawMode.SAMPLE, params=params)])
    model, sampler, random = random_model(N_VOCAB, 1), Sampler(params, N_VOCAB, prefix), RoundRandom(5, 3)
    for i, token in enumerate(draft.tokens.tolist()):
        before = draft.tokens[:i].tolist()
        law = sampler.law(model((*prefix, *before)), before)
        q = draft.q[i]
        assert q is not None
        np.testing.assert_array_equal(q.dense(), law.dense())
        assert token == sample(law, random.uniform(i, Purpose.DRAFT))


def test_one_forward_per_depth_for_all_sequences() -> None:
    drafter, runtime = make()
    a, b = [1, 2, 3], [9, 8, 7, 6]
    drafts = drafter.propose([ask(a, 3), ask(b, 1, sequence=1)])
    assert runtime.n_rows_fed == [7, 1, 1]
    assert drafts[0].tokens.tolist() == expected_argmax(a, 3)
    assert drafts[1].tokens.tolist() == expected_argmax(b, 1)


def test_a_draft_is_the_same_alone_and_in_company() -> None:
    sampled = {"mode": DrawMode.SAMPLE, "params": SamplingParams(temperature=1.0)}
    alone, _ = make()
    (draft,) = alone.propose([ask([1, 2], 5, **sampled)])
    together, _ = make()
    drafts = together.propose([ask([5, 5, 5], 3, sequence=1, **sampled), ask([1, 2], 5, **sampled)])
    assert drafts[1].tokens.tolist() == draft.tokens.tolist()


def test_stops_behind_a_stop_token() -> None:
    drafter, _ = make()
    second = expected_argmax([1, 2, 3], 2)[1]
    (draft,) = drafter.propose([ask([1, 2, 3], 4, stop_tokens=frozenset({second}))])
    assert second in draft.tokens.tolist()
    assert draft.tokens.tolist().index(second) == len(draft) - 1


def test_asks_the_controller_with_an_uncollapsed_law_at_temperature_zero() -> None:
    drafter, _ = make()
    laws: list[Distribution] = []

    def keep(law: Distribution, depth: int) -> bool:
        assert depth == len(laws)
        laws.append(law)
        return depth < 2

    (draft,) = drafter.propose([ask([1, 2], 4, params=SamplingParams(temperature=0.0), keep=keep)])
    assert len(draft) == 2
    assert len(laws) == 3
    assert all(law.probs.max() < 0.99 and abs(law.probs.sum() - 1) < 1e-4 for law in laws)


def test_a_sequence_longer_than_the_draft_context_gets_no_draft() -> None:
    drafter, runtime = make(n_ctx=8)
    (draft,) = drafter.propose([ask(range(6), 8)])
    assert len(draft) == 3  # the third needs a context of 8 tokens
    (draft,) = drafter.propose([ask(range(9), 8)])
    assert len(draft) == 0
    (draft,) = drafter.propose([ask(range(8), 8)])
    assert len(draft) == 1
    runtime.cache.check_integrity()


@pytest.mark.parametrize("n_vocab", [N_VOCAB - 4, N_VOCAB + 4])
def test_padding_of_either_vocabulary_is_never_drafted(n_vocab: int) -> None:
    drafter, _ = make(n_vocab=n_vocab)
    request = ask([1, 2, 3], 30, mode=DrawMode.SAMPLE)
    (draft,) = drafter.propose([request])
    assert draft.tokens.max() < min(n_vocab, N_VOCAB)
    assert all(q is not None and len(q.dense()) == N_VOCAB for q in draft.q)


@pytest.mark.parametrize("shape", [(), (2, 2)])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_where_all_that_the_draft_model_knows_is_banned_there_is_no_draft(
    temperature: float, shape: tuple[int, ...]
) -> None:
    """And others in its batch are drafted for."""
    drafter, _ = make(n_vocab=4)
    banned = SamplingParams(temperature=temperature, logit_bias=dict.fromkeys(range(4), -100.0))
    requests = [ask([1, 2, 3], params=banned), ask([1, 2, 3], sequence=1)]
    first, second = drafter.propose([replace(request, shape=shape) for request in requests])
    assert len(first) == 0
    assert len(second) == 4


def test_a_token_unknown_to_the_draft_model_ends_drafting() -> None:
    drafter, _ = make(n_vocab=8)
    (draft,) = drafter.propose([ask([1, 2, 12])])
    assert len(draft) == 0


def test_fork_shares_what_was_fed_and_release_forgets_it() -> None:
    drafter, runtime = make()
    drafter.propose([ask([1, 2, 3])])
    drafter.fork(0, 1)
    runtime.n_rows_fed.clear()
    (draft,) = drafter.propose([ask([1, 2, 3, 9], 2, sequence=1)])
    assert runtime.n_rows_fed == [1, 1]
    assert draft.tokens.tolist() == expected_argmax([1, 2, 3, 9], 2)
    drafter.release(0)
    drafter.release(1)
    # The last row of the last forward may be pending.
    assert runtime.cache.n_free >= runtime.cache.n_cells - 1
    runtime.cache.check_integrity()
    assert isinstance(draft, Draft)


@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 600])
def test_common_prefix_length(n: int) -> None:
    base = list(range(700))
    other = [*base[:n], -1, *base[n + 1 :]]
    assert common_prefix_length(base, other) == n
    assert common_prefix_length(base[:n], base) == n
    assert common_prefix_length(base, base[:n]) == n


SHAPE = (3, 2)
PARENTS = [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 5]


def tree_laws(draft: Draft, prefix: Sequence[int], sampler: Sampler) -> list[Distribution]:
    """The draft model's law behind every row."""
    model = random_model(N_VOCAB, 1)
    paths = [[int(draft.tokens[i]) for i in draft.ancestors(row)] for row in range(len(draft) + 1)]
    return [sampler.law(model((*prefix, *path)), path) for path in paths]


@pytest.mark.parametrize("mode", DrawMode)
def test_trees_are_drawn_from_the_laws_on_their_paths(mode: DrawMode) -> None:
    drafter, runtime = make()
    params = SamplingParams(temperature=0.8, top_k=9, frequency_penalty=1.5)
    request = ask([3, 1, 4], 11, mode=mode, params=params)
    request.shape = SHAPE
    (draft,) = drafter.propose([request])
    assert draft.parents.tolist() == PARENTS
    laws = tree_laws(draft, request.prefix, request.sampler)
    growing = GrowingDraft(request, 11)
    while not growing.is_done:
        growing.grow([laws[row] for row in growing.frontier], [lambda: laws[0]] * len(growing.frontier))
    assert draft.tokens.tolist() == growing.tokens
    for ours, theirs in zip(draft.q, growing.q, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            np.testing.assert_array_equal(ours.dense(), theirs.dense())
    runtime.cache.check_integrity()


def test_siblings_at_temperature_zero_are_the_next_likeliest() -> None:
    drafter, _ = make()
    request = ask([1, 2, 3], 3, params=SamplingParams(temperature=0.0))
    request.shape = (3,)
    (draft,) = drafter.propose([request])
    logits = random_model(N_VOCAB, 1)((1, 2, 3))
    assert draft.tokens.tolist() == np.argsort(-logits)[:3].tolist()


def test_a_tree_takes_one_forward_per_depth_for_all_sequences() -> None:
    drafter, runtime = make()
    requests = [ask([1, 2, 3], 9), ask([4, 5], 9, sequence=1)]
    for request in requests:
        request.shape = SHAPE
    drafts = drafter.propose(requests)
    assert [len(draft) for draft in drafts] == [9, 9]
    assert runtime.n_rows_fed == [5, 6]  # both prompts; both first levels
    runtime.cache.check_integrity()


def test_trees_and_chains_go_together() -> None:
    drafter, _ = make()
    alone, _ = make()
    requests = [ask([1, 2, 3], 9), ask([4, 5], 3, sequence=1)]
    requests[0].shape = SHAPE
    tree, chain = drafter.propose(requests)
    assert tree.parents.tolist() == PARENTS[:9]
    assert chain.tokens.tolist() == alone.propose([ask([4, 5], 3, sequence=1)])[0].tokens.tolist()


def test_the_first_path_of_a_tree_stays_cached() -> None:
    drafter, runtime = make()
    request = ask([1, 2, 3], 11)
    request.shape = SHAPE
    (draft,) = drafter.propose([request])
    assert runtime.n_rows_fed == [3, 3, 9]
    assert drafter.n_cached(0) == 5  # the prompt and two tokens; the third was not fed
    first, second = int(draft.tokens[0]), int(draft.tokens[3])
    runtime.n_rows_fed.clear()
    (following,) = drafter.propose([ask([1, 2, 3, first, second, 7], 2)])
    assert runtime.n_rows_fed == [1, 1]
    assert following.tokens.tolist() == expected_argmax([1, 2, 3, first, second, 7], 2)
    runtime.n_rows_fed.clear()
    other = [1, 2, 3, int(draft.tokens[1]), 7]
    (following,) = drafter.propose([ask(other, 2)])
    assert runtime.n_rows_fed == [2, 1]
    assert following.tokens.tolist() == expected_argmax(other, 2)
    runtime.cache.check_integrity()


def test_trees_fit_into_batch_and_context() -> None:
    drafter, runtime = make(n_ctx=128)
    requests = [ask([1, 2, 3], 60, sequence=s) for s in (0, 1)]
    for request in requests:
        request.shape = (4, 3, 2)
    drafts = drafter.propose(requests)
    assert [len(draft) for draft in drafts] == [60, 60]
    assert max(runtime.n_rows_fed) <= runtime.n_batch
    small, _ = make(n_ctx=8)
    request = ask(range(5), 60)
    request.shape = (2,)
    assert len(small.propose([request])[0]) == 3
    small.runtime.cache.check_integrity()
    request = ask(range(8), 60)
    request.shape = (2,)
    assert len(small.propose([request])[0]) == 0


def test_branches_of_a_tree_end_behind_stop_tokens() -> None:
    drafter, _ = make()
    whole = ask([1, 2, 3], 6)
    whole.shape = (2,)
    (draft,) = drafter.propose([whole])
    request = ask([1, 2, 3], 6, stop_tokens=frozenset({int(draft.tokens[1])}))
    request.shape = (2,)
    (ended,) = drafter.propose([request])
    assert 2 not in ended.parents.tolist()
    assert ended.tokens[:2].tolist() == draft.tokens[:2].tolist()


def test_laws_that_nobody_judges_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    drafter, _ = make()
    (expected,) = drafter.propose([ask([1, 2, 3], 4)])
    depths: list[int] = []

    def keep(law: Distribution, depth: int) -> bool:
        depths.append(depth)
        return depth < 3

    request = ask([1, 2, 3], 4, keep=keep, params=SamplingParams(temperature=0.7, top_p=0.9))
    request.judges_laws = False
    monkeypatch.setattr(request.sampler, "law", None)
    (draft,) = drafter.propose([request])
    assert draft.tokens.tolist() == expected.tokens.tolist()[:3]
    assert depths == [0, 1, 2, 3]
