from __future__ import annotations

import random
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lucebox.errors import ModelFileError, RequestError
from lucebox.text.pretokenizers import PRETOKENIZERS
from lucebox.text.tokenizer import MAX_TEXT_CHARS, Tokenizer
from tests.support.vocabularies import byte_level_metadata, sentencepiece_metadata

NAMES = [name for pretokenizer in PRETOKENIZERS for name in pretokenizer.names]
PIECES = {"▁": -9.0, "a": -8.0, "b": -8.0, "ab": -1.0, "▁ab": -2.0, "ba": -3.0, "▁▁": -5.0, "▁▁▁": -5.0}


def byte_level(pre: str = "qwen2", **changed: Any) -> Tokenizer:
    return Tokenizer.from_metadata(byte_level_metadata(pre, **changed), "model.gguf")


def sentencepiece(pieces: dict[str, float], **changed: Any) -> Tokenizer:
    return Tokenizer.from_metadata(sentencepiece_metadata(pieces, **changed), "model.gguf")


def spelled(tokenizer: Tokenizer, text: str, *, parse_special: bool = False) -> list[str]:
    ids = tokenizer.encode(text, parse_special=parse_special, add_bos=False)
    return [tokenizer.vocabulary.bytes_of(token).decode("utf-8", "backslashreplace") for token in ids]


BYTE_LEVEL = byte_level(user_defined=["<tool>"])
SPACED = sentencepiece(PIECES, add_space_prefix=False)


def test_merges_apply_in_their_order() -> None:
    assert spelled(BYTE_LEVEL, "hello the é") == ["hello", " the", " ", "é"]


@pytest.mark.parametrize("name", NAMES)
def test_every_pretokenizer_gives_back_what_it_was_given(name: str) -> None:
    tokenizer = byte_level(name)
    for text in ("  IT'S 12345\r\n\n\tx ", "naïve — 日本語 👩‍👧 \u0301", "\u0000\u0001", "", " " * 50):
        assert tokenizer.decode(tokenizer.encode(text, parse_special=False, add_bos=False)) == text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt-2", ["12345", " 678", "x"]),
        ("llama-bpe", ["123", "4", "5", " ", "678", "x"]),
        ("qwen2", ["1", "2", "3", "4", "5", " ", "6", "7", "8", "x"]),
        ("smollm", ["1", "2", "3", "4", "5", " ", "6", "7", "8", "x"]),
        ("tekken", ["1", "2", "3", "4", "5", " ", "6", "7", "8", "x"]),
    ],
)
def test_numbers_are_cut_as_each_family_does(name: str, words: list[str]) -> None:
    numbers = ["12", "123", "1234", "12345", "67", "678", "Ġ678"]
    merges = ["1 2", "12 3", "123 4", "1234 5", "6 7", "67 8", "Ġ 678"]
    metadata = byte_level_metadata(name)
    metadata["tokenizer.ggml.tokens"] += numbers
    metadata["tokenizer.ggml.token_type"] += [1] * len(numbers)
    metadata["tokenizer.ggml.merges"] = [*metadata["tokenizer.ggml.merges"], *merges]
    assert spelled(Tokenizer.from_metadata(metadata), "12345 678x") == words


def test_llama3_takes_a_word_that_is_a_token_whole() -> None:
    extra = {"tokens": [*byte_level_metadata()["tokenizer.ggml.tokens"], "zq"], "token_type": [1] * 273}
    assert spelled(byte_level("llama-bpe", **extra), "zq") == ["zq"]
    assert spelled(byte_level("qwen2", **extra), "zq") == ["z", "q"]


def test_control_tokens_are_parsed_only_when_asked_for() -> None:
    text = "<|im_start|>hello<|im_end|>"
    assert spelled(BYTE_LEVEL, text, parse_special=True) == ["<|im_start|>", "hello", "<|im_end|>"]
    as_text = BYTE_LEVEL.encode(text, parse_special=False)
    assert not any(map(BYTE_LEVEL.vocabulary.is_special, as_text))
    assert BYTE_LEVEL.decode(as_text) == text


def test_user_defined_tokens_are_always_parsed() -> None:
    for parse_special in (False, True):
        assert "<tool>" in spelled(BYTE_LEVEL, "the<tool>the", parse_special=parse_special)


def test_of_added_tokens_that_begin_together_the_longest_counts() -> None:
    tokenizer = byte_level(user_defined=["<x", "<xy>", "y>z"])
    assert spelled(tokenizer, "<xy>z<xz") == ["<xy>", "z", "<x", "z"]


def test_bos_is_added_as_the_file_says_or_as_asked() -> None:
    bos = BYTE_LEVEL.vocabulary.bos_id
    assert bos not in BYTE_LEVEL.encode("a", parse_special=True)
    assert BYTE_LEVEL.encode("a", parse_special=True, add_bos=True)[0] == bos
    assert SPACED.encode("a", parse_special=True)[0] == SPACED.vocabulary.bos_id
    assert SPACED.encode("", parse_special=True) == [SPACED.vocabulary.bos_id]


@settings(deadline=None)
@given(st.text(st.characters(), max_size=60), st.booleans())
@example("a▁b ▁", False)
def test_any_string_is_encoded_surrogates_and_nul_included(text: str, parse_special: bool) -> None:
    scalars = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    # SentencePiece writes blanks as "▁", and reads one of the text as a blank.
    for tokenizer, expected in ((BYTE_LEVEL, scalars), (SPACED, scalars.replace("▁", " "))):
        ids = tokenizer.encode(text, parse_special=parse_special, add_bos=False)
        assert tokenizer.decode(ids, skip_special=False) == expected


@pytest.mark.parametrize("text", ["a" * 300_000, " " * 300_000 + "x", "\n" * 300_000, "1 " * 150_000])
def test_long_runs_take_no_more_than_their_length(text: str) -> None:
    start_s = time.monotonic()
    assert BYTE_LEVEL.decode(BYTE_LEVEL.encode(text, parse_special=True)) == text
    assert SPACED.decode(SPACED.encode(text, parse_special=True)) == text
    assert time.monotonic() - start_s < 30.0  # quadratic time would be hours


def test_a_text_past_any_context_is_refused() -> None:
    with pytest.raises(RequestError) as caught:
        BYTE_LEVEL.encode(" " * (MAX_TEXT_CHARS + 1), parse_special=True)
    assert caught.value.code == "context_length_exceeded"


@pytest.mark.parametrize("merge", ["he llo", "h zz", "he", "he  llo", ""])
def test_a_merge_of_unknown_tokens_is_named(merge: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        byte_level(merges=["h e", merge])
    assert caught.value.field == "tokenizer.ggml.merges"
    assert "entry 1" in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"scores": None}, "scores"),
        ({"scores": [0.0]}, "scores"),
        ({"scores": [float("nan")] * (259 + len(PIECES))}, "scores"),
        ({"add_space_prefix": "yes"}, "add_space_prefix"),
    ],
)
def test_damaged_sentencepiece_fields_are_named(changed: dict[str, Any], field: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        sentencepiece(PIECES, **changed)
    assert caught.value.field == f"tokenizer.ggml.{field}"


def test_a_vocabulary_that_cannot_spell_a_byte_is_refused() -> None:
    kinds = [3, 3, 3, *[6] * 255, 1, *[1] * len(PIECES)]
    with pytest.raises(ModelFileError, match="byte 255"):
        sentencepiece(PIECES, token_type=kinds)


def merged(text: str, scores: dict[str, float]) -> list[str]:
    """SentencePiece's rule, step by step: the best score first, of equal ones the leftmost."""
    symbols = list(text)
    while True:
        pairs = [(-scores[a + b], i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in scores]
        if not pairs:
            return symbols
        i = min(pairs)[1]
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]


@settings(deadline=None)
@given(
    st.text("ab ", max_size=30),
    st.dictionaries(st.text("ab▁", min_size=2, max_size=5), st.sampled_from([-1.0, -2.0, -3.0]), max_size=12),
)
def test_sentencepiece_merges_by_score_and_from_the_left(text: str, scores: dict[str, float]) -> None:
    scores = {"a": -9.0, "b": -9.0, "▁": -9.0, **scores}
    tokenizer = sentencepiece(scores, add_space_prefix=False)
    expected = [symbol.replace("▁", " ") for symbol in merged(text.replace(" ", "▁"), scores)]
    assert spelled(tokenizer, text) == expected


def test_equal_scores_merge_from_the_left() -> None:
    runs = {"▁" * n: -1e9 for n in range(1, 5)}
    assert spelled(sentencepiece(runs, add_space_prefix=False), " " * 6) == [" " * 4, " " * 2]


def test_the_space_prefix_comes_with_every_text_behind_a_special_token() -> None:
    prefixed = sentencepiece(PIECES)
    assert spelled(prefixed, "ab</s>ab", parse_special=True) == [" ab", "</s>", " ab"]
    assert spelled(SPACED, "ab</s>ab", parse_special=True) == ["ab", "</s>", "ab"]
    assert spelled(prefixed, "") == []


def test_characters_that_are_no_token_are_spelled_in_bytes() -> None:
    ids = SPACED.encode("é", parse_special=False, add_bos=False)
    assert [SPACED.vocabulary.bytes_of(token) for token in ids] == [b"\xc3", b"\xa9"]


def test_control_tokens_never_come_of_merges() -> None:
    tokenizer = sentencepiece({"<": -1.0, "/": -1.0, "s": -1.0, ">": -1.0, "</": -1.0, "s>": -1.0})
    assert spelled(tokenizer, "</s>")[-2:] == ["</", "s>"]


def test_words_merge_the_same_alone_and_together() -> None:
    """A token with a space inside makes whole texts merge at once; without, words do, one by one."""
    rng = random.Random(5)
    inside = sentencepiece({**PIECES, "b▁a": -100.0, "b▁": -100.0}, add_space_prefix=False)
    for _ in range(200):
        text = "".join(rng.choices("ab ", k=rng.randint(0, 80)))
        scores = {**PIECES, "b▁a": -100.0, "b▁": -100.0}
        assert spelled(inside, text) == [s.replace("▁", " ") for s in merged(text.replace(" ", "▁"), scores)]
        assert spelled(SPACED, text) == [s.replace("▁", " ") for s in merged(text.replace(" ", "▁"), PIECES)]
