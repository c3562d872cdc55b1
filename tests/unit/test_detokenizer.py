from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucebox.text.detokenizer import Detokenizer
from lucebox.text.tokenizer import Tokenizer
from tests.support.vocabularies import byte_level_metadata

TOKENIZER = Tokenizer.from_metadata(byte_level_metadata())
VOCABULARY = TOKENIZER.vocabulary
IDS = st.lists(st.integers(0, VOCABULARY.n_tokens - 1))


def streamed(ids: list[int], *, skip_special: bool = True) -> list[str]:
    detokenizer = Detokenizer(VOCABULARY, skip_special=skip_special)
    return [*(detokenizer.push(token) for token in ids), detokenizer.finish()]


def byte_ids(data: bytes) -> list[int]:
    meanings = [VOCABULARY.bytes_of(token) for token in range(256)]
    return [meanings.index(bytes([byte])) for byte in data]


def test_half_a_character_is_held_back() -> None:
    assert streamed(byte_ids("👩é".encode())) == ["", "", "", "👩", "", "é", ""]


@pytest.mark.parametrize(
    ("data", "pieces"),
    [
        (b"a\xffb", ["a", "�", "b", ""]),
        (b"\xf0\x9f\x91", ["", "", "", "�"]),
        (b"\xc3a", ["", "�a", ""]),
        (b"\xed\xa0\x80", ["", "", "���", ""]),  # a surrogate is no character
    ],
)
def test_only_bytes_that_are_no_utf8_are_replaced(data: bytes, pieces: list[str]) -> None:
    assert streamed(byte_ids(data)) == pieces


@settings(deadline=None)
@given(st.text())
def test_any_text_comes_through(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert "".join(streamed(TOKENIZER.encode(text, parse_special=False))) == text


@settings(deadline=None)
@given(IDS, st.booleans())
def test_pieces_are_what_decoding_all_at_once_gives(ids: list[int], skip_special: bool) -> None:
    whole = TOKENIZER.decode(ids, skip_special=skip_special)
    assert "".join(streamed(ids, skip_special=skip_special)) == whole


@settings(deadline=None)
@given(IDS)
def test_no_piece_is_ever_taken_back(ids: list[int]) -> None:
    shown, end = "".join(streamed(ids)[:-1]), streamed(ids)[-1]
    whole = TOKENIZER.decode(ids)
    assert whole.startswith(shown)
    assert end in ("", "�")


def test_special_tokens_are_left_out_or_named() -> None:
    ids = TOKENIZER.encode("a<|im_end|>b", parse_special=True)
    assert "".join(streamed(ids)) == "ab"
    assert "".join(streamed(ids, skip_special=False)) == "a<|im_end|>b"


def test_after_finish_a_new_text_begins() -> None:
    detokenizer = Detokenizer(VOCABULARY)
    first, second = byte_ids("é".encode())
    detokenizer.push(first)
    assert detokenizer.finish() == "�"
    assert detokenizer.push(second) == "�"
