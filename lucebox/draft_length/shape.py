"""Trees by their shape: `3x2` has 3 guesses for the next token, and 2 behind each of them."""

from __future__ import annotations

import re

from lucebox.errors import ConfigError

MAX_TOKENS = 255  # of a tree, which has to fit one forward


def parse(text: str) -> tuple[int, ...]:
    """Children per node by depth; "" is a chain. Raises ConfigError."""
    if not text:
        return ()
    if not re.fullmatch(r"[1-9][0-9]{0,2}(x[1-9][0-9]{0,2})*", text):
        raise ConfigError(
            f"the shape {text!r} is no tree", remedy="write the children of a node by depth, like 3x2"
        )
    children = tuple(int(part) for part in text.split("x"))
    if len(children) > MAX_TOKENS or n_tokens(children) > MAX_TOKENS:
        raise ConfigError(
            f"a tree of the shape {text} has more than {MAX_TOKENS} tokens", remedy="make it smaller"
        )
    return children


def n_tokens(children: tuple[int, ...]) -> int:
    """The tokens of a whole tree."""
    total, width = 0, 1
    for n in children:
        width *= n
        total += width
    return total
