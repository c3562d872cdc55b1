"""Colours of tokens in the terminal, and when there are none."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from lucebox.cli import colours
from lucebox.cli.colours import OriginRuns, painted, wants_colours
from lucebox.core import Origin
from tests.support.scripted_engine import EOS, ByteVocabulary

P, A, C, B = Origin.PLAIN, Origin.ACCEPTED, Origin.CORRECTED, Origin.BONUS


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("mode", "stream", "environ", "expected"),
    [
        ("auto", Terminal(), {}, True),
        ("auto", Terminal(), {"NO_COLOR": "1"}, False),
        ("auto", Terminal(), {"NO_COLOR": ""}, True),  # as no-color.org has it: set and not empty
        ("auto", Terminal(), {"TERM": "dumb"}, False),
        ("auto", io.StringIO(), {}, False),
        ("always", io.StringIO(), {"NO_COLOR": "1"}, True),
        ("never", Terminal(), {}, False),
    ],
)
def test_when_there_are_colours(
    mode: colours.ColourMode, stream: io.StringIO, environ: dict[str, str], expected: bool
) -> None:
    assert wants_colours(mode, stream, environ) is expected


def test_every_origin_has_a_look_of_its_own_and_a_line_in_the_legend() -> None:
    looks = {origin: painted("x", origin) for origin in Origin}
    assert looks[Origin.PLAIN] == "x"
    assert len(set(looks.values())) == len(Origin)
    lines = colours.legend().splitlines()
    assert len(lines) == len(Origin)
    for origin in Origin:
        assert any(painted(origin.value, origin) in line for line in lines)


def test_text_is_cut_where_tokens_are_however_it_lags() -> None:
    runs = OriginRuns(ByteVocabulary())
    runs.push(b"ab", [A, A])
    assert list(runs.take("a")) == [("a", A)]
    runs.push([*b"cd", EOS], [C, P, B])
    assert list(runs.take("bcd")) == [("b", A), ("c", C), ("d", P)]
    assert list(runs.take("more")) == [("more", None)]


def test_a_token_of_many_characters_may_show_in_parts() -> None:
    words = SimpleNamespace(token_bytes=[b"hello", b" you"].__getitem__)
    runs = OriginRuns(words)
    runs.push([0, 1], [A, B])
    assert list(runs.take("hel")) == [("hel", A)]
    assert list(runs.take("lo y")) == [("lo", A), (" y", B)]
    assert list(runs.take("ou")) == [("ou", B)]


def test_a_character_of_several_tokens_is_the_last_ones() -> None:
    runs = OriginRuns(ByteVocabulary())
    runs.push("é!".encode(), [A, C, B])
    assert list(runs.take("é!")) == [("é", C), ("!", B)]


def test_bytes_that_are_no_text_keep_the_colours_in_step() -> None:
    runs = OriginRuns(ByteVocabulary())
    runs.push([0xFF, *b"ok"], [A, C, C])
    assert list(runs.take("\ufffdok")) == [("\ufffd", A), ("o", C), ("k", C)]
