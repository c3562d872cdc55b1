"""How a vocabulary spells bytes: GPT-2's byte letters, or SentencePiece's marked spaces and byte tokens.

A speller takes every token of a file as spelled there, and its types (uint8[n_tokens] of `gguf.TokenType`),
and returns the bytes of each.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from gguf import TokenType
from numpy.typing import NDArray

SPACE_MARK = "▁"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_letters() -> list[str]:
    """The letter that stands for each byte: printable ones for themselves, the others from U+0100 up."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


def byte_level_bytes(texts: Sequence[str], types: NDArray[np.uint8]) -> list[bytes]:
    """Of byte-level BPE. Added tokens, and those with other letters than GPT-2's, are plain text."""
    letters = [ord(letter) for letter in byte_letters()]
    byte_of = np.full(max(letters) + 2, -1, np.int16)
    byte_of[letters] = np.arange(256)
    codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), "<u4")
    values = byte_of[np.minimum(codes, len(byte_of) - 1)]
    ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)))
    plain = types != TokenType.NORMAL
    plain[np.searchsorted(ends, np.flatnonzero(values < 0), side="right")] = True
    data = values.astype(np.uint8).tobytes()
    limits = [0, *ends.tolist()]
    pieces = [data[start:end] for start, end in pairwise(limits)]
    for token in np.flatnonzero(plain).tolist():
        pieces[token] = plain_bytes(texts[token])
    return pieces


def sentencepiece_bytes(texts: Sequence[str], types: NDArray[np.uint8]) -> list[bytes]:
    """Of SentencePiece: ▁ is a space, <0xNN> a byte. ValueError names a byte token that is none."""
    pieces = []
    for text, kind in zip(texts, types.tolist(), strict=True):
        if kind == TokenType.BYTE:
            match = _BYTE_TOKEN.fullmatch(text)
            if match is None:
                raise ValueError(f"{text!r:.60} is marked a byte token, but is not spelled <0xNN>")
            pieces.append(bytes.fromhex(match[1]))
        elif kind == TokenType.NORMAL:
            pieces.append(plain_bytes(text.replace(SPACE_MARK, " ")))
        else:
            pieces.append(plain_bytes(text))
    return pieces


def plain_bytes(text: str) -> bytes:
    """UTF-8, with bytes that were none in the file (PEP 383 surrogates) as they were."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
