"""A request's sampler chain: a row of logits becomes the law that its token is drawn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy

import numpy as np

from lucebox.core import Distribution, Float32Array
from lucebox.errors import LogitsError, NoTokenError
from lucebox.sampling.constraint import Constraint
from lucebox.sampling.dry import Repetitions
from lucebox.sampling.history import TokenHistory
from lucebox.sampling.kernels import filters, sampling
from lucebox.sampling.params import SamplingParams
from lucebox.sampling.random import Purpose, RoundRandom

XTC_OFF = 2.0  # a threshold that no probability reaches


class Sampler:
    """The chain logit_bias, penalties, DRY, temperature, min_p, top_k, typical_p, top_p, XTC for one request.

    What `constraint` does not allow has no chance before any of them.
    Frequency and presence penalties count `generated` tokens; the repetition penalty and DRY see `prompt`,
    too. min_p is relative to the likeliest token after the temperature; typical_p is a share of what top_k
    leaves, top_p one of what typical_p leaves, XTC's threshold a probability in what top_p leaves. Whether
    XTC strikes hangs on `seed` and the place in the text alone, so that every draft meets the same law there.
    Temperature 0 is the limit: one-hot at the largest logit, the lowest id among ties. A bias of -100 bans.
    `token_bytes` is how the vocabulary spells tokens; DRY needs it.
    """

    def __init__(
        self,
        params: SamplingParams,
        n_vocab: int,
        prompt: Sequence[int],
        generated: Sequence[int] = (),
        constraint: Constraint | None = None,
        *,
        seed: int = 0,
        token_bytes: Callable[[int], bytes] | None = None,
    ) -> None:
        self.params = params
        self.n_vocab = n_vocab
        self.constraint = constraint
        self._bias_ids = np.fromiter(params.logit_bias.keys(), np.int32)
        self._bias_values = np.fromiter(params.logit_bias.values(), np.float32)
        self._history = TokenHistory(prompt, generated) if _has_penalties(params) else None
        self._repetitions: Repetitions | None = None
        if params.dry_multiplier > 0.0 and params.dry_penalty_last_n != 0:
            assert token_bytes is not None, "DRY needs to know how tokens are spelled"
            self._repetitions = Repetitions(params, token_bytes, [*prompt, *generated])
        self._random = RoundRandom(seed, len(prompt) + len(generated))  # of the next token's place
        self._has_xtc = params.xtc_probability > 0.0 and params.xtc_threshold <= 0.5
        self._is_narrowed = params.typical_p < 1.0 or self._has_xtc
        if constraint is not None:
            constraint.commit(generated)
        self._is_filtered = params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0 or self._is_narrowed

    @property
    def needs_history(self) -> bool:
        """Whether a law depends on the tokens before it, or on their number, by more than the logits."""
        return self._history is not None or self._repetitions is not None or self._has_xtc

    def law(
        self, logits: Float32Array, extra: Sequence[int] = (), *, uncollapsed: bool = False
    ) -> Distribution:
        """The law behind the committed tokens and `extra`. `logits` is float32[n_vocab], and stays as it is.

        `uncollapsed` takes temperature 0 for 1, which shows how close other tokens came to the likeliest;
        typical_p and XTC, which may leave out the likeliest itself, are off then.
        Raises LogitsError for logits of which no law can be made, NoTokenError where the request leaves none
        of their tokens, and RequestError for a grammar that became too complex.
        """
        assert logits.shape == (self.n_vocab,), f"{logits.shape} is not ({self.n_vocab},)"
        try:
            return self._law(logits, extra, uncollapsed)
        except LogitsError:
            self._check_choice(logits, extra)
            raise

    def _law(self, logits: Float32Array, extra: Sequence[int], uncollapsed: bool) -> Distribution:
        p = self.params
        row = self._adjusted(self.allowed(logits, extra), extra)
        temperature = 1.0 if uncollapsed and p.greedy else p.temperature
        if temperature == 0.0:
            return Distribution.one_hot(self.n_vocab, sampling.argmax(row))
        if not self._is_filtered:
            return Distribution(self.n_vocab, sampling.softmax(row, temperature))
        if p.greedy or not self._is_narrowed:
            ids, probs = sampling.filtered(row, temperature, p.min_p, p.top_k, p.top_p)
            return Distribution(self.n_vocab, probs, ids)
        ids, probs = sampling.filtered(row, temperature, p.min_p, p.top_k, 1.0)
        ids, probs = filters.narrowed(ids, probs, p.typical_p, p.top_p, self._xtc_threshold(len(extra)))
        return Distribution(self.n_vocab, probs, ids)

    def argmax(self, logits: Float32Array, extra: Sequence[int] = ()) -> int:
        """The likeliest token of `law`, the lowest id among ties; without the law where typical_p and XTC are
        off. Raises as `law` does."""
        if self._is_narrowed and not self.params.greedy:
            return self.law(logits, extra).argmax()
        try:
            return sampling.argmax(self._adjusted(self.allowed(logits, extra), extra))
        except LogitsError:
            self._check_choice(logits, extra)
            raise

    def check_start(self) -> None:
        """Raises NoTokenError where no answer can go on from here, whatever the logits; RequestError as
        `law`."""
        mask = None if self.constraint is None else self.constraint.mask()
        if mask is not None and not mask.n_allowed:
            raise self._no_token()

    def allowed(self, logits: Float32Array, extra: Sequence[int]) -> Float32Array:
        """`logits` without the tokens that the grammar forbids."""
        mask = None if self.constraint is None else self.constraint.mask(extra)
        return logits if mask is None else mask.apply(logits)

    def _check_choice(self, logits: Float32Array, extra: Sequence[int]) -> None:
        """Raises NoTokenError if the model, whose `logits` these are, did leave tokens to choose from."""
        if (logits < np.inf).all() and (logits > -np.inf).any():
            raise self._no_token()

    def _no_token(self) -> NoTokenError:
        if self.constraint is None:
            return NoTokenError("logit_bias bans every token that may come next", param="logit_bias")
        if self.params.banned:
            problem = "logit_bias bans every token that the grammar allows to come next"
            return NoTokenError(problem, param="logit_bias")
        return NoTokenError("the model knows no token that the grammar allows to come next", param="grammar")

    def _xtc_threshold(self, n_extra: int) -> float:
        """For the token behind `n_extra` more."""
        u = self._random.at_position(self._random.position + n_extra, Purpose.XTC)
        return self.params.xtc_threshold if self._has_xtc and u < self.params.xtc_probability else XTC_OFF

    def ahead(self, tokens: Sequence[int]) -> Sampler:
        """The sampler that this one is once `tokens` are committed, for another thread to use.

        Tokens that the grammar forbids, as a guess may be, are followed by anything.
        """
        if not self.needs_history and self.constraint is None:
            return self
        sampler = copy(self)
        sampler._history = None if self._history is None else self._history.copy()
        sampler._repetitions = None if self._repetitions is None else self._repetitions.copy()
        if self.constraint is not None:
            is_allowed = self.constraint.n_allowed(tokens) == len(tokens)
            sampler.constraint = self.constraint.copy() if is_allowed else None
        sampler.commit(tokens)
        return sampler

    def commit(self, tokens: Sequence[int]) -> None:
        """Appends generated tokens."""
        if self._history is not None:
            self._history.append(tokens)
        if self._repetitions is not None:
            self._repetitions.append(tokens)
        if self.constraint is not None:
            self.constraint.commit(tokens)
        self._random = RoundRandom(self._random.seed, self._random.position + len(tokens))

    def _adjusted(self, logits: Float32Array, extra: Sequence[int]) -> Float32Array:
        """`logits` with bias, penalties and DRY; `logits` itself where there are none."""
        row = self._biased(logits, extra)
        if self._repetitions is None:
            return row
        with self._repetitions.extended(extra):
            ids, penalties = self._repetitions.penalties()
        if len(ids):
            row = row.copy() if row is logits else row
            row[ids] -= penalties
        return row

    def _biased(self, logits: Float32Array, extra: Sequence[int]) -> Float32Array:
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


def _has_penalties(p: SamplingParams) -> bool:
    return p.repetition_penalty != 1.0 or p.frequency_penalty != 0.0 or p.presence_penalty != 0.0
