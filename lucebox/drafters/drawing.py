"""From laws to a draft: which children a row gets, and which rows there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from lucebox.core import Distribution, Draft, DrawMode
from lucebox.drafters.base import DraftRequest
from lucebox.sampling.draw import sample
from lucebox.sampling.gumbel import gumbel_argmax
from lucebox.sampling.random import Purpose, RoundRandom

Child = tuple[int, Distribution | None]
"""A drafted token, and the law it was really drawn from; None where it was picked without chance."""


def draw(law: Distribution, mode: DrawMode, random: RoundRandom, row: int, depth: int) -> Child:
    """The only child of `row`, which stands `depth` tokens behind the round's start."""
    if mode is DrawMode.ARGMAX:
        return law.argmax(), None
    if mode is DrawMode.SHARED_NOISE:
        return gumbel_argmax(law, random.seed, random.position + depth), None
    return sample(law, random.uniform(row, Purpose.DRAFT)), law


def draw_siblings(
    law: Distribution,
    n: int,
    mode: DrawMode,
    random: RoundRandom,
    row: int,
    depth: int,
    wide: Callable[[], Distribution],
) -> list[Child]:
    """Up to `n` children of `row`, in draw order.

    Draws are keyed by the row and the sibling. Where the law leaves no choice (temperature 0), children
    behind the first are the likeliest of `wide()`, a law that does, and have no q. How many come out
    depends on the laws alone, never on what was drawn.
    """
    if n == 1:
        return [draw(law, mode, random, row, depth)]
    if mode is DrawMode.ARGMAX or _n_possible(law) == 1:
        first = law.argmax()
        others = (t for t in likeliest(wide() if _n_possible(law) < n else law, n) if t != first)
        return [(token, None) for token in [first, *others][:n]]
    if mode is DrawMode.SAMPLE:
        return [(sample(law, random.uniform(row, Purpose.DRAFT, i)), law) for i in range(n)]
    children: list[Child] = []
    left: Distribution | None = law
    while left is not None and len(children) < n:
        if mode is DrawMode.SHARED_NOISE:  # without the best, the next best of the same noise
            child: Child = gumbel_argmax(left, random.seed, random.position + depth), None
        else:
            child = sample(left, random.uniform(row, Purpose.DRAFT, len(children))), left
        children.append(child)
        left = without(left, child[0])
    return children


def likeliest(law: Distribution, n: int) -> list[int]:
    """The `n` most probable tokens, or those that are possible, best first; the lowest id among ties."""
    probs = law.probs.copy()
    tokens: list[int] = []
    while len(tokens) < n:
        i = int(np.argmax(probs))
        if probs[i] <= 0:
            break
        tokens.append(i if law.ids is None else int(law.ids[i]))
        probs[i] = 0
    return tokens


def without(law: Distribution, token: int) -> Distribution | None:
    """`law` given that it is not `token`; None where no other token is possible."""
    if law.ids is None:
        ids, probs = None, law.probs.copy()
        probs[token] = 0
    else:
        others = law.ids != token
        ids, probs = law.ids[others], law.probs[others]
    mass = probs.sum(dtype=np.float64)
    return Distribution(law.n_vocab, (probs / mass).astype(np.float32), ids) if mass > 0 else None


def _n_possible(law: Distribution) -> int:
    """How many tokens have a probability; exact where it matters, for one or few."""
    if law.ids is not None and len(law.ids) == 1:
        return 1
    return int(np.count_nonzero(law.probs))


@dataclass(slots=True)
class GrowingDraft:
    """A draft under way, one depth after another.

    The tree that `request.shape` describes is numbered by depth, left to right, and of it the first `n_max`
    tokens are drafted. A branch that ends early leaves its numbers unused: they go to no other branch, whose
    size would else tell something of tokens that a strategy has yet to judge.
    """

    request: DraftRequest
    n_max: int
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    q: list[Distribution | None] = field(default_factory=list)
    depth: int = 0
    frontier: list[int] = field(default_factory=lambda: [0])
    _places: list[int] = field(default_factory=lambda: [0])  # of the frontier among all nodes of its depth
    _n_above: int = 0  # nodes of the whole shape above the next depth, the root not counted
    _n_wide: int = 1  # nodes of the whole shape at this depth

    @property
    def is_done(self) -> bool:
        return not self.frontier

    def path(self, row: int) -> list[int]:
        """The tokens on the way to `row`."""
        tokens: list[int] = []
        while row:
            tokens.append(self.tokens[row - 1])
            row = self.parents[row - 1]
        return tokens[::-1]

    def grow(self, laws: Sequence[Distribution | None], wides: Sequence[Callable[[], Distribution]]) -> None:
        """Draws the children of the frontier from its laws, which becomes the next frontier. None has none.

        `wides` are asked for a law to rank siblings by where laws leave no choice, and by `keep_drafting`.
        """
        request, n_children = self.request, self._n_children()
        frontier, places = [], []
        for row, place, law, wide in zip(self.frontier, self._places, laws, wides, strict=True):
            first = self._n_above + place * n_children
            n = min(n_children, self.n_max - first)
            depth = request.n_before + self.depth
            if n <= 0 or law is None:
                continue
            shown = wide() if request.judges_laws and _n_possible(law) == 1 else law
            if not request.keep_drafting(shown, depth):
                continue
            key_row = request.n_before + row
            children = draw_siblings(law, n, request.draw_mode, request.random, key_row, depth, wide)
            for i, (token, q) in enumerate(children):
                self.tokens.append(token)
                self.parents.append(row)
                self.q.append(q)
                if token not in request.stop_tokens:
                    frontier.append(len(self.tokens))
                    places.append(place * n_children + i)
        self._n_wide *= n_children
        self._n_above += self._n_wide
        self.depth += 1
        if self._n_above >= self.n_max:
            frontier, places = [], []
        else:  # nodes whose children would lie beyond n_max need not be looked at
            n_next = self._n_children()
            known = [i for i, place in enumerate(places) if self._n_above + place * n_next < self.n_max]
            frontier, places = [frontier[i] for i in known], [places[i] for i in known]
        self.frontier, self._places = frontier, places

    def draft(self) -> Draft:
        return Draft(np.array(self.tokens, np.int32), np.array(self.parents, np.int32), self.q)

    def _n_children(self) -> int:
        shape = self.request.shape
        return shape[self.depth] if self.depth < len(shape) else 1


def branches(request: DraftRequest) -> bool:
    """Whether a row of the draft has more than one child."""
    return any(n > 1 for n in request.shape)
