"""The file to be edited, and the check of answers."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from lucebox.bench.editing import MIN_CHANGED_SHARE, Edit, code_block, make_edit

SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
def test_files_are_sound_and_change_enough(seed: int) -> None:
    edit = make_edit(seed)
    n_lines = len(edit.source.splitlines())
    assert 80 <= n_lines <= 150
    assert MIN_CHANGED_SHARE * n_lines <= edit.n_changed <= 0.2 * n_lines
    for code in (edit.source, edit.expected):
        compile(code, "edited.py", "exec")
    assert edit.source in edit.instruction


def test_files_depend_on_the_seed_alone() -> None:
    assert make_edit(3) == make_edit(3)
    assert len({make_edit(seed).source for seed in SEEDS}) > 10


def test_the_files_work(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("edited")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look there
    exec(compile(make_edit(0).expected, "edited.py", "exec"), vars(module))
    read = next(value for name, value in vars(module).items() if name.startswith("read_"))
    [record] = read("key,label,value\n  a   b ,x,2.5\n")
    assert list(vars(record).values()) == ["a b", "x", 2.5]


def test_changed_lines_are_counted() -> None:
    assert Edit("x = 1\ny = x\nw = 0\n", "z = 1\ny = z\nw = 0\n", "").n_changed == 2


def answer(code: str) -> str:
    return f"Here is the file:\n```python\n{code.rstrip()}\n```\nDone."


def test_the_expected_file_is_right() -> None:
    edit = make_edit(1)
    assert edit.problem(answer(edit.expected)) == ""
    assert edit.problem(answer(edit.expected.replace("\n", "  \n"))) == ""


def test_what_is_wrong_is_said() -> None:
    edit = make_edit(1)
    n_lines = len(edit.expected.strip().splitlines())
    assert edit.problem(answer(edit.source)) == f"{edit.n_changed} of {n_lines} lines wrong"
    assert edit.problem(answer(edit.expected + "\nprint()\n")) == f"{n_lines + 2} lines instead of {n_lines}"
    assert edit.problem(answer(edit.expected)[:-20]) == "no code block that ends"
    assert edit.problem("I cannot do that.") == "no code block that ends"


def test_fences_in_a_line_end_no_block() -> None:
    assert code_block("```py\na = '```'\n```\n") == "a = '```'\n"
