"""The text side of a GGUF file: its tokenizer and chat template, without its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from lucebox.config import EngineConfig
from lucebox.errors import RequestError, TemplateError
from lucebox.gguf import read
from lucebox.grammar import Grammar
from lucebox.text.chat import ChatTemplate
from lucebox.text.grammar import GrammarCompiler, names_token
from lucebox.text.infill import InfillTokens
from lucebox.text.tokenizer import Tokenizer
from lucebox.text.vocabulary import Vocabulary


class GgufTextModel:
    """Implements `service.TextModel`. Safe to use from several threads.

    `end` is the token that the model expects behind every text, as models of embeddings may.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        end: int | None = None,
        infill: InfillTokens | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._end = end
        self._infill = infill
        self._grammars = GrammarCompiler(lambda: tokenizer)

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

    def encode_infill(self, before: str | list[int], behind: str) -> list[int]:
        if self._infill is None:
            raise RequestError(
                "this model has no tokens to fill in the middle with",
                param="suffix",
                remedy="leave it out, or serve a code model that has them",
            )
        vocabulary = self._tokenizer.vocabulary
        first = self.encode_plain(before) if isinstance(before, str) else before
        prompt = self._infill.prompt(first, self.encode_plain(behind))
        return (
            [vocabulary.bos_id, *prompt] if vocabulary.add_bos and vocabulary.bos_id is not None else prompt
        )

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        tokens = self._tokenizer.encode(
            text, parse_special=parse_special, add_bos=None if add_special else False
        )
        if add_special and self._end is not None:
            tokens.append(self._end)
        return tokens

    def apply_template(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        return self._chat_template().text(
            messages, tools=tools, add_generation_prompt=add_generation_prompt, extra=template_kwargs
        )

    @property
    def template_source(self) -> str | None:
        return None if self._template is None else self._template.source

    @property
    def template_variables(self) -> frozenset[str]:
        return frozenset() if self._template is None else self._template.variables

    @cached_property
    def named_tokens(self) -> Mapping[str, int]:
        vocabulary = self._tokenizer.vocabulary
        ids = (token for token in range(vocabulary.n_tokens) if names_token(vocabulary, token))
        return {vocabulary.text_of(token): token for token in ids}

    def encode_chat(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[int]:
        return self._chat_template().encode(messages, self._tokenizer, tools=tools, extra=template_kwargs)

    def check_grammar(self, grammar: Grammar) -> None:
        self._grammars.check(grammar)

    def _chat_template(self) -> ChatTemplate:
        if self._template is None:
            raise TemplateError("this model has no chat template", remedy="use /v1/completions")
        return self._template


def load_text_model(config: EngineConfig) -> GgufTextModel:
    """Reads the target's file. Raises ModelFileError."""
    path = config.target.path
    with read(path) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata, path)
        adds_end = file.metadata.get("tokenizer.ggml.add_eos_token") is True
        end = tokenizer.vocabulary.eos_id if adds_end else None
        infill = InfillTokens.from_metadata(file.metadata, tokenizer.vocabulary, path)
        return GgufTextModel(tokenizer, ChatTemplate.from_metadata(file.metadata, path), end, infill)
