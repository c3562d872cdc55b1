"""Models that take their time without using any: an artificial device, for how things overlap."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from lucebox.core import Float32Array
from lucebox.runtime.output import Output
from lucebox.runtime.rows import Rows
from tests.support.fake_runtime import FakeRuntime, LogitsOf

N_VOCAB = 12


class SleepingRuntime(FakeRuntime):
    """Every forward takes `forward_ms`, however many rows it has."""

    def __init__(self, logits_of: LogitsOf, forward_ms: float, **options: Any) -> None:
        super().__init__(N_VOCAB, logits_of, **options)
        self._forward_s = forward_ms / 1000.0

    def forward(self, rows: Rows) -> Output:
        until_s = time.perf_counter() + self._forward_s
        output = super().forward(rows)
        time.sleep(max(0.0, until_s - time.perf_counter()))
        return output


class Text:
    """`n` tokens that a target is bound to say behind a prompt of `n_prompt`, and a draft model that is right
    about each with probability `alpha`, and in its second guess about the others with probability `beta`."""

    def __init__(self, n: int, n_prompt: int, alpha: float, beta: float, seed: int) -> None:
        random = np.random.default_rng(seed)
        self._n_prompt = n_prompt
        self._tokens = random.integers(0, N_VOCAB - 3, n)
        self.is_right = random.random(n) < alpha
        self.is_second_right = random.random(n) < beta
        self._law = np.array([alpha, (1 - alpha) * beta, *[(1 - alpha) * (1 - beta) / 4] * 4], np.float32)

    def target(self, context: tuple[int, ...]) -> Float32Array:
        logits = np.zeros(N_VOCAB, np.float32)
        logits[self._token(context)] = 20.0
        return logits

    def draft(self, context: tuple[int, ...]) -> Float32Array:
        """As sure of its guesses as it is right to be."""
        i, token = self._place(context), self._token(context)
        others = [(token + k) % (N_VOCAB - 1) for k in range(1, 7)]
        if self.is_right[i]:
            ranked = [token, *others[:5]]
        elif self.is_second_right[i]:
            ranked = [others[0], token, *others[1:5]]
        else:
            ranked = others
        logits = np.full(N_VOCAB, -20.0, np.float32)
        logits[ranked] = np.log(self._law)
        return logits

    def rounds(self, gamma: int, n_tokens: int) -> tuple[list[int], list[bool]]:
        """Of each round with a draft of `gamma` tokens, up to the end of a text of `n_tokens`: how often in
        a row the draft model is right, `gamma` + 1 times at most, and whether its second guess is, then."""
        n_right, second = [], []
        at = 1  # the first token comes from the prompt
        while at < n_tokens:
            run = self.is_right[at : at + gamma + 1]
            n = len(run) if run.all() else int(run.argmin())
            n_right.append(n)
            second.append(bool(self.is_second_right[at + n]))
            at += min(n, gamma) + 1
        return n_right, second

    def _place(self, context: tuple[int, ...]) -> int:
        return min(len(context) - self._n_prompt, len(self._tokens) - 1)

    def _token(self, context: tuple[int, ...]) -> int:
        return int(self._tokens[self._place(context)])
