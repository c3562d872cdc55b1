"""What lies between the vocabularies of a target and of a draft model: which ids mean the same, and a text in
the other's ids."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from gguf import TokenType

from lucebox.common_prefix import common_prefix_length
from lucebox.core import Int32Array
from lucebox.text.tokenizer import Tokenizer
from lucebox.text.vocabulary import Vocabulary

_BROKEN = re.compile("([\udc80-\udcff]+)")  # bytes that are no UTF-8, as surrogateescape shows them
_FEW_BYTES, _MANY_BYTES = 128, 1024
_BLANKS = b" \n\t\r"

Meaning = tuple[bool, bytes]
"""Whether a token steers the model, and its name then; else its text."""


def common_ids(draft: Vocabulary, target: Vocabulary, n_draft: int, n_target: int) -> Int32Array:
    """int32[n_draft]: of each id of the draft model the target's id for the same bytes, or -1.

    Control tokens are the same where their names are; the ends of text are, too, if they have no namesake. No
    two ids share one. `n_draft` and `n_target` are how many ids the models know.
    """
    common = np.full(n_draft, -1, np.int32)
    ours, theirs = _by_meaning(draft, n_draft), _by_meaning(target, n_target)
    for meaning in ours.keys() & theirs.keys():
        common[ours[meaning]] = theirs[meaning]
    our_end, their_end = draft.eos_id, target.eos_id
    if our_end is None or their_end is None or our_end >= n_draft or their_end >= n_target:
        return common
    if common[our_end] < 0 and their_end not in common:
        common[our_end] = their_end
    return common


def inverse(common: Int32Array, n_target: int) -> Int32Array:
    """int32[n_target]: of each id of the target the draft model's, or -1."""
    ids = np.full(n_target, -1, np.int32)
    known = np.flatnonzero(common >= 0)
    ids[common[known]] = known
    return ids


def _by_meaning(vocabulary: Vocabulary, n: int) -> dict[Meaning, int]:
    """The id of each meaning: the first, and a byte token only where there is no other."""
    ids: dict[Meaning, int] = {}
    for kinds in ((TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.CONTROL), (TokenType.BYTE,)):
        for token in np.flatnonzero(np.isin(vocabulary.types[:n], kinds)).tolist():
            text = vocabulary.bytes_of(token)
            if text and not vocabulary.is_padding(token):
                ids.setdefault((vocabulary.is_special(token), text), token)
    return ids


class BytesEncoder:
    """Encodes bytes from the inside of a text, as well as a vocabulary can."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        vocabulary = tokenizer.vocabulary
        ids = _by_meaning(vocabulary, vocabulary.n_tokens)
        self._of_byte = [ids.get((False, bytes((byte,)))) for byte in range(256)]

    def encode(self, data: bytes) -> list[int]:
        """Bytes that are no UTF-8 become tokens of single bytes, and nothing where there is none."""
        ids: list[int] = []
        for i, run in enumerate(_BROKEN.split(data.decode("utf-8", "surrogateescape"))):
            if i % 2:
                of_bytes = (self._of_byte[byte] for byte in run.encode("utf-8", "surrogateescape"))
                ids += [token for token in of_bytes if token is not None]
            elif run:
                ids += self._tokenizer.encode(run, parse_special=False, add_bos=False)
        return ids


@dataclass(slots=True)
class _Text:
    """A sequence as it was last seen. `ids` are those of pieces that are closed; `ends` says of each where it
    ends, in `tokens` and in `ids`."""

    tokens: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    ends: list[tuple[int, int]] = field(default_factory=list)

    @property
    def n_closed(self) -> int:
        """Tokens in closed pieces."""
        return self.ends[-1][0] if self.ends else 0

    def close(self, ids: Sequence[int], n_tokens: int) -> None:
        self.ids.extend(ids)
        self.ends.append((n_tokens, len(self.ids)))

    def roll_back(self, n_tokens: int) -> None:
        """Keeps what the first `n_tokens` tokens decide: of a piece, the token behind it decided its end."""
        while self.ends and self.ends[-1][0] >= n_tokens:
            self.ends.pop()
        del self.tokens[n_tokens:]
        del self.ids[self.ends[-1][1] if self.ends else 0 :]


class Retokeniser:
    """Texts of the target's ids in the draft model's ids.

    A text is cut into pieces, before a blank or where there is none for long, and each is tokenised by
    itself, so that a longer text costs but its last piece. Pieces depend on the text alone, not on how it
    grew. Control tokens become their namesakes, or nothing.
    """

    def __init__(self, target: Vocabulary, tokenizer: Tokenizer, to_draft: Int32Array) -> None:
        draft = tokenizer.vocabulary
        self._target = target
        self._to_draft = to_draft
        self._encoder = BytesEncoder(tokenizer)
        self._start = [draft.bos_id] if draft.add_bos and draft.bos_id is not None else []
        self._blank = draft.eos_id or 0
        self._texts: dict[int, _Text] = {}

    def ids(self, sequence: int, prefix: Sequence[int]) -> list[int]:
        """All of `prefix`; never nothing, which no model could go on from."""
        text = self._texts.setdefault(sequence, _Text())
        text.roll_back(common_prefix_length(text.tokens, prefix))
        data = b""
        for i in range(text.n_closed, len(prefix)):
            token = int(prefix[i])
            if self._is_control(token):
                text.close([*self._encoder.encode(data), *self._control(i, token)], i + 1)
                data = b""
                continue
            piece = self._target.bytes_of(token)
            if _begins_a_piece(data, piece):
                text.close(self._encoder.encode(data), i)
                data = b""
            data += piece
        text.tokens.extend(prefix[len(text.tokens) :])
        ids = [*self._start, *text.ids, *self._encoder.encode(data)]
        return ids or [self._blank]

    def n_tokens(self, sequence: int) -> int:
        """Tokens of the target that were translated at the last call."""
        text = self._texts.get(sequence)
        return 0 if text is None else len(text.tokens)

    def fork(self, source: int, target: int) -> None:
        if (text := self._texts.get(source)) is not None:
            self._texts[target] = _Text(text.tokens.copy(), text.ids.copy(), text.ends.copy())

    def release(self, sequence: int) -> None:
        self._texts.pop(sequence, None)

    def _is_control(self, token: int) -> bool:
        return token < self._target.n_tokens and self._target.is_special(token)

    def _control(self, place: int, token: int) -> Iterator[int]:
        """The namesake; none for the beginning of text, which the draft model has in its own way."""
        if self._to_draft[token] >= 0 and not (place == 0 and token == self._target.bos_id):
            yield int(self._to_draft[token])


def _begins_a_piece(before: bytes, piece: bytes) -> bool:
    """Whether a new piece begins with `piece`, which stands behind `before`."""
    if not piece or len(before) < _FEW_BYTES:
        return False
    if piece[0] in _BLANKS:
        return before[-1] not in _BLANKS
    is_inside_character = 0x80 <= piece[0] < 0xC0
    return len(before) >= _MANY_BYTES and not is_inside_character
