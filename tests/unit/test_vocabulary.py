from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gguf import TokenType

from lucebox.errors import ModelFileError, UnsupportedModelError
from lucebox.text.vocabulary import Difference, Vocabulary
from tests.support.vocabularies import byte_level_metadata, sentencepiece_metadata


def vocabulary(**changed: Any) -> Vocabulary:
    return Vocabulary.from_metadata(byte_level_metadata(**changed), "model.gguf")


def padded(n: int, **changed: Any) -> Vocabulary:
    metadata = byte_level_metadata(**changed)
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    tokens += [f"[PAD{len(tokens) + i}]" for i in range(n)]
    types += [int(TokenType.UNUSED)] * n
    return Vocabulary.from_metadata(metadata)


def test_byte_level_tokens_are_their_bytes() -> None:
    vocab = vocabulary()
    meanings = {vocab.bytes_of(token) for token in range(vocab.n_tokens)}
    assert {bytes([byte]) for byte in range(256)} <= meanings
    assert {b" the", b"hello", "é".encode(), b"<|im_end|>"} <= meanings


def test_sentencepiece_tokens_are_their_bytes() -> None:
    vocab = Vocabulary.from_metadata(sentencepiece_metadata({"▁the": -1.0, "▁▁": -2.0}, ["▁kept"]))
    meanings = [vocab.bytes_of(token) for token in range(vocab.n_tokens)]
    assert meanings[3:259] == [bytes([byte]) for byte in range(256)]
    assert meanings[259:] == [b" the", b"  ", "▁kept".encode()]


def test_bytes_that_are_no_utf8_in_the_file_stay_as_they_are() -> None:
    spelled = b"\xff\xfe".decode("utf-8", "surrogateescape")
    vocab = Vocabulary.from_metadata(sentencepiece_metadata({"a": 0.0}, [spelled]))
    assert vocab.bytes_of(vocab.n_tokens - 1) == b"\xff\xfe"


def test_added_token_marked_normal_is_plain_text() -> None:
    metadata = byte_level_metadata()
    metadata["tokenizer.ggml.tokens"].append("<a b>")  # a space is no byte letter
    metadata["tokenizer.ggml.token_type"].append(int(TokenType.NORMAL))
    vocab = Vocabulary.from_metadata(metadata)
    assert vocab.bytes_of(vocab.n_tokens - 1) == b"<a b>"
    assert vocab.bytes_of(0) == b"!"


def test_ids_past_the_table_stand_for_nothing() -> None:
    vocab = vocabulary()
    for token in (vocab.n_tokens, vocab.n_tokens + 1000):
        assert vocab.bytes_of(token) == vocab.token_bytes(token) == b""


def test_control_and_unused_tokens_are_not_shown() -> None:
    vocab = padded(2, user_defined=["<tool>"])
    shown = {vocab.texts[token]: vocab.token_bytes(token) for token in range(vocab.n_tokens)}
    assert shown["<|im_end|>"] == shown["[PAD273]"] == b""
    assert shown["<tool>"] == b"<tool>"
    assert vocab.is_special(vocab.texts.index("<|im_end|>"))
    assert not vocab.is_special(vocab.texts.index("<tool>"))


def test_every_end_marker_ends_a_generation() -> None:
    vocab = vocabulary()
    assert {vocab.texts[token] for token in vocab.eog_ids} == {"<|endoftext|>", "<|im_end|>"}
    assert vocab.eos_id in vocab.eog_ids


def test_end_markers_as_plain_tokens_do_not_end_a_generation() -> None:
    metadata = sentencepiece_metadata({"<|end|>": -1.0}, eos_token_id=None, eot_token_id=300)
    metadata["tokenizer.ggml.tokens"] += ["x"] * 60
    metadata["tokenizer.ggml.token_type"] += [1] * 60
    metadata["tokenizer.ggml.scores"] += [0.0] * 60
    vocab = Vocabulary.from_metadata(metadata)
    assert vocab.eog_ids == {2, 300}
    assert vocab.eos_id is None


@pytest.mark.parametrize(
    ("metadata", "add_bos"),
    [
        (byte_level_metadata(), False),
        (byte_level_metadata(add_bos_token=None), False),
        (byte_level_metadata("llama-bpe", add_bos_token=None), True),
        (byte_level_metadata("llama-bpe", add_bos_token=None, bos_token_id=None), False),
        (sentencepiece_metadata({"a": 0.0}), True),
        (sentencepiece_metadata({"a": 0.0}, add_bos_token=False), False),
    ],
)
def test_bos_is_added_as_the_file_or_else_the_family_has_it(metadata: dict[str, Any], add_bos: bool) -> None:
    assert Vocabulary.from_metadata(metadata).add_bos is add_bos


@pytest.mark.parametrize(
    ("changed", "field", "problem"),
    [
        ({"tokens": None}, "tokens", "missing"),
        ({"tokens": []}, "tokens", "empty"),
        ({"tokens": [1, 2]}, "tokens", "not an array of strings"),
        ({"token_type": None}, "token_type", "missing"),
        ({"token_type": [1, 2, 3]}, "token_type", "3 entries for 272 tokens"),
        ({"token_type": [77] * 272}, "token_type", "77 is not a token type"),
        ({"token_type": "normal"}, "token_type", "not an array of numbers"),
        ({"eos_token_id": 272}, "eos_token_id", "272 is not one of the 272"),
        ({"eos_token_id": -1}, "eos_token_id", "-1 is not one"),
        ({"bos_token_id": True}, "bos_token_id", "not a token id"),
        ({"bos_token_id": None, "add_bos_token": True}, "bos_token_id", "missing"),
        ({"add_bos_token": 1}, "add_bos_token", "not true or false"),
        ({"model": None}, "model", "missing"),
        ({"model": 7}, "model", "not a string"),
        ({"pre": None, "add_bos_token": None}, "pre", "missing"),
    ],
)
def test_damaged_fields_are_named(changed: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        Vocabulary.from_metadata(byte_level_metadata(**changed), "model.gguf")
    assert caught.value.field == f"tokenizer.ggml.{field}"
    assert problem in str(caught.value)
    assert caught.value.path == "model.gguf"
    assert caught.value.remedy


@pytest.mark.parametrize(("changed", "field"), [({"model": "bert"}, "model"), ({"pre": "klingon"}, "pre")])
def test_other_tokenizers_are_refused_by_name(changed: dict[str, Any], field: str) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        vocabulary(**changed)
    assert caught.value.field == f"tokenizer.ggml.{field}"
    assert changed[field] in str(caught.value)


def test_misspelled_byte_token_is_refused() -> None:
    metadata = sentencepiece_metadata({"a": 0.0})
    metadata["tokenizer.ggml.tokens"][10] = "<0xZZ>"
    with pytest.raises(ModelFileError, match="<0xZZ>"):
        Vocabulary.from_metadata(metadata)


def test_numpy_arrays_serve_as_well_as_lists() -> None:
    metadata = byte_level_metadata()
    metadata["tokenizer.ggml.token_type"] = np.array(metadata["tokenizer.ggml.token_type"], np.int32)
    metadata["tokenizer.ggml.eos_token_id"] = np.uint32(metadata["tokenizer.ggml.eos_token_id"])
    assert Vocabulary.from_metadata(metadata).digest() == vocabulary().digest()


def test_padding_of_another_size_is_no_difference() -> None:
    plain, more = padded(0), padded(40)
    assert plain.differences(more) == more.differences(plain) == []
    assert plain.digest() == more.digest()


def test_padding_taken_into_use_is_no_difference() -> None:
    old, new = padded(4), padded(3, user_defined=["<new>"])
    assert old.differences(new) == new.differences(old) == []
    assert old.digest() != new.digest()


def test_a_used_id_past_the_end_of_the_other_is_a_difference() -> None:
    plain, more = padded(0), padded(0, user_defined=["<new>"])
    assert plain.differences(more) == [Difference(272, None, b"<new>")]
    assert more.differences(plain) == [Difference(272, b"<new>", None)]


def test_the_first_differences_are_shown() -> None:
    ours, metadata = vocabulary(), byte_level_metadata()
    tokens = metadata["tokenizer.ggml.tokens"]
    tokens[3], tokens[5] = tokens[5], tokens[3]
    theirs = Vocabulary.from_metadata(metadata)
    assert ours.differences(theirs) == [Difference(3, b"$", b"&"), Difference(5, b"&", b"$")]
    assert ours.differences(theirs, limit=1) == [Difference(3, b"$", b"&")]
    assert ours.digest() != theirs.digest()


def test_a_message_of_harmony_ends_no_generation() -> None:
    metadata = byte_level_metadata()
    names = ["<|end|>", "<|return|>", "<|call|>"]
    metadata["tokenizer.ggml.tokens"] += names
    metadata["tokenizer.ggml.token_type"] += [int(TokenType.CONTROL)] * 3
    vocab = Vocabulary.from_metadata(metadata)
    assert {vocab.texts[token] for token in vocab.eog_ids} >= {"<|return|>", "<|call|>"}
    assert names[0] not in {vocab.texts[token] for token in vocab.eog_ids}
    metadata["tokenizer.ggml.tokens"][-1] = "<|other|>"
    vocab = Vocabulary.from_metadata(metadata)
    assert names[0] in {vocab.texts[token] for token in vocab.eog_ids}
