"""The text side of a GGUF file: its tokenizer and chat template, without its weights."""

from __future__ import annotations

from typing import Any

from lucebox.config import EngineConfig
from lucebox.errors import TemplateError
from lucebox.gguf import read
from lucebox.text.chat import ChatTemplate
from lucebox.text.tokenizer import Tokenizer
from lucebox.text.vocabulary import Vocabulary


class GgufTextModel:
    """Implements `service.TextModel`. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        self._tokenizer = tokenizer
        self._template = template

    @property
    def n_vocab(self) -> int:
        return self._tokenizer.vocabulary.n_tokens

    @property
    def vocabulary(self) -> Vocabulary:
        return self._tokenizer.vocabulary

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, parse_special=True)

    def encode_plain(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, parse_special=False, add_bos=False)

    def encode_chat(self, messages: list[dict[str, Any]]) -> list[int]:
        if self._template is None:
            raise TemplateError("this model has no chat template", remedy="use /v1/completions")
        return self._template.encode(messages, self._tokenizer)


def load_text_model(config: EngineConfig) -> GgufTextModel:
    """Reads the target's file. Raises ModelFileError."""
    path = config.target.path
    with read(path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata, path)
        return GgufTextModel(tokenizer, ChatTemplate.from_metadata(file.metadata, path))
