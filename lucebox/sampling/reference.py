"""The kernels `rng`, `sampling`, `filters`, `gumbel`, `entropy` and `mask` in NumPy, written plainly. Oracle
of tests, and fallback."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lucebox.core import Float32Array, Int32Array, UInt32Array
from lucebox.errors import LogitsError

WORD = 2**32 - 1
PHILOX_M = (0xD2511F53, 0xCD9E8D57)
PHILOX_W = (0x9E3779B9, 0xBB67AE85)


Word = TypeVar("Word", int, NDArray[Any])


def philox(counter: tuple[Word, Word, Word, Word], key: tuple[int, int]) -> tuple[Word, Word, Word, Word]:
    """Philox 4x32-10: four 32-bit words of the counter (or arrays) and two of the key to random ones."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = PHILOX_M[0] * c0, PHILOX_M[1] * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & WORD, (a >> 32) ^ c3 ^ k1, a & WORD
        k0, k1 = (k0 + PHILOX_W[0]) & WORD, (k1 + PHILOX_W[1]) & WORD
    return c0, c1, c2, c3


def uniform(seed: int, position: int, offset: int, sibling: int, purpose: int) -> float:
    """A float64 in [0, 1) of 53 random bits. `seed` has 64 bits, the other words 32; OverflowError beyond."""
    for word in (position, offset, sibling, purpose):
        if not 0 <= word <= WORD:
            raise OverflowError(f"{word} does not fit 32 bits")
    if not 0 <= seed < 2**64:
        raise OverflowError(f"seed {seed} does not fit 64 bits")
    a, b, _, _ = philox((position, offset, sibling, purpose), (seed & WORD, seed >> 32))
    return ((a >> 5) * 2**26 + (b >> 6)) / 2**53


def adjusted(
    logits: Float32Array,
    bias_ids: Int32Array,
    bias_values: Float32Array,
    seen_ids: Int32Array,
    seen_counts: Int32Array,
    repetition: float,
    frequency: float,
    presence: float,
) -> Float32Array:
    """A copy of `logits`, float32[n_vocab], with biases added and penalties taken off.

    `bias_ids` are distinct; a bias of -100 bans. `seen_ids` are distinct; `seen_counts` says how often each
    was generated (0: it stands in the prompt only). Computed in float64.
    """
    out = logits.copy()
    biased = out[bias_ids] + bias_values.astype(np.float64)
    out[bias_ids] = np.where(bias_values <= -100.0, -np.inf, biased)
    seen = out[seen_ids].astype(np.float64)
    seen = np.where(seen > 0, seen / repetition, seen * repetition)
    out[seen_ids] = seen - frequency * seen_counts - presence * (seen_counts > 0)
    return out


def checked_max(logits: Float32Array) -> float:
    """The largest logit. Raises LogitsError for NaN, +infinity, or a row without a finite logit."""
    if np.isnan(logits).any():
        raise LogitsError("NaN")
    highest = float(logits.max())
    if math.isinf(highest):
        raise LogitsError("+infinity" if highest > 0 else "no token that is allowed")
    return highest


def argmax(logits: Float32Array) -> int:
    """The token of the largest logit, the lowest id among ties. Raises LogitsError."""
    checked_max(logits)
    return int(np.argmax(logits))


def softmax(logits: Float32Array, temperature: float) -> Float32Array:
    """float32[n_vocab] probabilities, `temperature` > 0. Raises LogitsError."""
    highest = checked_max(logits)
    weights = np.exp((logits.astype(np.float64) - highest) / temperature)
    probs: Float32Array = (weights / weights.sum()).astype(np.float32)
    return probs


def filtered(
    logits: Float32Array, temperature: float, min_p: float, top_k: int, top_p: float
) -> tuple[Int32Array, Float32Array]:
    """The law that min_p, then top_k, then top_p leave of the softmax at `temperature` > 0, renormalised.

    min_p keeps p >= min_p * max(p). top_k (0: off) keeps the k likeliest, the lowest ids among ties. top_p
    (1: off) keeps the fewest, likeliest first and lowest ids first, whose share of what is left reaches
    top_p. At least one token is left. Returns ascending int32 ids and float32 probabilities. Raises
    LogitsError.
    """
    highest = checked_max(logits)
    floor = highest + temperature * math.log(min_p) if min_p > 0 else -math.inf
    if 0 < top_k < len(logits):
        floor = max(floor, np.partition(logits, -top_k)[-top_k])
    ids = np.flatnonzero((logits >= floor) & (logits > -math.inf))
    ids = ids[np.argsort(-logits[ids], kind="stable")]
    if top_k > 0:
        ids = ids[:top_k]
    weights = np.exp((logits[ids].astype(np.float64) - highest) / temperature)
    if top_p < 1:
        cumulated = np.cumsum(weights)
        n_left = int(np.searchsorted(cumulated, top_p * cumulated[-1])) + 1
        ids, weights = ids[:n_left], weights[:n_left]
    order = np.argsort(ids)
    probs = weights[order] / weights.sum()
    return ids[order].astype(np.int32), probs.astype(np.float32)


def narrowed(
    ids: Int32Array, probs: Float32Array, typical_p: float, top_p: float, xtc_threshold: float
) -> tuple[Int32Array, Float32Array]:
    """The law that typical_p, then top_p, then XTC leave of a sparse one, renormalised.

    typical_p (1: off) keeps the fewest tokens whose share reaches it, nearest first: by how far -log p is
    from the entropy (Meister et al. 2023, "Locally typical sampling"). top_p (1: off) does so by p, likeliest
    first. XTC (a threshold over 1: off) keeps one of all tokens at or above its threshold, the least likely.
    Among ties the lowest ids come first; XTC keeps the last. Returns ascending int32 ids and float32
    probabilities. ValueError if there is no positive probability.
    """
    weights = probs.astype(np.float64)
    if not weights.sum() > 0:
        raise ValueError("a law without a positive probability")
    if typical_p < 1:
        p = weights / weights.sum()
        information = np.full(len(p), np.inf)
        np.log(p, where=p > 0, out=information)
        information[p > 0] *= -1
        entropy = (p[p > 0] * information[p > 0]).sum()
        kept = _fewest(np.abs(information - entropy).astype(np.float32), weights, typical_p)
        ids, weights = ids[kept], weights[kept]
    if top_p < 1:
        kept = _fewest(-weights.astype(np.float32), weights, top_p)
        ids, weights = ids[kept], weights[kept]
    is_top = weights >= xtc_threshold * weights.sum()
    if xtc_threshold <= 1 and is_top.any():
        least = weights[is_top & (weights > 0)].min()
        is_top[np.flatnonzero(weights == least)[-1]] = False
        ids, weights = ids[~is_top], weights[~is_top]
    return ids.astype(np.int32), (weights / weights.sum()).astype(np.float32)


def _fewest(keys: Float32Array, weights: NDArray[np.float64], share: float) -> NDArray[np.intp]:
    """Ascending indices of the fewest weights, lowest keys first, that reach `share` of their sum."""
    order = np.argsort(keys, kind="stable")
    n_kept = int(np.searchsorted(np.cumsum(weights[order]), share * weights.sum())) + 1
    return np.sort(order[:n_kept])


def repetitions(tokens: Int32Array, longest: int) -> Int32Array:
    """How much of the end of `tokens` stands in front of each of them: int32[n], at most `longest`.

    Element i is the length of the longest common suffix of tokens[:i] and tokens.
    """
    n = len(tokens)
    lengths = np.zeros(n, np.int32)
    for i in range(1, n):
        length = 0
        while length < min(i, longest) and tokens[i - 1 - length] == tokens[n - 1 - length]:
            length += 1
        lengths[i] = length
    return lengths


def sample(ids: Int32Array | None, probs: NDArray[np.floating], u: float) -> int:
    """The first token whose cumulated probability exceeds `u` times their sum; `ids` None: dense.

    ValueError if there is no positive probability.
    """
    cumulated = np.cumsum(probs, dtype=np.float64)
    if not cumulated[-1] > 0:
        raise ValueError("a law without a positive probability")
    i = int(np.searchsorted(cumulated, u * cumulated[-1], side="right"))
    if i >= len(probs):
        i = int(np.flatnonzero(probs)[-1])
    return i if ids is None else int(ids[i])


def log_sum_exp(logits: Float32Array) -> float:
    """log of the sum of exp(logits), in float64. Raises LogitsError."""
    highest = checked_max(logits)
    return highest + math.log(np.exp(logits.astype(np.float64) - highest).sum())


def top(logits: Float32Array, n: int) -> Int32Array:
    """The ids of the `n` largest finite logits, largest first, the lowest ids among ties. Raises
    LogitsError."""
    checked_max(logits)
    order = np.argsort(-logits, kind="stable")[:n]
    return order[logits[order] > -math.inf].astype(np.int32)


def gumbel_argmax(ids: Int32Array | None, probs: Float32Array, seed: int, position: int, purpose: int) -> int:
    """The token of the largest log-probability plus noise keyed by (seed, position, purpose, token).

    Each Philox block serves two neighbouring tokens. `ids` None: dense. Never a token of probability zero;
    ValueError if there is no positive one.
    """
    places = np.flatnonzero(probs > 0)
    if not len(places):
        raise ValueError("a law without a positive probability")
    tokens = (places if ids is None else ids[places]).astype(np.uint64)
    places_in_text, nothing, purposes = (np.full_like(tokens, word) for word in (position, 0, purpose))
    blocks = philox((places_in_text, tokens >> 1, nothing, purposes), (seed & WORD, seed >> 32))
    high, low = (np.where(tokens & 1, blocks[i + 2], blocks[i]) for i in (0, 1))
    u = ((high >> 6) * 2.0**26 + (low >> 6) + 0.5) / 2.0**52
    noise = -np.log(-np.log(u))
    return int(tokens[np.argmax(np.log(probs[places].astype(np.float64)) + noise)])


def entropy(probs: Float32Array) -> float:
    """The Shannon entropy, in nats, of a law with these probabilities, dense or sparse."""
    p = probs[probs >= np.finfo(np.float32).tiny].astype(np.float64)
    return max(0.0, float(-(p * np.log(p)).sum()))


def _bits(words: UInt32Array, n_vocab: int) -> NDArray[np.bool_]:
    """Bit i % 32 of word i // 32 for each of `n_vocab` tokens; not set where there is no word."""
    bits = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little")[:n_vocab]
    return np.pad(bits, (0, n_vocab - len(bits))).astype(bool)


def count(words: UInt32Array, n_vocab: int) -> int:
    """How many of `n_vocab` tokens are allowed by `words`, a bit for each."""
    return int(_bits(words, n_vocab).sum())


def allowed(words: UInt32Array, n_vocab: int) -> Int32Array:
    """int32 ids of the tokens that are allowed, ascending."""
    return np.flatnonzero(_bits(words, n_vocab)).astype(np.int32)


def masked(logits: Float32Array, words: UInt32Array) -> Float32Array:
    """A copy of `logits` (float32[n_vocab]) with -infinity for every token that is not allowed."""
    return np.where(_bits(words, len(logits)), logits, np.float32(-np.inf))
