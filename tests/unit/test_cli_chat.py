"""`lucebox chat`: commands, what is kept of a conversation, colours, and messages of several lines."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lucebox.api import ChunkStream
from lucebox.cli import main
from lucebox.cli.chat import transcript
from lucebox.cli.prompt import read_message
from lucebox.core import Origin
from lucebox.engine.timings import DraftedRound, Timings
from tests.support.scripted_engine import ByteVocabulary

COST = Timings(prompt_n=3, prompt_ms=10, predicted_n=5, predicted_ms=100, n_rounds=2, verify_ms=70)


@dataclass
class Engine:
    """Says `answer k`, its first token accepted and the rest plain."""

    asked: list[list[dict[str, str]]] = field(default_factory=list)
    tokenizer: Any = field(default_factory=lambda: SimpleNamespace(vocabulary=ByteVocabulary()))

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None: ...

    def stream_chat(self, messages: Sequence[Any], params: object) -> ChunkStream:
        return ChunkStream(partial(self._stream, messages))

    def _stream(self, messages: Sequence[Any], cost: Any) -> Iterator[Any]:
        self.asked.append(list(messages))
        text = f"answer {len(self.asked)}"
        origins = [Origin.ACCEPTED] + [Origin.PLAIN] * (len(text) - 1)
        cost.timings = COST + DraftedRound("suffix", 4, 4, len(self.asked)).timings()
        yield SimpleNamespace(text=text, tokens=list(text.encode()), origins=origins, timings=cost.timings)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    fake = Engine()
    monkeypatch.setattr("lucebox.api.Engine", SimpleNamespace(from_options=lambda *_, **__: fake))
    return fake


def chat(monkeypatch: pytest.MonkeyPatch, *lines: str, flags: Sequence[str] = ()) -> int:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    return main(["chat", *flags])


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answer(k: int) -> dict[str, str]:
    return {"role": "assistant", "content": f"answer {k}"}


def test_retry_and_undo(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chat(monkeypatch, "one", "/retry", "two", "/undo", "three") == 0
    assert engine.asked[1] == [user("one")]
    assert engine.asked[2] == [user("one"), answer(2), user("two")]
    assert engine.asked[3] == [user("one"), answer(2), user("three")]


def test_nothing_to_retry_or_undo(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(monkeypatch, "/retry", "/undo") == 1
    assert not engine.asked
    assert capsys.readouterr().err.splitlines() == ["there is nothing to retry", "there is nothing to undo"]


def test_instructions(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["/system", "one", "/system Be kind.", "two", "/system -", "three"]
    assert chat(monkeypatch, *lines, flags=["--system", "Be brief."]) == 0
    first = [asked[0] for asked in engine.asked]
    assert first[0] == {"role": "system", "content": "Be brief."}
    assert first[1] == {"role": "system", "content": "Be kind."}
    assert first[2] == user("one")
    assert "system: Be brief." in capsys.readouterr().out


def test_stats_of_the_last_answer_and_of_all(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(monkeypatch, "/stats", "one", "two", "/stats") == 0
    out = capsys.readouterr().out
    assert out.startswith("no figures")
    last, _, everything = out.partition("all 2 answers")
    assert "2 of 4 accepted (50%)" in last
    assert "3 of 8 accepted (38%)" in everything
    assert "100% 50% 0% 0%" in everything
    assert "4.0 on average: 4 (2×)" in everything
    assert "drafter     suffix" in everything


def test_save_writes_and_never_over(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = tmp_path / "talk.json"
    assert chat(monkeypatch, "one", f"/save {kept}", "two", f"/save {kept}", f"/save {tmp_path}/no/x") == 1
    assert json.loads(kept.read_text()) == [user("one"), answer(1)]
    saved, refused, missing = capsys.readouterr().err.splitlines()
    assert saved == f"saved: {kept}"
    assert refused.startswith("not saved: File exists")
    assert missing.startswith("not saved: No such file")


def test_transcript_in_markdown() -> None:
    assert (
        transcript([user("one"), answer(1)], as_json=False) == "## user\n\none\n\n## assistant\n\nanswer 1\n"
    )


def test_colours_follow_the_flag(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(monkeypatch, "one", "/help") == 0
    plain = capsys.readouterr().out
    assert "\x1b" not in plain
    assert "--color always" in plain
    assert chat(monkeypatch, "one", "/help", flags=["--color", "always"]) == 0
    coloured = capsys.readouterr().out
    assert coloured.startswith("\x1b[32ma\x1b[0mnswer 2")
    assert "guessed by a drafter" in coloured


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["plain"], "plain"),
        (["first\\", "second\\", "third"], "first\nsecond\nthird"),
        (['"""', "def f():", "    pass", '"""'], "def f():\n    pass"),
        (['"""one', 'two""" and the rest'], "one\ntwo"),
        (['"""one line"""'], "one line"),
    ],
)
def test_messages_of_several_lines(typed: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter(typed)
    monkeypatch.setattr("builtins.input", lambda _="": next(lines))
    assert read_message(interactive=True) == message
    assert next(lines, None) is None
