"""Between two vocabularies: common ids, and texts of one in the ids of the other."""

from __future__ import annotations

import random

import pytest
from gguf import TokenType

from lucebox.drafters.slem import whole_characters
from lucebox.drafters.translation import BytesEncoder, Retokeniser, common_ids, inverse
from lucebox.text.tokenizer import Tokenizer
from lucebox.text.vocabulary import Vocabulary
from tests.support.vocabularies import byte_level_metadata, sentencepiece_metadata

TEXT = "hello the hell in a café 🤖\n\n    def on(re):  # ll\nin the air, 東京 says hello; " * 8


def tokenizer(**changed: object) -> Tokenizer:
    return Tokenizer.from_metadata(byte_level_metadata(**changed))


def other() -> Tokenizer:
    """SentencePiece, as drafters get it: without a blank before each piece."""
    pieces = {"▁": -9.0, "▁t": -2.0, "he": -1.0, "▁the": -3.0, "ll": -4.0, "in": -5.0, "é": -6.0}
    return Tokenizer.from_metadata(sentencepiece_metadata(pieces, add_space_prefix=False))


def text_of(vocabulary: Vocabulary, ids: list[int]) -> bytes:
    return b"".join(map(vocabulary.token_bytes, ids))


def retokeniser(target: Tokenizer, draft: Tokenizer) -> Retokeniser:
    n_draft, n_target = draft.vocabulary.n_tokens, target.vocabulary.n_tokens
    common = common_ids(draft.vocabulary, target.vocabulary, n_draft, n_target)
    return Retokeniser(target.vocabulary, draft, inverse(common, n_target))


def test_common_ids_have_the_same_bytes() -> None:
    draft, target = other().vocabulary, tokenizer().vocabulary
    common = common_ids(draft, target, draft.n_tokens, target.n_tokens + 7)
    found = {ours: int(theirs) for ours, theirs in enumerate(common) if theirs >= 0}
    assert len(set(found.values())) == len(found)
    texts = {ours for ours in found if not draft.is_special(ours)}
    assert all(draft.bytes_of(ours) == target.bytes_of(found[ours]) for ours in texts)
    assert {draft.bytes_of(ours) for ours in texts} >= {
        b"he",
        b" the",
        b"ll",
        b"in",
        b" t",
        "é".encode(),
        b"A",
    }
    assert found[draft.texts.index("▁")] == target.texts.index("Ġ")
    assert draft.texts.index("<0x20>") not in found  # the blank has an id of its own
    assert draft.eos_id is not None
    assert found[draft.eos_id] == target.eos_id  # an end is an end, whatever its name
    assert draft.texts.index("<unk>") not in found
    back = inverse(common, target.n_tokens + 7)
    assert all(back[theirs] == ours for ours, theirs in found.items())
    assert (back >= 0).sum() == len(found)


def test_control_tokens_are_known_by_name() -> None:
    ours = byte_level_metadata()
    theirs = byte_level_metadata(user_defined=["<|im_start|>"])
    tokens, kinds = theirs["tokenizer.ggml.tokens"], theirs["tokenizer.ggml.token_type"]
    name = tokens.index("<|im_start|>")  # plain text here, and at the end of the table
    tokens[name], kinds[name] = "<|other|>", int(TokenType.CONTROL)
    draft, target = Vocabulary.from_metadata(ours), Vocabulary.from_metadata(theirs)
    common = common_ids(draft, target, draft.n_tokens, target.n_tokens)
    assert common[draft.texts.index("<|im_end|>")] == target.texts.index("<|im_end|>")
    assert common[draft.texts.index("<|im_start|>")] == -1


def test_ids_that_a_model_lacks_are_not_common() -> None:
    vocabulary = tokenizer().vocabulary
    common = common_ids(vocabulary, vocabulary, 100, 50)
    assert common.tolist() == [*range(50), *[-1] * 50]


@pytest.mark.parametrize("encoder", [tokenizer, other])
def test_any_bytes_are_encoded(encoder: object) -> None:
    made = encoder()  # type: ignore[operator]
    encode = BytesEncoder(made).encode
    rng = random.Random(1)
    for _ in range(200):
        raw = bytes(rng.randrange(256) for _ in range(5))
        data = b"".join(rng.choice((b" the", "é".encode(), "🤖".encode()[:2], raw)) for _ in range(6))
        assert text_of(made.vocabulary, encode(data)) == data
    assert encode(b"") == []


def test_bytes_without_a_token_are_left_out() -> None:
    metadata = byte_level_metadata()
    metadata["tokenizer.ggml.tokens"][metadata["tokenizer.ggml.tokens"].index("ð")] = "gone"
    made = Tokenizer.from_metadata(metadata)
    ids = BytesEncoder(made).encode(b"in" + "🤖".encode()[:2])
    assert text_of(made.vocabulary, ids) == b"in" + "🤖".encode()[1:2]


@pytest.mark.parametrize("seed", range(6))
def test_a_text_is_the_same_however_it_grew(seed: int) -> None:
    """Random continuations and roll-backs, in tokens that cut through characters."""
    rng = random.Random(seed)
    target, draft = tokenizer(), other()
    steps, fresh = retokeniser(target, draft), retokeniser(target, draft)
    ids = target.encode(TEXT, parse_special=True)
    start, end = target.vocabulary.texts.index("<|im_start|>"), target.vocabulary.eos_id
    prefix: list[int] = []
    for _ in range(60):
        del prefix[len(prefix) - rng.choice((0, 0, 1, 3, len(prefix) // 2)) :]
        at = rng.randrange(len(ids))
        more = [*ids[at : at + rng.choice((1, 2, 40, 300))], *rng.choice(([], [start], [end]))]
        prefix += [token for token in more if token is not None]
        translated = steps.ids(0, prefix)
        fresh.release(0)
        assert translated == fresh.ids(0, prefix)
        assert steps.n_tokens(0) == len(prefix)
        assert text_of(draft.vocabulary, translated) == text_of(target.vocabulary, prefix)


def test_a_long_text_is_tokenised_as_a_whole_would_be() -> None:
    target, draft = other(), tokenizer()
    prefix = target.encode(TEXT * 5, parse_special=False)
    assert retokeniser(target, draft).ids(0, prefix) == draft.encode(TEXT * 5, parse_special=False)


def test_text_without_blanks_is_cut_between_characters() -> None:
    target, draft = tokenizer(), other()
    text = "東京" * 600
    ids = retokeniser(target, draft).ids(0, target.encode(text, parse_special=False))
    assert text_of(draft.vocabulary, ids).decode() == text


def test_control_tokens_and_the_beginning_of_text() -> None:
    target = tokenizer(add_bos_token=True)
    draft = tokenizer(add_bos_token=True, eos_token_id=None)
    vocabulary = target.vocabulary
    start, bos = vocabulary.texts.index("<|im_start|>"), vocabulary.bos_id
    prefix = target.encode("<|im_start|>in", parse_special=True)
    assert retokeniser(target, draft).ids(0, prefix) == [bos, start, vocabulary.texts.index("in")]
    assert retokeniser(target, tokenizer()).ids(0, prefix) == prefix[1:]
    foreign = other()
    without_name = retokeniser(target, foreign).ids(0, prefix)
    assert text_of(foreign.vocabulary, without_name) == b"in"


def test_nothing_is_never_the_answer() -> None:
    target = tokenizer()
    start = target.vocabulary.texts.index("<|im_start|>")
    draft = Tokenizer.from_metadata(sentencepiece_metadata({"a": 0.0}, add_bos_token=False))
    assert retokeniser(target, draft).ids(0, [start]) == [draft.vocabulary.eos_id]


def test_a_fork_goes_its_own_way() -> None:
    target, draft = other(), tokenizer()
    texts = retokeniser(target, draft)
    prefix = target.encode(TEXT, parse_special=False)
    whole = texts.ids(0, prefix)
    texts.fork(0, 1)
    assert texts.n_tokens(1) == len(prefix)
    texts.ids(1, prefix[:10])
    assert texts.ids(0, prefix) == whole
    texts.release(0)
    assert texts.n_tokens(0) == 0
    assert texts.ids(0, prefix) == whole


@pytest.mark.parametrize("text", ["", "a", "aé", "東", "🤖", "a🤖é"])
@pytest.mark.parametrize("n_more", range(4))
def test_the_beginning_of_a_character_is_cut(text: str, n_more: int) -> None:
    assert whole_characters(text.encode() + "🤖".encode()[:n_more]) == text.encode()
    assert whole_characters(b"\x80\x80\x80\x80") == b"\x80\x80\x80\x80"
