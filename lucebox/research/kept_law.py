"""Laws with their unlikely tokens left out: what of a row a trace holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from lucebox.core import Distribution, Int32Array
from lucebox.errors import ConfigError


class Truncation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tokens of a law are kept: the likeliest that together hold `mass`, at most `top_k` of them.

    What was drafted is kept always, and a target's law and those of the drafts from its row keep the same
    tokens. `exact` keeps everything: 4 bytes for every token of the vocabulary and every row.
    """

    top_k: int = 256
    mass: float = 0.9999
    exact: bool = False

    def validate(self) -> None:
        """Raises ConfigError for a value out of range."""
        if self.top_k < 1:
            raise ConfigError(f"top_k must be at least 1, not {self.top_k}")
        if not 0.0 < self.mass <= 1.0:
            raise ConfigError(f"mass must be in (0, 1], not {self.mass!r}")


@dataclass(frozen=True, slots=True, eq=False)
class KeptLaw:
    """A law of which some tokens are known.

    `known` holds their own probabilities, zeros included, not renormalised; `rest` is the sum of those of all
    other tokens, 0 where nothing was left out.
    """

    known: Distribution
    rest: float = 0.0

    def prob(self, token: int) -> float:
        """Probability of a kept token; of any where nothing was left out."""
        assert self.holds(token), f"token {token} was left out"
        return self.known.prob(token)

    def holds(self, token: int) -> bool:
        """Whether the probability of `token` is known."""
        ids = self.known.ids
        if ids is None or self.rest == 0.0:
            return True
        i = int(np.searchsorted(ids, token))
        return i < len(ids) and int(ids[i]) == token

    def lumped(self) -> Distribution:
        """A law with the same probabilities of kept tokens, and all other mass on one token that is not kept:
        the lowest such id, the same for all laws that keep the same tokens."""
        if self.rest == 0.0:
            return self.known
        ids = self.known.ids
        assert ids is not None, "a dense law leaves nothing out"
        free = int(np.argmin(np.append(ids == np.arange(len(ids)), False)))
        return Distribution(
            self.known.n_vocab,
            np.insert(self.known.probs, free, np.float32(self.rest)),
            np.insert(ids, free, np.int32(free)),
        )


def keep(
    p: Distribution, qs: Sequence[Distribution | None], drafted: Sequence[int], truncation: Truncation
) -> tuple[KeptLaw, list[KeptLaw | None]]:
    """The target's law of one row and the laws of the tokens drafted from it, on one set of tokens."""
    if truncation.exact:
        return KeptLaw(p), [None if q is None else KeptLaw(q) for q in qs]
    laws = [p, *(q for q in qs if q is not None)]
    ids = np.unique(np.concatenate([np.asarray(drafted, np.int32), *(_likely(d, truncation) for d in laws)]))
    return _restricted(p, ids), [None if q is None else _restricted(q, ids) for q in qs]


def _likely(law: Distribution, truncation: Truncation) -> Int32Array:
    """The ids of the likeliest tokens that hold `mass`, at most `top_k`."""
    n = min(truncation.top_k, len(law.probs))
    places = np.argpartition(-law.probs, n - 1)[:n]
    places = places[np.argsort(-law.probs[places], kind="stable")]
    cumulated = np.cumsum(law.probs[places], dtype=np.float64)
    places = places[: int(np.searchsorted(cumulated, truncation.mass)) + 1]
    ids = places if law.ids is None else law.ids[places]
    return ids.astype(np.int32)


def _restricted(law: Distribution, ids: Int32Array) -> KeptLaw:
    """`law` on `ids` (ascending), which need not be in its support."""
    if law.ids is None:
        probs = law.probs[ids]
        is_left_out = np.ones(len(law.probs), bool)
        is_left_out[ids] = False
    else:
        places = np.searchsorted(law.ids, ids)
        places[places == len(law.ids)] = 0
        probs = np.where(law.ids[places] == ids, law.probs[places], np.float32(0.0))
        is_left_out = ~np.isin(law.ids, ids, assume_unique=True)
    rest = float(law.probs[is_left_out].sum(dtype=np.float64))
    return KeptLaw(Distribution(law.n_vocab, probs.astype(np.float32), ids), rest)
