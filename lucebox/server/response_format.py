"""What requests say of the form of an answer, and the grammar that it comes to."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from lucebox.errors import RequestError
from lucebox.grammar import Grammar
from lucebox.server.errors import ApiError

_LENIENT = {"x-guidance": {"lenient": True}}


class TextFormat(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    """Any text."""


class JsonObjectFormat(msgspec.Struct, tag_field="type", tag="json_object", forbid_unknown_fields=True):
    """Any JSON object; with `schema`, which llama.cpp has here, one that is valid by it."""

    schema: dict[str, Any] | None = None


class JsonSchema(msgspec.Struct, forbid_unknown_fields=True):
    """Unless `strict`, keywords that cannot be enforced are ignored. Name and description are for people."""

    name: str
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    description: str | None = None


class JsonSchemaFormat(msgspec.Struct, tag_field="type", tag="json_schema", forbid_unknown_fields=True):
    """JSON that is valid by a schema."""

    json_schema: JsonSchema


ResponseFormat = TextFormat | JsonObjectFormat | JsonSchemaFormat


class GrammarText(msgspec.Struct, forbid_unknown_fields=True):
    """A grammar of which the kind is said."""

    type: Literal["lark", "gbnf", "regex"]
    value: str


def grammar_of(response_format: ResponseFormat | None, grammar: str | GrammarText | None) -> Grammar | None:
    """What the two fields ask for; None: any text. A grammar that is a string is GBNF or Lark, as it looks.
    Raises ApiError if both fields ask for something."""
    asked = _of_format(response_format)
    if grammar is None:
        return asked
    if asked is not None:
        raise ApiError(
            "'grammar' and 'response_format' both say what the answer must look like; send one of them.",
            param="grammar",
            code="invalid_value",
        )
    if isinstance(grammar, GrammarText):
        return Grammar(grammar.type, grammar.value)
    return Grammar.of_text(grammar)


class GrammarCheck(Protocol):
    """What `service.TextModel` has of it."""

    def check_grammar(self, grammar: Grammar) -> None: ...


def check_grammar(grammar: Grammar | None, text: GrammarCheck, field: str) -> None:
    """Raises ApiError naming `field` for a grammar that the engine would not take. Takes a while."""
    try:
        if grammar is not None:
            text.check_grammar(grammar)
    except RequestError as error:
        raise ApiError(str(error), param=field, code="invalid_value") from None


def _of_format(response_format: ResponseFormat | None) -> Grammar | None:
    match response_format:
        case JsonObjectFormat(schema=None):
            return Grammar.json_object()
        case JsonObjectFormat(schema=dict(schema)):
            return Grammar.json_schema(schema)
        case JsonSchemaFormat(json_schema=asked):
            schema = asked.schema or {}
            return Grammar.json_schema(schema if asked.strict else schema | _LENIENT)
    return None
