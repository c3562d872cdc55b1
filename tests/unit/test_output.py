"""From tokens to shown text: what is held back, for how long, and where a stop string cuts."""

from __future__ import annotations

import codecs
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucebox.text.output import TextOutput
from lucebox.text.stop import StopMatcher
from lucebox.text.tokenizer import Tokenizer
from tests.support.vocabularies import byte_level_metadata

TOKENIZER = Tokenizer.from_metadata(byte_level_metadata())
VOCABULARY = TOKENIZER.vocabulary


class Bytes:
    """Token i stands for pieces[i]."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces

    def token_bytes(self, token: int) -> bytes:
        return self.pieces[token]


def test_incomplete_characters_wait_for_their_rest() -> None:
    smile = "🙂".encode()
    output = TextOutput(Bytes(b"a", smile[:1], smile[1:3], smile[3:] + b"b"))
    assert [output.push([i]) for i in range(4)] == ["a", "", "", "🙂b"]
    assert output.finish() == ""


@pytest.mark.parametrize("keep_bytes", [None, 2])
def test_a_character_that_never_completes_does_not_show(keep_bytes: int | None) -> None:
    output = TextOutput(Bytes(b"a" + "é".encode()[:1]))
    assert output.push([0]) == "a"
    assert output.finish(keep_bytes) == ""
    assert output.n_shown_bytes == 2


@pytest.mark.parametrize(
    ("data", "pieces"),
    [
        (b"a\xffb", ["a", "�", "b", ""]),
        (b"\xf0\x9f\x91", ["", "", "", ""]),
        (b"\xf0\x9f\x91\xff", ["", "", "", "\ufffd\ufffd", ""]),
        (b"\xc3a", ["", "�a", ""]),
        (b"\xed\xa0\x80", ["", "", "���", ""]),  # a surrogate is no character
    ],
)
def test_only_bytes_that_are_no_utf8_are_replaced(data: bytes, pieces: list[str]) -> None:
    output = TextOutput(Bytes(*(bytes([byte]) for byte in data)))
    assert [*(output.push([i]) for i in range(len(data))), output.finish()] == pieces


def streamed(ids: list[int]) -> list[str]:
    output = TextOutput(VOCABULARY)
    return [*(output.push([token]) for token in ids), output.finish()]


@settings(deadline=None)
@given(st.text())
def test_any_text_comes_through(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert "".join(streamed(TOKENIZER.encode(text, parse_special=False))) == text


@settings(deadline=None)
@given(st.lists(st.integers(0, VOCABULARY.n_tokens - 1)))
def test_pieces_are_what_decoding_all_at_once_gives(ids: list[int]) -> None:
    *pieces, end = streamed(ids)
    spelling = b"".join(map(VOCABULARY.token_bytes, ids))
    assert "".join(pieces) == codecs.getincrementaldecoder("utf-8")("replace").decode(spelling)
    assert end == "", "a whole character was held back to the end"


def test_control_tokens_are_left_out() -> None:
    assert "".join(streamed(TOKENIZER.encode("a<|im_end|>b", parse_special=True))) == "ab"


def test_what_could_begin_a_stop_string_waits() -> None:
    output = TextOutput(Bytes(b"one", b" st", b"o", b"ck"), ["stop", "END"])
    assert output.push([0]) == "one"
    assert output.push([1]) == " "
    assert output.push([2]) == ""
    assert output.push([3]) == "stock"


def test_a_stop_string_and_what_follows_is_cut() -> None:
    output = TextOutput(Bytes(b"one st", b"op two"), ["stop"])
    assert output.push([0]) == "one "
    assert output.push([1]) == ""
    assert output.finish(keep_bytes=4) == ""


def test_of_several_stop_strings_the_first_complete_one_cuts() -> None:
    output = TextOutput(Bytes(b"xxabcdyy"), ["bcd", "c", "dy"])
    assert output.push([0]) == "xxab"
    assert output.finish(keep_bytes=4) == ""


def test_what_was_held_in_vain_is_shown_at_the_end() -> None:
    output = TextOutput(Bytes(b"a st"), ["stop"])
    assert output.push([0]) == "a "
    assert output.finish() == "st"


def test_a_stop_string_that_overlaps_itself() -> None:
    output = TextOutput(Bytes(b"a"), ["aab"])
    assert "".join(output.push([0]) for _ in range(5)) == "aaa"
    assert output.finish() == "aa"


@pytest.mark.parametrize("seed", range(50))
def test_pieces_add_up_to_the_text_in_front_of_a_stop_string(seed: int) -> None:
    rng = random.Random(seed)
    alphabet = "abé🙂"
    text = "".join(rng.choice(alphabet) for _ in range(40))
    stops = ["".join(rng.choice(alphabet) for _ in range(rng.randint(1, 4))) for _ in range(2)]
    data = text.encode()
    cuts = sorted(rng.sample(range(len(data)), 15))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    output, engine = TextOutput(Bytes(*pieces), stops), StopMatcher(stops)
    shown = ""
    for i, piece in enumerate(pieces):
        shown += output.push([i])
        match = engine.push(piece)
        if match is not None:
            shown += output.finish(match.start)
            assert shown.encode() == data[: match.start]
            return
    assert shown + output.finish() == text
    assert not any(stop in text for stop in stops)


def test_markers_stand_where_they_came_and_count_for_nothing() -> None:
    smile = "🙂".encode()
    vocabulary = Bytes(b"a", smile[:2], smile[2:], b"ST", b"OP", b"")
    marker = 5
    output = TextOutput(vocabulary, ["STOP"], {marker: "<m>"})
    assert output.push([0, marker, 0]) == "a<m>a"
    assert output.push([1, marker]) == "\ufffd<m>", "a marker breaks a character off"
    assert output.n_shown_bytes == 4
    assert output.push([marker, 3, marker]) == "<m>", "the last one may be cut off by the stop string"
    assert output.push([4]) == ""
    assert output.finish(keep_bytes=4) == ""
    held = TextOutput(vocabulary, ["STOP"], {marker: "<m>"})
    assert held.push([3, marker]) == ""
    assert held.push([0]) == "ST<m>a"
