"""The kernel `suffix` in plain Python: what it computes, written plainly. Oracle of tests, and fallback."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lucebox.core import Int32Array

MAX_COUNTED = 64  # states on one way to the root; only text like `aaaa…` has more, and counts less of it
STATE_BYTES = 400  # about what a state with its edges takes
MAX_BYTES_PER_TOKEN = 2 * STATE_BYTES


@dataclass(slots=True)
class State:
    """Strings with the same set of ends. `link` is the state of the longest suffix with a larger set."""

    length: int
    link: State | None = None
    number: int = 0
    count: int = 0
    end: int = 0
    edges: dict[int, State] = field(default_factory=dict)


class Automaton:
    """All substrings of a text. A match is (state, length): a string of the text, longest at its end.

    Blumer et al. 1985, "The smallest automaton recognizing the subwords of a text". Every state counts the
    occurrences of its strings, and knows where the latest one ends.
    """

    def __init__(self) -> None:
        self._states = [State(0)]
        self._last = self._states[0]
        self.n_tokens = 0

    @property
    def n_bytes(self) -> int:
        """Memory held, about."""
        return STATE_BYTES * len(self._states)

    def n_bytes_after(self, n_tokens: int) -> int:
        """Memory held once `n_tokens` more are appended, at most."""
        return STATE_BYTES * (len(self._states) + 2 * n_tokens)

    def extend(self, tokens: Int32Array) -> None:
        """Appends `tokens`. A negative one is a break: it is counted, and never proposed."""
        for token in tokens.tolist():
            self._append(token)

    def longest(self) -> tuple[int, int]:
        """The match of the longest end of the text that occurs earlier, too; (0, 0) if none does."""
        link = self._last.link
        return (0, 0) if link is None else (link.number, link.length)

    def follow(self, state: int, length: int, tokens: Int32Array) -> tuple[int, int]:
        """The match of the longest end of (the match, then `tokens`). It stays valid as the text grows."""
        at = self._states[state]
        while at.link is not None and length <= at.link.length:  # the state was split since
            at = at.link
        for token in tokens.tolist():
            while token not in at.edges and at.link is not None:
                at = at.link
                length = at.length
            if token in at.edges:
                at = at.edges[token]
                length += 1
            else:
                length = 0
        return at.number, length

    def continuation(
        self, state: int, length: int, n_max: int, p_min: float, prior: float
    ) -> tuple[Int32Array, float]:
        """What followed the match most often, the latest among equals, up to `n_max` tokens, and how many of
        them are expected to come again.

        A token seen k times of n behind a match of m tokens comes with probability k / (n + prior / m).
        Ends before the product of these falls below `p_min`.
        """
        at = self._states[state]
        tokens: list[int] = []
        p, expected = 1.0, 0.0
        while len(tokens) < n_max and length > 0:
            if not at.edges:  # the end of the text: a shorter end of it occurs earlier
                assert at.link is not None
                at = at.link
                length = at.length
                continue
            known = [token for token in at.edges if token >= 0]
            if not known:
                break
            total = sum(target.count for target in at.edges.values())
            token = _likeliest({token: at.edges[token] for token in known})
            at = at.edges[token]
            p *= at.count / (total + prior / length)
            if p < p_min:
                break
            tokens.append(token)
            expected += p
            length += 1
        return np.array(tokens, np.int32), expected

    def _append(self, token: int) -> None:
        new = self._new_state(self._last.length + 1)
        at: State | None = self._last
        while at is not None and token not in at.edges:
            at.edges[token] = new
            at = at.link
        if at is None:
            new.link = self._states[0]
        else:
            target = at.edges[token]
            new.link = target if target.length == at.length + 1 else self._split(at, token, target)
        self._last = new
        self.n_tokens += 1
        for state in self._suffixes(new):
            state.count += 1
            state.end = self.n_tokens

    def _split(self, state: State, token: int, whole: State) -> State:
        """The strings of `whole` that are no longer than `state`'s and `token` get a state of their own."""
        part = self._new_state(state.length + 1)
        part.link, part.count, part.end, part.edges = whole.link, whole.count, whole.end, dict(whole.edges)
        at: State | None = state
        while at is not None and at.edges.get(token) is whole:
            at.edges[token] = part
            at = at.link
        whole.link = part
        return part

    def _suffixes(self, state: State) -> Sequence[State]:
        """`state` and those it links to, without the root."""
        found: list[State] = []
        while state.link is not None and len(found) < MAX_COUNTED:
            found.append(state)
            state = state.link
        return found

    def _new_state(self, length: int) -> State:
        state = State(length, number=len(self._states))
        self._states.append(state)
        return state


def _likeliest(edges: Mapping[int, State]) -> int:
    """The token that came most often, the latest one among equals."""
    return max(edges, key=lambda token: (edges[token].count, edges[token].end))
