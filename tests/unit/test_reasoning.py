"""Reasoning told from the answer, however the text is cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucebox.server.effort import effort_kwargs
from lucebox.server.errors import ApiError
from lucebox.text.answer_parser import Content, PlainParser, Reasoning, Segment, joined
from lucebox.text.reasoning import MARKS, Marks, ReasoningParser, detect, is_open

THINK = Marks("<think>", "</think>")


def parsed(pieces: list[str], *, opened: bool, marks: Marks = THINK) -> list[Segment]:
    parser = ReasoningParser(marks, PlainParser(), opened=opened)
    return joined([s for piece in pieces for s in parser.push(piece)] + parser.finish())


@pytest.mark.parametrize(
    ("text", "opened", "expected"),
    [
        ("<think>\nHm.\n\nYes.\n</think>\n\nHello ", False, [Reasoning("Hm.\n\nYes."), Content("Hello ")]),
        ("\nHm.\n</think>\n\nHello", True, [Reasoning("Hm."), Content("Hello")]),
        ("\n<think>Hm.", False, [Reasoning("Hm.")]),
        ("Hm.", True, [Reasoning("Hm.")]),
        ("Hm. </thi", True, [Reasoning("Hm. </thi")]),
        ("<think>\n\n</think>\n\nHello", False, [Content("Hello")]),
        ("</think>Hello", True, [Content("Hello")]),
        ("Hello <think>a</think>", False, [Content("Hello <think>a</think>")]),
        ("  Hello", False, [Content("  Hello")]),
        ("<thin", False, [Content("<thin")]),
        ("", False, []),
        ("", True, []),
    ],
)
def test_reasoning(text: str, opened: bool, expected: list[Segment]) -> None:
    assert parsed([text], opened=opened) == expected
    assert parsed(list(text), opened=opened) == expected


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<th", "ink>", "</", " ", "\n", "Hm", "<"]), max_size=8),
    st.booleans(),
    st.lists(st.integers(0, 40), max_size=5),
)
def test_the_cutting_of_the_text_does_not_matter(words: list[str], opened: bool, at: list[int]) -> None:
    text = "".join(words)
    cuts = sorted(min(i, len(text)) for i in at)
    pieces = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert parsed(pieces, opened=opened) == parsed([text], opened=opened)


def test_what_comes_next_is_known() -> None:
    parser = ReasoningParser(THINK, PlainParser(), opened=False)
    assert not parser.in_reasoning
    parser.push("<think>")
    assert parser.in_reasoning
    assert parser.push("a") == [Reasoning("a")]
    parser.push("</think>")
    assert not parser.in_reasoning
    assert parser.push("b") == [Content("b")]


@pytest.mark.parametrize("marks", MARKS)
def test_a_template_tells_its_marks(marks: Marks) -> None:
    assert detect(f"{{{{ content.split('{marks.close}') }}}}") == marks
    assert is_open(marks, f"<|im_start|>assistant\n{marks.open}\n")
    assert not is_open(marks, f"<|im_start|>assistant\n{marks.open}\n\n{marks.close}\n\n")


def test_most_templates_have_none() -> None:
    assert detect("{{ messages }}") is None
    assert detect(None) is None


@pytest.mark.parametrize(
    ("effort", "variables", "expected"),
    [
        (None, {"enable_thinking"}, {}),
        ("none", {"enable_thinking"}, {"enable_thinking": False}),
        ("low", {"enable_thinking"}, {"enable_thinking": True}),
        ("none", {"thinking"}, {"thinking": False}),
        ("high", {"reasoning_effort"}, {"reasoning_effort": "high"}),
        ("minimal", {"reasoning_effort"}, {"reasoning_effort": "low"}),
        ("high", set(), {}),
    ],
)
def test_effort_of_a_model_that_reasons(effort: Any, variables: set[str], expected: dict[str, Any]) -> None:
    assert effort_kwargs(effort, variables, reasons=True) == expected


def test_effort_that_a_model_cannot_make_is_refused() -> None:
    assert effort_kwargs("none", (), reasons=False) == {}
    for effort, reasons in (("high", False), ("none", True)):
        with pytest.raises(ApiError) as raised:
            effort_kwargs(effort, (), reasons=reasons, param="thinking")  # type: ignore[arg-type]
        assert raised.value.param == "thinking"
