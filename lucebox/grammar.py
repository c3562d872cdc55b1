"""What an answer must look like, as a request says it. Plain data, sent as it is to the engine process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

GrammarKind = Literal["json_schema", "lark", "gbnf", "regex"]


class Grammar(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A formal language that the whole answer is a sentence of.

    `text` is a JSON schema (as JSON), a grammar in llguidance's Lark syntax, one in llama.cpp's GBNF, or a
    regular expression that matches the answer from its first character to its last.
    """

    kind: GrammarKind
    text: str

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | bool) -> Grammar:
        """Answers that are JSON and valid by `schema`."""
        return cls("json_schema", json.dumps(schema))

    @classmethod
    def of_text(cls, text: str) -> Grammar:
        """GBNF if `text` has `::=`, as all rules of GBNF have, and else Lark."""
        return cls("gbnf" if "::=" in text else "lark", text)

    @classmethod
    def json_object(cls) -> Grammar:
        """Answers that are any one JSON object."""
        return cls.json_schema({"type": "object"})
