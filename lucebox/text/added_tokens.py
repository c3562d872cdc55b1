"""Tokens that are looked for in raw text, before any model cuts it: control tokens and users' own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping


class AddedTokens:
    """Finds the names of added tokens in text: the leftmost first, the longest where several begin."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = {name: token for name, token in ids.items() if name}
        self._lengths = sorted({len(name) for name in self._ids}, reverse=True)
        firsts = "".join(sorted({name[0] for name in self._ids}))
        self._first = re.compile(f"[{re.escape(firsts)}]" if firsts else r"(?!)")

    def split(self, text: str) -> Iterator[str | int]:
        """The pieces of `text` in order: ids of added tokens, and the text between them (never empty)."""
        done = 0
        for start, name in self._found(text):
            if start > done:
                yield text[done:start]
            yield self._ids[name]
            done = start + len(name)
        if done < len(text):
            yield text[done:]

    def starts(self, text: str) -> list[int]:
        """Every offset at which the name of an added token begins, overlapping ones too."""
        return [at for at in self._candidates(text) if self._longest(text, at) is not None]

    def unfinished(self, text: str) -> list[int]:
        """Every offset from which the rest of `text` is the beginning, and not all, of a name."""
        first = max(len(text) - max(self._lengths, default=0) + 1, 0)
        return [at for at in self._candidates(text, first) if self._begins_name(text[at:])]

    def is_part_of_name(self, text: str) -> bool:
        return any(text in name for name in self._ids)

    def _begins_name(self, text: str) -> bool:
        return any(len(name) > len(text) and name.startswith(text) for name in self._ids)

    def _found(self, text: str) -> Iterator[tuple[int, str]]:
        end = 0
        for at in self._candidates(text):
            if at >= end and (name := self._longest(text, at)) is not None:
                yield at, name
                end = at + len(name)

    def _candidates(self, text: str, first: int = 0) -> Iterator[int]:
        return (match.start() for match in self._first.finditer(text, first))

    def _longest(self, text: str, at: int) -> str | None:
        for length in self._lengths:
            if (name := text[at : at + length]) in self._ids:
                return name
        return None
