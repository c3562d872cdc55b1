"""Stop strings, found in the bytes of generated tokens as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from lucebox.errors import RequestError


@dataclass(frozen=True, slots=True)
class StopMatch:
    """`string` stands at byte `start` of the generated text, of which the first `start` bytes are kept."""

    string: bytes
    start: int


class StopMatcher:
    """Watches one text for stop strings: an Aho-Corasick automaton over bytes.

    The string that is complete first ends the text; of those that end at the same byte, the longest. So the
    outcome does not depend on how the bytes are dealt out, by tokens or by drafts of several tokens.
    """

    def __init__(self, stops: Iterable[str | bytes] = ()) -> None:
        """RequestError for an empty stop string."""
        self._next: list[dict[int, int]] = [{}]
        self._depth = [0]
        self._found: list[bytes | None] = [None]
        for stop in stops:
            self._add(stop.encode("utf-8", "surrogatepass") if isinstance(stop, str) else stop)
        self._fallback = [0] * len(self._next)
        self._link()
        self._state = 0
        self.n_bytes = 0
        self.match: StopMatch | None = None

    @property
    def n_safe_bytes(self) -> int:
        """How many bytes of the text are certain to be kept: none of the rest may be shown yet.

        The rest could be the beginning of a stop string; after a match it is what the match cuts off.
        """
        return self.match.start if self.match else self.n_bytes - self._depth[self._state]

    def push(self, chunk: bytes | bytearray) -> StopMatch | None:
        """Takes the next bytes of the text; the match if they complete a stop string. Not after a match."""
        assert self.match is None, "the text has ended"
        for byte in chunk:
            self._step(byte)
            found = self._found[self._state]
            if found is not None:
                self.match = StopMatch(found, self.n_bytes - len(found))
                break
        return self.match

    def _step(self, byte: int) -> None:
        state = self._state
        while state and byte not in self._next[state]:
            state = self._fallback[state]
        self._state = self._next[state].get(byte, 0)
        self.n_bytes += 1

    def _add(self, stop: bytes) -> None:
        if not stop:
            raise RequestError("A stop string is empty", param="stop", remedy="leave it out")
        state = 0
        for byte in stop:
            if byte not in self._next[state]:
                self._next[state][byte] = len(self._next)
                self._next.append({})
                self._depth.append(self._depth[state] + 1)
                self._found.append(None)
            state = self._next[state][byte]
        self._found[state] = stop

    def _link(self) -> None:
        """For each state the longest other one that its bytes end with, breadth first."""
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            for byte, child in self._next[state].items():
                other = self._fallback[state]
                while other and byte not in self._next[other]:
                    other = self._fallback[other]
                self._fallback[child] = self._next[other].get(byte, 0)
                if self._found[child] is None:
                    self._found[child] = self._found[self._fallback[child]]
                queue.append(child)
