"""Text in colours that say where its tokens came from."""

from __future__ import annotations

import argparse
import codecs
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TextIO, get_args

if TYPE_CHECKING:
    from lucebox.core import Origin
    from lucebox.text.output import TokenBytes

ColourMode = Literal["auto", "always", "never"]

_RESET = "\x1b[0m"
# By the value of core.Origin. Colour and style, as not everybody tells colours apart (ECMA-48, SGR).
_STYLES: Mapping[str, str] = {
    "accepted": "\x1b[32m",
    "corrected": "\x1b[4;33m",
    "bonus": "\x1b[1;36m",
    "forced": "\x1b[3;35m",
}
_MEANINGS: Mapping[str, str] = {
    "accepted": "guessed by a drafter, and kept",
    "corrected": "the target's own, in place of a rejected guess (underlined)",
    "bonus": "the target's own, behind a draft that was kept to its end (bold)",
    "forced": "the only one that the grammar left (italic)",
    "plain": "the target's own, in a round without a draft",
}


def add_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--color",
        choices=get_args(ColourMode),
        default="auto",
        help="colour tokens by where they came from; auto: in a terminal, unless NO_COLOR is set",
    )


def wants_colours(mode: ColourMode, stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether what is written to `stream` may have colours (https://no-color.org)."""
    if mode != "auto":
        return mode == "always"
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def painted(text: str, origin: Origin | None) -> str:
    """`text` in the colours of `origin`; none for a plain token, or where it is not known."""
    return text if origin is None else _styled(text, origin.value)


def _styled(text: str, origin: str) -> str:
    style = _STYLES.get(origin)
    return f"{style}{text}{_RESET}" if style and text else text


def legend() -> str:
    """A line for each colour."""
    return "\n".join(
        f"  {_styled(name, name)}{' ' * (12 - len(name))}{meaning}" for name, meaning in _MEANINGS.items()
    )


class OriginRuns:
    """Finds the tokens behind shown text, which lags behind them while a character or stop string is open."""

    def __init__(self, vocabulary: TokenBytes) -> None:
        self._vocabulary = vocabulary
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._waiting: deque[tuple[str, Origin]] = deque()

    def push(self, tokens: Sequence[int], origins: Sequence[Origin]) -> None:
        """Tokens that arrived. A character of several tokens counts as the last one's."""
        for token, origin in zip(tokens, origins, strict=True):
            if text := self._decode(self._vocabulary.token_bytes(token)):
                self._waiting.append((text, origin))

    def take(self, text: str) -> Iterator[tuple[str, Origin | None]]:
        """`text`, which follows what was taken before, cut where the origin changes."""
        while text and self._waiting:
            piece, origin = self._waiting.popleft()
            n = len(piece)
            if len(text) < n:
                self._waiting.appendleft((piece[len(text) :], origin))
            yield text[:n], origin
            text = text[n:]
        if text:
            yield text, None
