"""From tokens to shown text: what is held back, for how long, and where a stop string cuts."""

from __future__ import annotations

import random

import pytest

from lucebox.text.output import TextOutput


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


def test_what_never_completes_shows_as_a_replacement() -> None:
    output = TextOutput(Bytes("é".encode()[:1]))
    assert output.push([0]) == ""
    assert output.finish() == "\ufffd"


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


def test_the_earliest_of_several_stop_strings_is_held() -> None:
    output = TextOutput(Bytes(b"xxabcdyy"), ["cd", "bcd"])
    assert output.push([0]) == "xxa"
    assert output.finish(keep_bytes=3) == ""


def test_what_was_held_in_vain_is_shown_at_the_end() -> None:
    output = TextOutput(Bytes(b"a st"), ["stop"])
    assert output.push([0]) == "a "
    assert output.finish() == "st"


def test_a_stop_string_that_overlaps_itself() -> None:
    output = TextOutput(Bytes(b"a"), ["aab"])
    assert "".join(output.push([0]) for _ in range(5)) == "aaa"
    assert output.finish() == "aa"


@pytest.mark.parametrize("seed", range(50))
def test_pieces_add_up_to_the_text_up_to_the_first_stop_string(seed: int) -> None:
    rng = random.Random(seed)
    alphabet = "abé🙂"
    text = "".join(rng.choice(alphabet) for _ in range(40))
    stops = ["".join(rng.choice(alphabet) for _ in range(rng.randint(1, 4))) for _ in range(2)]
    data = text.encode()
    cuts = sorted(rng.sample(range(len(data)), 15))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    output = TextOutput(Bytes(*pieces), stops)
    starts = [data.find(stop.encode()) for stop in stops if stop in text]
    shown = ""
    for i in range(len(pieces)):
        shown += output.push([i])
        seen = b"".join(pieces[: i + 1])
        assert not any(stop in shown for stop in stops)
        if any(stop.encode() in seen for stop in stops):
            keep = min(seen.find(stop.encode()) for stop in stops if stop.encode() in seen)
            shown += output.finish(keep)
            assert shown.encode() == data[:keep]
            return
    assert not starts
    assert shown + output.finish() == text
