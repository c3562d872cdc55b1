from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucebox.errors import RequestError
from lucebox.text.stop import StopMatch, StopMatcher

TEXTS = st.binary(max_size=40).map(lambda data: bytes(b"abc"[byte % 3] for byte in data))
STOPS = st.lists(TEXTS.filter(bool).map(lambda stop: stop[:6]), min_size=1, max_size=5)


def first_match(text: bytes, stops: list[bytes]) -> StopMatch | None:
    """The stop string complete first, the longest of those that end there, by plain search."""
    for end in range(len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            longest = max(ending, key=len)
            return StopMatch(longest, end - len(longest))
    return None


def n_settled(text: bytes, stops: list[bytes]) -> int:
    """How many bytes come before the first that a stop string could begin with, by plain search."""
    return next(
        start for start in range(len(text) + 1) if any(stop.startswith(text[start:]) for stop in stops)
    )


@settings(deadline=None)
@given(TEXTS, STOPS, st.data())
def test_equals_plain_search_however_the_bytes_are_dealt_out(
    text: bytes, stops: list[bytes], data: st.DataObject
) -> None:
    matcher = StopMatcher(stops)
    done, match = 0, None
    while match is None and done < len(text):
        n = data.draw(st.integers(1, len(text) - done))
        match = matcher.push(text[done : done + n])
        done += n
    assert match == matcher.match == first_match(text, stops)


@settings(deadline=None)
@given(TEXTS, STOPS)
def test_what_may_be_shown_is_what_no_stop_string_can_take_back(text: bytes, stops: list[bytes]) -> None:
    matcher, seen = StopMatcher(stops), b""
    for byte in text:
        seen += bytes([byte])
        match = matcher.push(bytes([byte]))
        if match is not None:
            assert matcher.n_safe_bytes == match.start
            break
        assert matcher.n_safe_bytes == n_settled(seen, stops)
        assert matcher.n_bytes == len(seen)


@settings(deadline=None)
@given(TEXTS, STOPS)
def test_what_was_safe_stays_safe(text: bytes, stops: list[bytes]) -> None:
    matcher, safe = StopMatcher(stops), 0
    for byte in text:
        match = matcher.push(bytes([byte]))
        assert matcher.n_safe_bytes >= safe
        safe = matcher.n_safe_bytes
        if match is not None:
            break


def test_a_stop_string_straddles_tokens() -> None:
    matcher = StopMatcher(["\n\nUser:"])
    assert matcher.push(b"Yes.\n") is None
    assert matcher.n_safe_bytes == 4
    assert matcher.push(b"\nUs") is None
    assert matcher.n_safe_bytes == 4
    assert matcher.push(b"er: and more") == StopMatch(b"\n\nUser:", 4)
    assert matcher.n_safe_bytes == 4


def test_a_false_beginning_is_let_go() -> None:
    matcher = StopMatcher(["abac"])
    matcher.push(b"aba")
    assert matcher.n_safe_bytes == 0
    matcher.push(b"b")
    assert matcher.n_safe_bytes == 2
    assert matcher.push(b"ac") == StopMatch(b"abac", 2)


def test_the_outcome_does_not_depend_on_how_many_tokens_come_at_once() -> None:
    slow, fast = StopMatcher(["abcd", "bc"]), StopMatcher(["abcd", "bc"])
    slow_match = next(match for match in map(slow.push, (b"a", b"b", b"c", b"d")) if match)
    assert slow_match == fast.push(b"abcd") == StopMatch(b"bc", 1)


def test_of_strings_that_end_together_the_longest_counts() -> None:
    assert StopMatcher(["c", "bc", "abc"]).push(b"xabc") == StopMatch(b"abc", 1)


def test_stop_strings_are_bytes_of_utf8() -> None:
    matcher = StopMatcher(["é"])
    assert matcher.push(b"\xc3") is None
    assert matcher.push(b"\xa9") == StopMatch(b"\xc3\xa9", 0)


def test_without_stop_strings_all_is_safe() -> None:
    matcher = StopMatcher()
    assert matcher.push(b"anything") is None
    assert matcher.n_safe_bytes == 8


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(RequestError) as caught:
        StopMatcher(["ok", ""])
    assert caught.value.param == "stop"


def test_nothing_follows_a_match() -> None:
    matcher = StopMatcher(["x"])
    matcher.push(b"x")
    with pytest.raises(AssertionError):
        matcher.push(b"y")
