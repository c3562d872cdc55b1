"""A request's sampler chain: a row of logits becomes the law that its token is drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np

from lucebox.core import Distribution, Float32Array
from lucebox.sampling.history import TokenHistory
from lucebox.sampling.kernels import sampling
from lucebox.sampling.params import SamplingParams


class Sampler:
    """The chain logit_bias, penalties, temperature, min_p, top_k, top_p, for one request.

    Frequency and presence penalties count `generated` tokens; the repetition penalty sees `prompt` too.
    min_p is relative to the likeliest token after the temperature; top_p is a share of what top_k leaves.
    Temperature 0 is the limit: one-hot at the largest logit, the lowest id among ties. A bias of -100 bans.
    """

    def __init__(
        self, params: SamplingParams, n_vocab: int, prompt: Sequence[int], generated: Sequence[int] = ()
    ) -> None:
        self.params = params
        self.n_vocab = n_vocab
        self._bias_ids = np.fromiter(params.logit_bias.keys(), np.int32)
        self._bias_values = np.fromiter(params.logit_bias.values(), np.float32)
        self._history = TokenHistory(prompt, generated) if self.needs_history else None
        self._is_filtered = params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0

    @property
    def needs_history(self) -> bool:
        """Whether a law depends on the tokens before it by more than the logits."""
        p = self.params
        return p.repetition_penalty != 1.0 or p.frequency_penalty != 0.0 or p.presence_penalty != 0.0

    def law(
        self, logits: Float32Array, extra: Sequence[int] = (), *, uncollapsed: bool = False
    ) -> Distribution:
        """The law behind the committed tokens and `extra`. `logits` is float32[n_vocab], and stays as it is.

        `uncollapsed` takes temperature 0 for 1, which shows how close other tokens came to the likeliest.
        Raises LogitsError for NaN, +infinity, and where every token is banned.
        """
        assert logits.shape == (self.n_vocab,), f"{logits.shape} is not ({self.n_vocab},)"
        p = self.params
        row = self._adjusted(logits, extra)
        temperature = 1.0 if uncollapsed and p.greedy else p.temperature
        if temperature == 0.0:
            return Distribution.one_hot(self.n_vocab, sampling.argmax(row))
        if not self._is_filtered:
            return Distribution(self.n_vocab, sampling.softmax(row, temperature))
        ids, probs = sampling.filtered(row, temperature, p.min_p, p.top_k, p.top_p)
        return Distribution(self.n_vocab, probs, ids)

    def argmax(self, logits: Float32Array, extra: Sequence[int] = ()) -> int:
        """The likeliest token of `law`, the lowest id among ties, without the law. Raises as `law` does."""
        return sampling.argmax(self._adjusted(logits, extra))

    def ahead(self, tokens: Sequence[int]) -> Sampler:
        """The sampler that this one is once `tokens` are committed, for another thread to use."""
        if self._history is None:
            return self
        sampler = copy(self)
        sampler._history = self._history.copy()
        sampler.commit(tokens)
        return sampler

    def commit(self, tokens: Sequence[int]) -> None:
        """Appends generated tokens."""
        if self._history is not None:
            self._history.append(tokens)

    def _adjusted(self, logits: Float32Array, extra: Sequence[int]) -> Float32Array:
        """`logits` with bias and penalties; `logits` itself where there are none."""
        if self._history is None:
            if not len(self._bias_ids):
                return logits
            return self._penalised(logits, TokenHistory(()))
        with self._history.extended(extra):
            return self._penalised(logits, self._history)

    def _penalised(self, logits: Float32Array, history: TokenHistory) -> Float32Array:
        p = self.params
        return sampling.adjusted(
            logits,
            self._bias_ids,
            self._bias_values,
            history.ids,
            history.counts,
            p.repetition_penalty,
            p.frequency_penalty,
            p.presence_penalty,
        )
