"""Which models can fill in the middle, and how they are asked to."""

from __future__ import annotations

from typing import Any

import pytest
from gguf import TokenType

from lucebox.errors import ModelFileError
from lucebox.text.infill import InfillTokens
from lucebox.text.vocabulary import Vocabulary

NAMES = ["a", "b", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "c"]


def metadata(names: list[str], kind: TokenType = TokenType.CONTROL, **ids: int) -> dict[str, Any]:
    fields = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": names,
        "token_type": [int(TokenType.NORMAL if len(name) == 1 else kind) for name in names],
        "merges": [],
    }
    return {f"tokenizer.ggml.{name}": value for name, value in (fields | ids).items()}


def tokens_of(names: list[str], kind: TokenType = TokenType.CONTROL, **ids: int) -> InfillTokens | None:
    fields = metadata(names, kind, **ids)
    return InfillTokens.from_metadata(fields, Vocabulary.from_metadata(fields), "model.gguf")


@pytest.mark.parametrize(
    "names",
    [
        NAMES[2:5],
        ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
        ["<fim-prefix>", "<fim-suffix>", "<fim-middle>"],
        ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
    ],
)
@pytest.mark.parametrize("kind", [TokenType.CONTROL, TokenType.USER_DEFINED])
def test_markers_are_known_by_name(names: list[str], kind: TokenType) -> None:
    found = tokens_of(["a", *names, "b"], kind)
    assert found == InfillTokens(1, 2, 3)
    assert found.prompt([7, 8], [9]) == [1, 7, 8, 2, 9, 3]


def test_a_file_may_name_them() -> None:
    ids = {"fim_pre_token_id": 5, "fim_suf_token_id": 1, "fim_mid_token_id": 0}
    assert tokens_of(NAMES, **ids) == InfillTokens(5, 1, 0)
    older = {"prefix_token_id": 0, "suffix_token_id": 1, "middle_token_id": 5}
    assert tokens_of(NAMES, **older) == InfillTokens(0, 1, 5)
    assert tokens_of(NAMES, **older, **ids) == InfillTokens(5, 1, 0)
    assert tokens_of(NAMES, fim_pre_token_id=5) == InfillTokens(2, 3, 4)  # one of three is nothing


def test_a_model_without_all_three_cannot() -> None:
    assert tokens_of(["a", "b"]) is None
    assert tokens_of(NAMES[:4]) is None
    assert tokens_of(NAMES, TokenType.NORMAL) is None  # text like any other


def test_an_id_outside_the_vocabulary_is_an_error() -> None:
    with pytest.raises(ModelFileError, match="fim_suf_token_id"):
        tokens_of(NAMES, fim_pre_token_id=0, fim_suf_token_id=6, fim_mid_token_id=1)
