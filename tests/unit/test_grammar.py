"""Grammars over the tokens of a vocabulary: what they allow, and what is refused, in bounded time."""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from lucebox.errors import RequestError
from lucebox.grammar import Grammar
from lucebox.text import grammar as module
from lucebox.text.grammar import GrammarCompiler, GrammarMatcher, names_token
from lucebox.text.tokenizer import Tokenizer
from tests.support.vocabularies import byte_level_metadata, sentencepiece_metadata

TOOL_TOKENS = ("<tool_call>", "</tool_call>", "  ")
TOKENIZER = Tokenizer.from_metadata(byte_level_metadata(user_defined=TOOL_TOKENS))
SENTENCEPIECE = Tokenizer.from_metadata(
    sentencepiece_metadata({"▁yes": -1.0, "no": -2.0, "▁": -3.0, "a": -4.0}, ["<tool_call>"])
)
COMPILER = GrammarCompiler(lambda: TOKENIZER)
ENDS = sorted(TOKENIZER.vocabulary.eog_ids)
OBJECT = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def allowed(matcher: GrammarMatcher) -> list[int]:
    bits = np.unpackbits(matcher.words().view(np.uint8), bitorder="little")
    return np.flatnonzero(bits).tolist()


def accepts(grammar: Grammar, text: str, tokenizer: Tokenizer = TOKENIZER) -> bool:
    """Whether `text`, with names of control tokens as such, is a sentence of `grammar`."""
    matcher = (COMPILER if tokenizer is TOKENIZER else GrammarCompiler(lambda: tokenizer)).compile(grammar)
    tokens = tokenizer.encode(text, parse_special=True, add_bos=False)
    if matcher.advance(tokens) < len(tokens):
        return False
    return set(allowed(matcher)) >= tokenizer.vocabulary.eog_ids


def lark(text: str) -> Grammar:
    return Grammar("lark", text)


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        (Grammar("regex", "hello|[0-9]+"), ["hello", "123"], ["hell", "12a", "", "hello hello"]),
        (Grammar("regex", "a*"), ["", "aaa"], ["b"]),
        (lark('start: "a" b*\nb: "b" | /[0-9]/'), ["a", "ab1"], ["b", "1"]),
        (Grammar("gbnf", 'root ::= "x" num\nnum ::= [0-9]{2}'), ["x12"], ["x1", "12"]),
        (Grammar("gbnf", 'root ::= ("é" | "the")+ # a comment\n'), ["é", "theé"], ["th"]),
        (Grammar.json_object(), ['{"a": [1, {"b": null}]}', "{}"], ["[1]", '"a"', '{"a": }', "{} {}"]),
        (
            Grammar.json_schema(OBJECT),
            ['{"name": "é\\n", "age": 3}', '{"name":"","age":-12}', '{\n    "name": "a",\n    "age": 1\n}'],
            ['{"name": "a"}', '{"name": "a", "age": 1.5}', '{"name": "a", "age": 1, "b": 2}'],
        ),
        (Grammar.json_schema(True), ["1", "null", '{"a": 1}'], ["nul"]),
        (Grammar.json_schema({"enum": ["red", 1]}), ['"red"', "1"], ['"blue"', "2"]),
    ],
)
def test_sentences(grammar: Grammar, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not accepts(grammar, text)] == []
    assert [text for text in bad if accepts(grammar, text)] == []


def test_white_space_in_json_is_bounded() -> None:
    assert accepts(Grammar.json_object(), '{\n  "a": 1\n}')
    assert not accepts(Grammar.json_object(), '{   "a": 1}')
    assert not accepts(Grammar.json_object(), '{\n\n\n"a": 1}')
    assert not accepts(Grammar.json_object(), "\n{}")


def test_every_end_of_generation_is_allowed_where_the_grammar_may_end_and_nowhere_else() -> None:
    assert len(ENDS) > 1
    matcher = COMPILER.compile(Grammar("regex", "aa?"))
    (a,) = TOKENIZER.encode_piece("a")
    assert not set(ENDS) & set(allowed(matcher))
    assert matcher.advance([a]) == 1
    assert set(allowed(matcher)) == {a, *ENDS}
    assert matcher.advance([a]) == 1
    assert allowed(matcher) == ENDS


def test_tokens_that_are_no_text_are_never_allowed_as_such() -> None:
    matcher = COMPILER.compile(lark("start: /(?s:.*)/"))
    names = {TOKENIZER.vocabulary.bytes_of(token) for token in allowed(matcher)}
    vocabulary = TOKENIZER.vocabulary
    assert names >= {b"a", b"\n", b"  ", "é".encode(), *(vocabulary.bytes_of(end) for end in ENDS)}
    assert not names & {b"<|im_start|>", b"<tool_call>", b"</tool_call>"}


def test_tokens_in_angle_brackets_are_called_by_name_or_id() -> None:
    vocabulary = TOKENIZER.vocabulary
    (call,) = TOKENIZER.encode("<tool_call>", parse_special=False, add_bos=False)
    assert names_token(vocabulary, call)
    assert not names_token(vocabulary, call + 2)  # two blanks
    for grammar in (
        lark('start: <tool_call> "a" </tool_call>'),
        lark(f'start: <[{call}]> "a" <[{call + 1}]>'),
    ):
        assert accepts(grammar, "<tool_call>a</tool_call>")
        assert not accepts(grammar, "a")
        assert COMPILER.compile(grammar).advance(TOKENIZER.encode_piece("<tool_call>a")) == 0


def test_a_name_in_quotes_is_spelt_with_ordinary_tokens() -> None:
    matcher = COMPILER.compile(lark('start: "<tool_call>a"'))
    tokens = TOKENIZER.encode_piece("<tool_call>a")
    for token in tokens:
        assert token in allowed(matcher)
        assert matcher.advance([token]) == 1
    assert allowed(matcher) == ENDS


def test_schemas_stand_inside_of_lark_grammars() -> None:
    """As calls of tools do."""
    schema = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    other = json.dumps({"const": "hello"})
    grammar = lark(
        f'start: <tool_call> "\\n" (f | g) "\\n" </tool_call>\nf: "f" %json {schema}\ng: "g" %json {other}'
    )
    assert accepts(grammar, '<tool_call>\nf{"n": 12}\n</tool_call>')
    assert accepts(grammar, '<tool_call>\ng"hello"\n</tool_call>')
    assert not accepts(grammar, '<tool_call>\ng{"n": 12}\n</tool_call>')


def test_where_the_text_is_given_its_usual_tokens_are_the_only_ones() -> None:
    matcher = COMPILER.compile(lark('start: "hello" | "hellish"'))
    (hello,) = TOKENIZER.encode_piece("hello")
    assert hello in allowed(matcher)
    matcher = COMPILER.compile(lark('start: "hello the"'))
    assert allowed(matcher) == [hello]


def test_rolling_back() -> None:
    matcher = COMPILER.compile(Grammar.json_schema(OBJECT))
    tokens = TOKENIZER.encode_piece('{"name": "hello", "age": 12}')
    masks = []
    for token in tokens:
        masks.append(allowed(matcher))
        assert matcher.advance([token]) == 1
    assert matcher.advance(tokens) == 0  # nothing happened
    for mask in reversed(masks):
        matcher.roll_back(1)
        assert allowed(matcher) == mask
    assert matcher.advance(tokens) == len(tokens)


def test_sentencepiece() -> None:
    assert accepts(Grammar("regex", " yes|no"), " yes", SENTENCEPIECE) is False  # a blank is put in front
    compiler = GrammarCompiler(lambda: SENTENCEPIECE)
    vocabulary = SENTENCEPIECE.vocabulary
    matcher = compiler.compile(Grammar("regex", " yes|no|é"))
    texts = {vocabulary.bytes_of(token) for token in allowed(matcher)}
    assert texts == {b" ", b" yes", b"no", b"n", "é".encode()[:1]}
    assert set(allowed(compiler.compile(lark("start: <tool_call>")))) == {len(vocabulary.texts) - 1}


REFUSED: dict[str, tuple[Grammar, str]] = {
    "regex": (Grammar("regex", "("), "unclosed group"),
    "lark": (lark("start: ?"), "1("),
    "unknown rule": (lark('start: "a" FOO'), "unknown name"),
    "unknown token": (lark("start: <no_such_token>"), "unknown special token"),
    "gbnf": (Grammar("gbnf", "root ::= foo"), "foo"),
    "gbnf without root": (Grammar("gbnf", 'a ::= "b"'), "root"),
    "no json": (Grammar("json_schema", "{"), "line 1 column 2"),
    "no schema": (Grammar("json_schema", "[]"), "object or a boolean"),
    "wrong type": (Grammar.json_schema({"type": "foo"}), "foo"),
    "unknown keyword": (Grammar.json_schema({"type": "array", "uniqueItems": True}), "uniqueItems"),
    "nothing is valid": (Grammar.json_schema(False), "no text"),
    "nothing is a sentence": (lark("start: start"), "no text"),
    "contradiction": (lark("start: /a+/ & /b+/"), ""),
    "another machine": (Grammar.json_schema({"$ref": "http://127.0.0.1:9/schema"}), "not fetch"),
    "a file": (Grammar.json_schema({"$ref": "file:///etc/passwd"}), "not fetch"),
    "itself": (Grammar.json_schema({"$ref": "#"}), "no text"),
}


@pytest.mark.parametrize(("grammar", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_used_is_refused_with_the_reason(grammar: Grammar, reason: str) -> None:
    with pytest.raises(RequestError, match=r"The grammar cannot be used: .+") as raised:
        COMPILER.compile(grammar)
    assert raised.value.param == "grammar"
    assert reason in raised.value.message
    assert "<non-verbose/>" not in raised.value.message


def nested(n: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(n):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


HOSTILE = {
    "deep": Grammar("json_schema", '{"type":"array","items":' * 5_000 + "{}" + "}" * 5_000),
    "deeper": Grammar("json_schema", '{"items":' * 40_000 + "{}" + "}" * 40_000),
    "nested": Grammar.json_schema(nested(30)),
    "enum": Grammar.json_schema({"enum": [f"value{i}" for i in range(30_000)]}),
    "properties": Grammar.json_schema({"properties": {f"p{i}": {"type": "string"} for i in range(1_000)}}),
    "lengths": Grammar.json_schema({"type": "string", "minLength": 10_000, "maxLength": 1_000_000}),
    "items": Grammar.json_schema({"type": "array", "items": {}, "minItems": 10_000, "maxItems": 100_000}),
    "choices": Grammar.json_schema({"anyOf": [{"properties": {f"a{i}": {}}} for i in range(2_000)]}),
    "pattern": Grammar.json_schema({"type": "string", "pattern": "^(a|b|ab)*c{1,5000}(x{1,1000}){1,1000}$"}),
    "huge number": Grammar.json_schema({"type": "number", "minimum": 1e308, "maximum": 1.5e308}),
    "patterns": Grammar.json_schema({"allOf": [{"pattern": f".*a.{{{i}}}"} for i in range(1, 20)]}),
    "patterns within": lark(
        "start: %json " + json.dumps({"allOf": [{"pattern": f".*a.{{{i}}}"} for i in range(1, 20)]})
    ),
    "patterns by reference": Grammar.json_schema(
        {
            "$defs": {
                f"d{i}": {"pattern": f".*a.{{{i}}}", "$ref": f"#/$defs/d{i + 1}" if i < 20 else "#/$defs/end"}
                for i in range(1, 21)
            }
            | {"end": {"type": "string"}},
            "$ref": "#/$defs/d1",
        }
    ),
    "patterns by name": Grammar.json_schema(
        {
            "$id": "http://a/b",
            "$defs": {f"d{i}": {"$id": f"d{i}", "pattern": f".*a.{{{i}}}"} for i in range(1, 20)},
            "allOf": [{"$ref": f"d{i}"} for i in range(1, 20)],
        }
    ),
    "references": Grammar.json_schema(
        {"$defs": {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(9000)}}
    ),
    "repetition": Grammar("regex", "(a{1,1000}){1,1000}"),
    "backtracking": Grammar("regex", "(.*a.*b.*){200}"),
    "brackets": Grammar("regex", "(" * 20_000 + "a" + ")" * 20_000),
    "case": Grammar("regex", "(?i)" + "(é|ü|ß|.)" * 2_000),
    "lark brackets": lark("start: " + "(" * 20_000 + '"a"' + ")" * 20_000),
    "gbnf brackets": Grammar("gbnf", "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000),
    "ambiguous": lark('start: a*\na: a a | "x" | "xx" |'),
    "long": Grammar("regex", "a" * (module.MAX_GRAMMAR_CHARS + 1)),
    "surrogates": Grammar("regex", "\ud800"),
    "nul": Grammar("lark", 'start: "\0"'),
}


@pytest.mark.parametrize("grammar", HOSTILE.values(), ids=HOSTILE)
def test_hostile_grammars_take_bounded_time(grammar: Grammar) -> None:
    started_s = time.process_time()
    with suppress(RequestError):
        matcher = COMPILER.compile(grammar)
        for _ in range(20):
            tokens = [token for token in allowed(matcher) if token not in ENDS]
            assert matcher.advance(tokens[:1]) == len(tokens[:1])
    assert time.process_time() - started_s < 4.0


def test_long_reasons_are_cut() -> None:
    with pytest.raises(RequestError) as raised:
        COMPILER.compile(HOSTILE["brackets"])
    assert len(raised.value.message) < 600


def test_compiled_grammars_are_kept_and_reasons_too() -> None:
    compiler = GrammarCompiler(lambda: TOKENIZER)
    good, bad = Grammar("regex", "a+"), Grammar("regex", "(")
    assert compiler.find(good) is None
    first = compiler.compile(good)
    first.advance(TOKENIZER.encode_piece("a"))
    for known in (compiler.find(good), compiler.compile(good)):
        assert known is not None
        assert not set(ENDS) & set(allowed(known)), "copies do not share where they are"
    with pytest.raises(RequestError):
        compiler.compile(bad)
    with pytest.raises(RequestError):
        compiler.find(bad)
    for i in range(module.MAX_CACHED_GRAMMARS):
        compiler.compile(Grammar("regex", f"a{{{i + 2}}}"))
    assert compiler.find(good) is None


def test_threads_share_a_compiler() -> None:
    compiler = GrammarCompiler(lambda: TOKENIZER)
    found: list[list[int]] = []

    def work(i: int) -> None:
        matcher = compiler.compile(Grammar("regex", f"a{{{i % 3 + 1}}}b"))
        matcher.advance(TOKENIZER.encode_piece("a"))
        found.append(allowed(matcher))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 12
    assert len({tuple(mask) for mask in found}) == 2


def test_a_vocabulary_without_an_end_takes_no_grammars() -> None:
    metadata = byte_level_metadata(eos_token_id=None)
    tokens = [token.replace("<|", "<¦") for token in metadata["tokenizer.ggml.tokens"]]
    metadata["tokenizer.ggml.tokens"] = tokens
    tokenizer = Tokenizer.from_metadata(metadata)
    assert not tokenizer.vocabulary.eog_ids
    with pytest.raises(RequestError, match="no token that ends an answer"):
        GrammarCompiler(lambda: tokenizer).compile(Grammar("regex", "a"))
