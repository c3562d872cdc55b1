"""SentencePiece's BPE: of all neighbours that make a token, the pair of the best score merges first.

Not BPE on the `tokenizers` library: that ranks pairs, while here equal scores merge from the left, and
real vocabularies (Llama 2, Mistral) give all runs of spaces the same score.
"""

from __future__ import annotations

import re
from functools import lru_cache
from heapq import heappop, heappush

import numpy as np
from gguf import TokenType
from numpy.typing import NDArray

from lucebox.text.fields import TokenizerFields
from lucebox.text.spelling import SPACE_MARK

_SPACE_INSIDE = re.compile(f"[^{SPACE_MARK}]{SPACE_MARK}")
_WORD = re.compile(f"{SPACE_MARK}*[^{SPACE_MARK}]+|{SPACE_MARK}+")
_N_CACHED_WORDS = 1 << 15
_MAX_CACHED_CHARS = 32


class SentencePiece:
    """Encodes text that holds no added tokens. Needs the key `scores`; heeds `add_space_prefix`."""

    def __init__(self, fields: TokenizerFields, texts: list[str], types: NDArray[np.uint8]) -> None:
        self._prefix = SPACE_MARK if fields.bool("add_space_prefix", default=True) else ""
        scores = fields.numbers("scores", len(texts))
        normal = np.flatnonzero(types == TokenType.NORMAL).tolist()
        self._ids = {texts[token]: token for token in normal}
        self._costs = {texts[token]: -float(scores[token]) for token in normal}
        self._byte_ids = _byte_ids(fields, texts, types)
        self._words_merge_alone = not any(map(_SPACE_INSIDE.search, self._ids))
        self._merge_cached = lru_cache(_N_CACHED_WORDS)(self._merge)

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, which must be encodable as UTF-8."""
        marked = self._prefix + text.replace(" ", SPACE_MARK)
        words = _WORD.findall(marked) if self._words_merge_alone else [marked]
        ids: list[int] = []
        for word in words:
            ids += self._merge_cached(word) if len(word) <= _MAX_CACHED_CHARS else self._merge(word)
        return ids

    def _merge(self, word: str) -> tuple[int, ...]:
        ids: list[int] = []
        for symbol in self._symbols(word):
            token = self._ids.get(symbol)
            ids += [self._byte_ids[byte] for byte in symbol.encode()] if token is None else [token]
        return tuple(ids)

    def _symbols(self, word: str) -> list[str]:
        """The characters of `word`, merged as far as they go."""
        n = len(word)
        end = [*range(1, n + 1)]  # of the symbol that starts here; 0 once it is part of its left neighbour
        before = [*range(-1, n - 1)]  # where the left neighbour of the symbol that starts here starts
        heap: list[tuple[float, int, int, int]] = []

        def offer(left: int, right: int) -> None:
            cost = self._costs.get(word[left : end[right]])
            if cost is not None:
                heappush(heap, (cost, left, right, end[right]))

        for start in range(n - 1):
            offer(start, start + 1)
        while heap:
            _, left, right, stop = heappop(heap)
            if end[left] != right or end[right] != stop:
                continue  # one of the two has merged with another since
            end[left], end[right] = stop, 0
            if stop < n:
                before[stop] = left
                offer(left, stop)
            if left:
                offer(before[left], left)
        return [word[start:stop] for start, stop in enumerate(end) if stop]


def _byte_ids(fields: TokenizerFields, texts: list[str], types: NDArray[np.uint8]) -> list[int]:
    """What stands for each byte of a character that is no token: its byte token, else the unknown token."""
    ids = {texts[token].upper(): token for token in np.flatnonzero(types == TokenType.BYTE).tolist()}
    unknown = next(iter(np.flatnonzero(types == TokenType.UNKNOWN).tolist()), None)
    found = [ids.get(f"<0X{byte:02X}>", unknown) for byte in range(256)]
    if None in found:
        raise fields.error("tokens", f"has no token for the byte {found.index(None)}, and no unknown token")
    return [token for token in found if token is not None]
