"""Parsers of tool calls: what they find, what stays text, and that it does not matter how a text is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucebox.config import ServerOptions
from lucebox.errors import ConfigError
from lucebox.text import tool_formats
from lucebox.text.answer_parser import (
    AnswerParser,
    CallArguments,
    CallStart,
    Content,
    Reasoning,
    Segment,
    joined,
)
from lucebox.text.tool_formats import get, names
from lucebox.text.tools import Tool

TOOLS = (
    Tool("f", "", {"type": "object", "properties": {"a": {"type": "integer"}, "s": {"type": "string"}}}),
    Tool("g"),
)
FORMATS = names()

# By format: an answer, and what it comes to.
CALL_F = ("f", {"a": 1})
CALL_G = ("g", {})
ANSWERS: list[tuple[str, str, list[Any]]] = [
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', [CALL_F]),
    ("hermes", '<tool_call>{"arguments": {"a": 1}, "name": "f"}', [CALL_F]),
    ("hermes", 'Well.\n<tool_call>\n{"name": "g"}\n</tool_call>\n', ["Well.", CALL_G]),
    ("hermes", '```json\n{"name": "f", "arguments": {"a": 1}}\n```', [CALL_F]),
    ("hermes", '{"name": "f", "arguments": {"s": "</tool_call>}"}}', [("f", {"s": "</tool_call>}"})]),
    ("llama3", '{"name": "f", "parameters": {"a": 1}}', [CALL_F]),
    ("llama3", '<|python_tag|>{"name": "f", "parameters": {"a": 1}}; {"name": "g"}', [CALL_F, CALL_G]),
    ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "g"}]', [CALL_F, CALL_G]),
    ("mistral", 'Hm. [TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]x[ARGS]{}', ["Hm.", CALL_F, CALL_G]),
    ("mistral", '[TOOL_CALLS]f{"a": 1}', [CALL_F]),
    ("generic", '{"name": "f", "arguments": {"a": 1}}\n{"name": "g", "arguments": {}}', [CALL_F, CALL_G]),
    ("gemma", '```json\n{"name": "f", "parameters": {"a": 1}}\n```', [CALL_F]),
    ("pythonic", "[f(a=1), g()]", [CALL_F, CALL_G]),
    ("pythonic", "<|python_start|>[f(s='a)\\'', a=-2)]<|python_end|>", [("f", {"s": "a)'", "a": -2})]),
    (
        "qwen3_coder",
        "So:\n<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=s>\n1\n2\n</parameter>\n"
        "</function>\n</tool_call>",
        ["So:", ("f", {"a": 1, "s": "1\n2"})],
    ),
    (
        "harmony",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
        '<|constrain|>json<|message|>{"a": 1}<|call|>',
        [Reasoning("Hm."), CALL_F],
    ),
    (
        "harmony",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello<|return|>",
        [Reasoning("Hm."), "Hello"],
    ),
    ("harmony", ' to=functions.f<|channel|>commentary json<|message|>{"a": 1}', [CALL_F]),
]
# Answers without a call, and as close to one as can be.
TEXTS: list[tuple[str, str]] = [
    ("hermes", '<tool_call>\n{"name": "unknown", "arguments": {}}\n</tool_call>'),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": 1}\n</tool_call>'),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": [1]}\n</tool_call>'),
    ("hermes", '<tool_call>\n{"name": "f", "arguments": {"a": NaN}}\n</tool_call>'),
    ("hermes", "a <tool_call> is written so: <tool_"),
    ("hermes", '{"name": "unknown", "arguments": {}}'),
    ("hermes", '```json\n{"name": "f"'),
    ("llama3", '{"name": "John", "parameters": {}}'),
    ("llama3", '{"name": "f", "parameters": {"a": '),
    ("llama3", "<|python_tag|>print(1)"),
    ("mistral", "[TOOL_CALLS]"),
    ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "unknown"}]'),
    ("mistral", "[TOOL_CALLS]f[ARGS]{"),
    ("mistral", "[TOOL_CALLS]f[CALL_ID]"),
    ("generic", '  {"name": "x"}\n'),
    ("generic", "```python\nprint()\n```"),
    ("gemma", "\n \n"),
    ("pythonic", "[1, 2]"),
    ("pythonic", "[f(a=b)]"),
    ("pythonic", "[f(1)]"),
    ("pythonic", "[f(a=1e999)]"),
    ("pythonic", "[f(a=1), h()]"),
    ("pythonic", "[f(a=(((((("),
    ("qwen3_coder", "<tool_call>\n<function=h>\n</function>\n</tool_call>"),
    ("qwen3_coder", "<tool_call>\n<function=f>\nrubbish</function>\n</tool_call>"),
    ("harmony", "Hello"),
]


def parsed(parser: AnswerParser, pieces: list[str]) -> list[Segment]:
    segments = [segment for piece in pieces for segment in parser.push(piece)]
    return joined(segments + parser.finish())


def plain(segments: list[Segment]) -> list[Any]:
    """Text as strings, calls as pairs; the order of appearance and the numbering checked."""
    out: list[Any] = []
    n_calls = 0
    for segment in segments:
        match segment:
            case Content(text):
                out.append(text)
            case Reasoning():
                out.append(segment)
            case CallStart(index, id, name):
                assert index == n_calls
                assert id.startswith("call_")
                n_calls += 1
                out.append((name, None))
            case CallArguments(index, text):
                assert index == n_calls - 1
                out[-1] = (out[-1][0], json.loads(text))
    return out


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize(("name", "text", "expected"), ANSWERS)
def test_calls(name: str, text: str, expected: list[Any], eager: bool) -> None:
    assert plain(parsed(get(name).parser(TOOLS, eager=eager), [text])) == expected


@pytest.mark.parametrize(("name", "text"), TEXTS)
def test_what_is_no_call_is_text_and_all_of_it(name: str, text: str) -> None:
    assert plain(parsed(get(name).parser(TOOLS, eager=False), [text])) == [text]


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "harmony"])
@settings(deadline=None, max_examples=40)
@given(st.text(max_size=40))
def test_without_calls_nothing_is_lost(name: str, text: str) -> None:
    assert "".join(plain(parsed(get(name).parser(TOOLS, eager=False), list(text)))) == text


FRAGMENTS = [
    *(text for _, text, _ in ANSWERS),
    *(text for _, text in TEXTS),
    *(
        "<tool_call>",
        "</tool_call>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "{",
        "}",
        '"',
        "[",
        "]",
        " ",
        "\n",
        "Hi",
        "f(",
    ),
    *("<|channel|>", "<|message|>", "<|end|>", "<|start|>assistant", "analysis", "final", "\\", "'"),
]


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("name", FORMATS)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_the_cutting_of_the_text_does_not_matter(name: str, eager: bool, data: st.DataObject) -> None:
    own = [text for other, text, _ in ANSWERS if other == name] + [t for other, t in TEXTS if other == name]
    text = "".join(data.draw(st.lists(st.sampled_from([*own, *own, *FRAGMENTS]), max_size=4)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    seen = [shape(parsed(get(name).parser(TOOLS, eager=eager), p)) for p in ([text], pieces, list(text))]
    assert seen[0] == seen[1] == seen[2]


def shape(segments: list[Segment]) -> list[Any]:
    """All but the ids, which are random."""
    return [(s.index, s.name) if isinstance(s, CallStart) else s for s in segments]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>\n{"name": "f", "arguments": {"s": "'),
        ("llama3", '{"name": "f", "parameters": {"s": "'),
        ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {"s": "'),
        ("generic", '{"name": "f", "arguments": {"s": "'),
        ("harmony", ' to=functions.f<|channel|>commentary json<|message|>{"s": "'),
    ],
)
def test_arguments_are_streamed_where_a_grammar_binds_them(name: str, text: str) -> None:
    parser = get(name).parser(TOOLS, eager=True)
    assert shape(parser.push(text)) == [(0, "f"), CallArguments(0, '{"s": "')]
    assert parser.push("abc") == [CallArguments(0, "abc")]
    held = get(name).parser(TOOLS, eager=False)
    assert [*held.push(text), *held.push("abc")] == []


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "harmony"])
def test_text_is_not_held_back(name: str) -> None:
    parser = get(name).parser(TOOLS, eager=True)
    assert [segment for word in ("Once", " upon", " a") for segment in parser.push(word)] == [
        Content("Once"),
        Content(" upon"),
        Content(" a"),
    ]


def test_of_calls_that_no_grammar_counts_the_first_may_be_all() -> None:
    parser = get("hermes").parser(TOOLS, eager=True)
    parser.limit(1)
    first, second = '{"name": "f", "arguments": {"a": 1}}', '{"name": "g", "arguments": {}}'
    assert plain(parsed(parser, [f"{first}\n{second}"])) == [CALL_F, "\n" + second]


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{% if tools %}<tool_call>{% endif %}", "hermes"),
        ("<tool_call><function=x><parameter=y>", "qwen3_coder"),
        ('<|start_header_id|>{"name": function name, "parameters": dictionary}', "llama3"),
        ("[AVAILABLE_TOOLS][TOOL_CALLS]", "mistral"),
        ("<start_of_turn>model", "gemma"),
        ("<|channel|>analysis<|message|>", "harmony"),
        ("[func_name1(params_name1=params_value1)]", "pythonic"),
        ("<|im_start|>", "generic"),
        (None, "generic"),
    ],
)
def test_a_template_tells_its_format(template: str | None, name: str) -> None:
    assert type(tool_formats.detect(template)) is type(get(name))


def test_an_unknown_format_is_refused_when_the_server_is_set_up() -> None:
    with pytest.raises(ConfigError, match="hermes"):
        get("no_such_format")
    flag = ServerOptions.__annotations__["tool_format"]
    assert all(f"`{name}`" in flag for name in FORMATS), "--tool-format names every format"
