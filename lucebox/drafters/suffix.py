"""Suffix automata: what followed when the text's end occurred before, here or in earlier requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from lucebox.core import Draft, Int32Array
from lucebox.drafters.base import Drafter, DrafterContext, DraftRequest
from lucebox.drafters.kernels import suffix
from lucebox.errors import ConfigError

PRIOR = 1.5  # doubts against a match of one token; fewer against longer ones
N_PROMPT_KEPT = 64  # tokens of a prompt that are remembered in front of its answer
N_LOOKED_UP = 64  # last tokens of a sequence that are looked for in earlier requests
N_GENERATIONS = 4  # the oldest of which is forgotten when the newest is full
BREAK = np.array([-1], np.int32)


class Memory:
    """The answers of earlier requests, at most `n_bytes` of them: the oldest quarter goes when it is full."""

    def __init__(self, n_bytes: int) -> None:
        self._n_bytes_max = n_bytes // N_GENERATIONS  # of a generation
        self._n_tokens_max = self._n_bytes_max // suffix.MAX_BYTES_PER_TOKEN  # of a text
        self._generations: deque[suffix.Automaton] = deque([suffix.Automaton()], maxlen=N_GENERATIONS)

    @property
    def n_bytes(self) -> int:
        """Memory held."""
        return sum(generation.n_bytes for generation in self._generations)

    @property
    def n_tokens(self) -> int:
        """Tokens known."""
        return sum(generation.n_tokens for generation in self._generations)

    def add(self, text: Int32Array) -> None:
        """Remembers `text`, or the end of one that is too long."""
        text = text[-self._n_tokens_max + 1 :]
        if self._generations[-1].n_bytes_after(len(text) + 1) > self._n_bytes_max:
            self._generations.append(suffix.Automaton())
        self._generations[-1].extend(np.concatenate([text, BREAK]))

    def matches(self, text: Int32Array) -> Iterator[tuple[suffix.Automaton, int, int]]:
        """For each generation, the latest first, the longest end of `text` in it."""
        for generation in reversed(self._generations):
            if generation.n_tokens:
                yield generation, *generation.follow(0, 0, text)


@dataclass(slots=True)
class _Text:
    """The committed tokens of a sequence."""

    tokens: list[int] = field(default_factory=list)
    automaton: suffix.Automaton = field(default_factory=suffix.Automaton)


class SuffixDrafter(Drafter):
    """Proposes what followed the longest end of the text, of `n_min` tokens or more, when it occurred before:
    in the sequence itself, or in the answers of earlier requests, of which it keeps `memory_mib` MiB.

    SAM decoding (Hu et al. 2024, arXiv 2411.10666), SuffixDecoding (Oliaro et al. 2024, 2411.04975). The
    chance that a continuation comes again is estimated from how often it came, and from how long the match
    is; a draft ends before the chance of all of it falls below `p_min`, and of several the one that should
    bring most tokens is taken. Without a match there is no draft.
    """

    operator_options = frozenset({"memory_mib"})

    def __init__(
        self, context: DrafterContext, *, n_min: int = 2, p_min: float = 0.2, memory_mib: int = 64
    ) -> None:
        super().__init__(context)
        if n_min < 1:
            raise ConfigError(f"drafter suffix: n_min must be 1 or more, not {n_min}")
        if not 0.0 <= p_min <= 1.0:
            raise ConfigError(f"drafter suffix: p_min must be between 0 and 1, not {p_min:g}")
        if not 1 <= memory_mib <= 2**16:
            raise ConfigError(f"drafter suffix: memory_mib must be from 1 to {2**16}, not {memory_mib}")
        self._n_min = n_min
        self._p_min = p_min
        self._memory_bytes = memory_mib * 2**20
        self.memory = Memory(self._memory_bytes)
        self._texts: dict[int, _Text] = {}

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        return [request.deterministic(self._likeliest(request)) for request in requests]

    def remember(self, tokens: Sequence[int], n_prompt: int) -> None:
        if len(tokens) > n_prompt:
            self.memory.add(np.array(tokens[max(0, n_prompt - N_PROMPT_KEPT) :], np.int32))

    def forget(self) -> None:
        self.memory = Memory(self._memory_bytes)

    def fork(self, source: int, target: int) -> None:
        self.release(target)  # its automaton is made anew of its prefix

    def release(self, sequence: int) -> None:
        self._texts.pop(sequence, None)

    def _likeliest(self, request: DraftRequest) -> list[int]:
        """The continuation that is expected to bring most tokens."""
        best: list[int] = []
        most = 0.0
        for automaton, state, length in self._matches(request):
            if length >= self._n_min:
                tokens, expected = automaton.continuation(state, length, request.n_max, self._p_min, PRIOR)
                if expected > most:
                    best, most = tokens.tolist(), expected
        return best

    def _matches(self, request: DraftRequest) -> Iterator[tuple[suffix.Automaton, int, int]]:
        """(automaton, state, length) of the end of the prefix, guessed tokens included."""
        automaton = self._automaton(request)
        yield automaton, *automaton.follow(*automaton.longest(), np.array(request.before, np.int32))
        yield from self.memory.matches(np.array(request.prefix[-N_LOOKED_UP:], np.int32))

    def _automaton(self, request: DraftRequest) -> suffix.Automaton:
        """That of the sequence's committed tokens."""
        committed = list(request.prefix[: len(request.prefix) - request.n_before])
        text = self._texts.setdefault(request.sequence, _Text())
        n_known = len(text.tokens)
        if committed[:n_known] != text.tokens:
            text = self._texts[request.sequence] = _Text()
            n_known = 0
        text.automaton.extend(np.array(committed[n_known:], np.int32))
        text.tokens = committed
        return text.automaton


Plugin = SuffixDrafter
