"""How likely a prompt was: the target's log-probabilities of its tokens, as they are computed."""

from __future__ import annotations

from collections.abc import Sequence

from lucebox.engine.messages import TokenLogprobs
from lucebox.runtime.output import Output
from lucebox.sampling.logprobs import logprobs

MAX_ROWS = 32  # of a forward that wants the logits of all of them: what graphs reserve memory for


class PromptScores:
    """Takes the rows of `prompt` in order; the first token is given, and has no probability.

    Each entry has the token's own log-probability and those of the `n_top` likeliest.
    """

    def __init__(self, prompt: Sequence[int], n_top: int) -> None:
        self._prompt = prompt
        self._n_top = n_top
        self._n_seen = 0
        self._entries: list[TokenLogprobs] | None = []

    def add(self, output: Output, first_row: int, n: int) -> None:
        """Takes the next `n` tokens, which `output` has from `first_row` on. Raises LogitsError."""
        for row in range(first_row, first_row + n):
            self._n_seen += 1
            if self._n_seen < len(self._prompt):
                token = self._prompt[self._n_seen]
                logprob, top = logprobs(output.logits_of(row), token, self._n_top)
                assert self._entries is not None
                self._entries.append(TokenLogprobs(token, logprob, top))

    @property
    def is_done(self) -> bool:
        """Whether every token has its probability: the row of the last one is not needed."""
        return self._n_seen >= len(self._prompt) - 1

    def take(self) -> list[TokenLogprobs] | None:
        """One entry for each token but the first; None when they were taken before."""
        entries, self._entries = self._entries, None
        return entries
