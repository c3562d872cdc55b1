"""Grammars of every tool format: whatever they allow is parsed into calls that are valid."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from gguf import TokenType
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLTokenizer

from lucebox.grammar import Grammar
from lucebox.server.errors import ApiError
from lucebox.server.tools import tool_of
from lucebox.text.answer_format import AnswerFormat
from lucebox.text.answer_parser import CallArguments, CallStart, Content, Reasoning, Segment, joined
from lucebox.text.grammar import GrammarCompiler
from lucebox.text.reasoning import Marks
from lucebox.text.tokenizer import Tokenizer
from lucebox.text.tool_formats import get, names
from lucebox.text.tools import Tool
from tests.support.vocabularies import byte_level_metadata

THINK = Marks("<think>", "</think>")
VALUE_END = b"\n</parameter>\n"  # nothing comes upon that by chance
BYTES = LLTokenizer("byte")
WEATHER = Tool(
    "get_weather",
    "The weather",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "enum": ["Paris", "Rome"]},
            "days": {"type": "integer"},
            "where": {"$ref": "#/$defs/Place"},
            "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
        },
        "required": ["city", "where"],
        "additionalProperties": False,
        "$defs": {
            "Place": {
                "type": "object",
                "properties": {"n": {"type": "integer", "maximum": 99}},
                "required": ["n"],
                "additionalProperties": False,
            }
        },
    },
)
NOTE = Tool(
    "note",
    "",
    {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    },
)
NOTHING = Tool("nothing", "", {"type": "object", "properties": {}, "additionalProperties": False})
TOOLS = (WEATHER, NOTE, NOTHING)


def form(name: str, marks: Marks | None = None) -> AnswerFormat:
    return AnswerFormat(get(name), marks, {})


def parsed(format: AnswerFormat, text: str, *, opened: bool = False, eager: bool = True) -> list[Segment]:
    parser = format.parser(TOOLS, opened=opened, eager=eager)
    return joined([*parser.push(text), *parser.finish()])


def calls_in(segments: list[Segment]) -> list[tuple[str, Any]]:
    arguments = {s.index: s.text for s in segments if isinstance(s, CallArguments)}
    return [(s.name, json.loads(arguments[s.index])) for s in segments if isinstance(s, CallStart)]


def matcher_of(grammar: Grammar) -> LLMatcher:
    assert grammar.kind == "lark"
    matcher = LLMatcher(BYTES, grammar.text)
    assert not matcher.is_error(), f"{matcher.get_error()}\n{grammar.text}"
    return matcher


def accepts(grammar: Grammar | None, text: str) -> bool:
    assert grammar is not None
    matcher = matcher_of(grammar)
    data = list(text.encode())
    return bool(matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting())


def written_at_random(grammar: Grammar | None, rng: random.Random, n_max: int = 3000) -> str | None:
    """A text that `grammar` allows, drawn byte by byte, in a hurry to end; None if it found no end."""
    assert grammar is not None
    matcher = matcher_of(grammar)
    out = bytearray()
    while len(out) < n_max:
        if matcher.is_accepting() and rng.random() < 0.7:
            return out.decode("utf-8")
        mask = matcher.compute_bitmask()
        allowed = [i for i in range(256) if mask[i // 8] >> (i % 8) & 1]
        if not allowed:
            assert matcher.is_accepting(), out
            return out.decode("utf-8")
        if rng.random() < 0.1 and matcher.validate_tokens(list(VALUE_END)) == len(VALUE_END):
            assert matcher.consume_tokens(list(VALUE_END))
            out += VALUE_END
            continue
        hasty = [byte for byte in allowed if byte in b'"}])<\n']
        plain = [byte for byte in allowed if 32 <= byte < 127]
        byte = rng.choice(hasty if hasty and rng.random() < 0.4 else plain or allowed)
        assert matcher.consume_token(byte), matcher.get_error()
        out.append(byte)
    return None


def check(calls: list[tuple[str, Any]]) -> None:
    schemas = {tool.name: dict(tool.parameters) for tool in TOOLS}
    for name, arguments in calls:
        jsonschema.validate(arguments, schemas[name])


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("name", names())
def test_required_calls_are_valid(name: str, parallel: bool) -> None:
    format = form(name)
    grammar = format.grammar(TOOLS, "required", parallel=parallel, opened=False, answer=None)
    rng = random.Random(1)
    texts = [text for _ in range(12) if (text := written_at_random(grammar, rng)) is not None]
    assert len(texts) >= 6
    for text in texts:
        segments = parsed(format, text)
        calls = calls_in(segments)
        assert calls, text
        assert parallel or len(calls) == 1, text
        assert not any(isinstance(segment, Content) for segment in segments), text
        check(calls)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
@pytest.mark.parametrize("name", names())
def test_a_named_tool_is_called_once(name: str, tool: Tool) -> None:
    format = form(name)
    grammar = format.grammar(TOOLS, tool.name, parallel=True, opened=False, answer=None)
    rng = random.Random(2)
    texts = [text for _ in range(4) if (text := written_at_random(grammar, rng)) is not None]
    assert texts
    for text in texts:
        ((called, arguments),) = calls_in(parsed(format, text))
        assert called == tool.name
        check([(called, arguments)])


@pytest.mark.parametrize("name", [name for name in names() if name != "harmony"])
def test_auto_takes_any_text_and_valid_calls(name: str) -> None:
    format = form(name)
    auto = format.grammar(TOOLS, "auto", parallel=True, opened=False, answer=None)
    one = format.grammar(TOOLS, "auto", parallel=False, opened=False, answer=None)
    required = format.grammar(TOOLS, "required", parallel=False, opened=False, answer=None)
    for text in ("", "Hello", '{"name": "x"}', "[1, 2]", "<b>\n", "Zürich 🦊"):
        assert accepts(auto, text), text
    rng = random.Random(3)
    call = next(text for _ in range(20) if (text := written_at_random(required, rng)) is not None)
    assert accepts(auto, call)
    assert accepts(one, call)
    assert not accepts(auto, call[:-1])
    assert not accepts(one, call + call)


@pytest.mark.parametrize("name", names())
def test_an_answer_without_calls_may_be_bound(name: str) -> None:
    format = form(name)
    answer = Grammar.json_schema(
        {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    )
    grammar = format.grammar(TOOLS, "auto", parallel=True, opened=False, answer=answer)
    final = '<|channel|>final<|message|>{"x": 3}' if name == "harmony" else '{"x": 3}'
    assert accepts(grammar, final)
    assert parsed(format, final) == [Content('{"x": 3}')]
    assert not accepts(grammar, final.replace("3", '"y"'))
    assert not accepts(grammar, final.replace('{"x": 3}', "Hello"))


@pytest.mark.parametrize("opened", [True, False])
def test_reasoning_comes_before_what_is_bound(opened: bool) -> None:
    format = form("hermes", THINK)
    answer = Grammar.json_schema(
        {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    )
    grammar = format.grammar((), "none", parallel=True, opened=opened, answer=answer)
    start = "" if opened else "<think>"
    text = start + 'hm {"x": "<tool_call>"} \n</think>\n\n{"x": 3}'
    assert accepts(grammar, text)
    assert parsed(format, text, opened=opened) == [Reasoning('hm {"x": "<tool_call>"}'), Content('{"x": 3}')]
    assert not accepts(grammar, start + "hm</think>Hello")
    assert accepts(grammar, '{"x": 3}') is not opened
    tools = format.grammar(TOOLS, "required", parallel=True, opened=opened, answer=None)
    call = '<tool_call>\n{"name": "nothing", "arguments": {}}\n</tool_call>'
    assert accepts(tools, start + "hm</think>\n\n" + call)
    assert not accepts(tools, start + "hm</think>\n\nHello")
    auto = format.grammar(TOOLS, "auto", parallel=True, opened=opened, answer=None)
    assert accepts(auto, start + "a <tool_call> b</think>\n\nHello " + call)
    assert not accepts(auto, start + "hm</think>\n\nHello <tool_call>b")


def test_what_does_not_bind_makes_no_grammar() -> None:
    format = form("hermes")
    assert format.grammar((), "auto", parallel=True, opened=False, answer=None) is None
    assert format.grammar(TOOLS, "none", parallel=True, opened=False, answer=None) is None
    answer = Grammar("gbnf", 'root ::= "a"')
    assert format.grammar(TOOLS, "none", parallel=True, opened=False, answer=answer) is answer


NAMED = ("<tool_call>", "</tool_call>", "<think>", "</think>")
CONTROL = (
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|end|>",
    "<|constrain|>",
    "<|call|>",
    "<|return|>",
)
CALL = '{"name": "note", "arguments": {"text": "x"}}'


def tokenizer() -> Tokenizer:
    """Bytes, and the marks of several formats as tokens of their own."""
    metadata = byte_level_metadata(user_defined=list(NAMED))
    metadata["tokenizer.ggml.tokens"] += CONTROL
    metadata["tokenizer.ggml.token_type"] += [int(TokenType.CONTROL)] * len(CONTROL)
    return Tokenizer.from_metadata(metadata)


@pytest.mark.parametrize(
    ("name", "marks", "choice", "text", "allowed"),
    [
        ("hermes", None, "auto", "Hi", True),
        ("hermes", None, "auto", f"Hi<tool_call>\n{CALL}\n</tool_call>", True),
        ("hermes", None, "auto", "Hi<tool_call>Hi", False),
        (
            "hermes",
            None,
            "required",
            f"<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{CALL}\n</tool_call>",
            True,
        ),
        ("hermes", None, "required", "Hi", False),
        ("hermes", THINK, "required", f"<think>Hm</think>\n\n<tool_call>\n{CALL}\n</tool_call>", True),
        ("hermes", THINK, "auto", "<think>Hm</think>\n\nHi", True),
        ("hermes", THINK, "auto", "Hi", True),
        ("hermes", THINK, "note", "<think>Hm</think>Hi", False),
        ("mistral", None, "auto", 'Hi[TOOL_CALLS]note[ARGS]{"text": "x"}', True),
        ("mistral", None, "required", '[TOOL_CALLS]note[ARGS]{"text": "x"}[TOOL_CALLS]nothing[ARGS]{}', True),
        ("mistral", None, "required", '[TOOL_CALLS]note[ARGS]{"text": 1}', False),
        (
            "harmony",
            None,
            "auto",
            "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant<|channel|>final<|message|>Hi",
            True,
        ),
        (
            "harmony",
            None,
            "required",
            '<|channel|>commentary to=functions.note <|constrain|>json<|message|>{"text": "x"}',
            True,
        ),
        ("harmony", None, "required", "<|channel|>final<|message|>Hi", False),
    ],
)
def test_marks_may_be_tokens(name: str, marks: Marks | None, choice: str, text: str, allowed: bool) -> None:
    """What a vocabulary has as one token is that token, as models were trained to write it."""
    words = tokenizer()
    tokens = {word: words.vocabulary.texts.index(word) for word in (*NAMED, *CONTROL)}
    format = AnswerFormat(get(name), marks, tokens)
    grammar = format.grammar(TOOLS, choice, parallel=True, opened=False, answer=None)
    assert grammar is not None
    matcher = GrammarCompiler(lambda: words).compile(grammar)
    ids = words.encode(text, parse_special=True, add_bos=False)
    end = words.vocabulary.eos_id
    assert end is not None
    is_sentence = matcher.advance(ids) == len(ids) and bool(matcher.words()[end // 32] >> (end % 32) & 1)
    assert is_sentence is allowed
    if allowed:
        check(calls_in(parsed(format, text)))


WORDS = [
    "type",
    "properties",
    "items",
    "enum",
    "const",
    "anyOf",
    "$ref",
    "required",
    "$id",
    "$defs",
    "x",
    "a b>",
]
VALUES = ["object", "array", "string", "integer", "null", "#/$defs/x", "#/x", "x", 1, -1, 1e300, None, True]
SCHEMAS = st.recursive(
    st.sampled_from(VALUES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("name", names())
@settings(deadline=None, max_examples=60)
@given(schema=st.dictionaries(st.sampled_from(WORDS), SCHEMAS, max_size=5))
def test_any_schema_makes_a_grammar_or_is_refused(name: str, schema: dict[str, Any]) -> None:
    """Whether llguidance takes it is told by compiling it; nothing goes wrong on the way there."""
    try:
        tool = tool_of("f", None, schema, strict=False, path="tools[0].function")
    except ApiError:
        return
    format = form(name)
    assert format.grammar([tool], "auto", parallel=True, opened=False, answer=None) is not None
    parser = format.parser([tool], opened=False, eager=False)
    parser.push("<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>")
    parser.finish()


@pytest.mark.parametrize(
    ("pattern", "text"), [("a/b", "a/b"), (r"a\/b", "a/b"), (r"a\\/b", "a\\/b"), (r"[\/]x", "/x")]
)
def test_a_regular_expression_beside_tools_keeps_its_slashes(pattern: str, text: str) -> None:
    format, answer = form("hermes"), Grammar("regex", pattern)
    grammar = format.grammar(TOOLS, "auto", parallel=True, opened=False, answer=answer)
    assert accepts(grammar, text)
    assert not accepts(grammar, "ab")
