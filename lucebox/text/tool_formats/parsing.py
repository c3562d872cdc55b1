"""What parsers of tool calls are made of: coroutines over text that comes in pieces."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import Any

from lucebox.text.answer_parser import CallArguments, CallStart, Content, Reasoning, Segment, joined
from lucebox.text.tools import new_call_id

Steps = Generator[None, None, None]
FENCES = ("```json", "```")
ARGUMENT_KEYS = ("arguments", "parameters")


class CallParser(ABC):
    """An AnswerParser as a coroutine: `_parse` reads `_text`, and yields when it needs more of it.

    `names` are the tools there are: a call of any other is text. `eager`: a grammar sees to it that what
    begins as a call ends as one, so its arguments are handed out as they come; else a call is held back until
    it is known to be one. Whitespace in front of calls and behind them is dropped.
    """

    in_reasoning = False

    def __init__(self, names: Iterable[str], *, eager: bool) -> None:
        self._names = tuple(names)
        self._eager = eager
        self._text = ""
        self._has_ended = False
        self._space = ""  # content if more content follows
        self._n_calls = 0
        self._n_max_calls: int | None = None
        self._segments: list[Segment] = []
        self._steps = self._run()

    def limit(self, n_calls: int) -> None:
        """Calls of JSON beyond the first `n_calls` are text: not all of them are bound by grammars."""
        self._n_max_calls = n_calls

    def push(self, text: str, /) -> list[Segment]:
        self._text += text
        return self._resume()

    def finish(self) -> list[Segment]:
        self._has_ended = True
        return self._resume()

    @abstractmethod
    def _parse(self) -> Steps:
        """All of the answer, to its end."""

    def _run(self) -> Steps:
        yield from self._parse()
        self._say(self._text)
        self._text = ""
        if self._space and not self._n_calls:
            self._segments.append(Content(self._space))

    def _resume(self) -> list[Segment]:
        next(self._steps, None)
        segments, self._segments = joined(self._segments), []
        return segments

    def _more(self) -> Generator[None, None, bool]:
        """Waits for more text; False if there will be none."""
        if self._has_ended:
            return False
        yield
        return True

    def _say(self, text: str) -> None:
        """Content; whitespace at its end waits."""
        text = self._space + text
        shown = text.rstrip()
        self._space = text[len(shown) :]
        if shown:
            self._segments.append(Content(shown))

    def _think(self, text: str) -> None:
        if text:
            self._segments.append(Reasoning(text))

    def _start_call(self, name: str) -> int:
        index = self._n_calls
        self._n_calls += 1
        self._space = ""
        self._segments.append(CallStart(index, new_call_id(), name))
        return index

    def _call(self, name: str, arguments: Mapping[str, Any]) -> None:
        """A whole call at once."""
        index = self._start_call(name)
        self._segments.append(CallArguments(index, json.dumps(arguments, ensure_ascii=False)))

    def _take(self, n: int) -> str:
        taken, self._text = self._text[:n], self._text[n:]
        return taken

    def _say_until(self, markers: Sequence[str]) -> Generator[None, None, str | None]:
        """Says what stands in front of the first of `markers`, and returns that one, which `_text` now begins
        with; None when the text ended without."""
        while True:
            found = [(at, marker) for marker in markers if (at := self._text.find(marker)) >= 0]
            if found:
                at, marker = min(found, key=lambda pair: (pair[0], -len(pair[1])))
                self._say(self._take(at))
                return marker
            self._say(self._take(len(self._text) - n_ambiguous(self._text, markers)))
            if not (yield from self._more()):
                return None

    def _find(self, marker: str, start: int = 0) -> Generator[None, None, int]:
        """Where `marker` stands in `_text`, nothing taken; -1 when the text ended without."""
        while (at := self._text.find(marker, start)) < 0:
            start = max(start, len(self._text) - len(marker) + 1)
            if not (yield from self._more()):
                return -1
        return at

    def _match(
        self, parts: Sequence[Sequence[str]], start: int = 0
    ) -> Generator[None, None, tuple[int, list[str]] | None]:
        """Where `parts` end, one choice of each after the other with whitespace between, and the choices.

        None as soon as `_text` cannot be that; nothing is taken.
        """
        chosen: list[str] = []
        for choices in parts:
            while True:
                start = skip_space(self._text, start)
                rest = self._text[start:]
                found = max((c for c in choices if rest.startswith(c)), key=len, default=None)
                is_open = any(len(c) > len(rest) and c.startswith(rest) for c in choices)
                if is_open and (yield from self._more()):
                    continue
                if found is None:
                    return None
                break
            chosen.append(found)
            start += len(found)
        return start, chosen

    def _skip(self, marker: str) -> Steps:
        """Takes whitespace and then `marker`, if that is what comes."""
        if (match := (yield from self._match([[marker]]))) is not None:
            self._take(match[0])

    def _value_end(self, start: int) -> Generator[None, None, int]:
        """Where the object or array that begins at `start` ends; -1 when the text ends before."""
        brackets = Brackets()
        while (n := brackets.read(self._text[start:])) < 0:
            start = len(self._text)
            if not (yield from self._more()):
                return -1
        return start + n

    def _stream_arguments(self, index: int) -> Generator[None, None, bool]:
        """Hands out the object that `_text` begins with; False if the text ends before it does."""
        brackets = Brackets()
        while True:
            n = brackets.read(self._text)
            piece = self._take(n if n >= 0 else len(self._text))
            if piece:
                self._segments.append(CallArguments(index, piece))
            if n >= 0 or not (yield from self._more()):
                return n >= 0

    def _bare_calls(self, *, eager: bool = True) -> Steps:
        """Takes the calls that the answer begins with, in or out of a Markdown fence."""
        self._eager, was_eager = self._eager and eager, self._eager
        fence = yield from self._match([FENCES, ["{"]])
        held = "" if fence is None else self._take(fence[0] - 1)
        while (yield from self._json_call(name_first=True)):
            pass
        if held and not self._n_calls:
            self._text = held + self._text
        elif held:
            yield from self._skip("```")
        self._eager = was_eager

    def _json_call(self, *, name_first: bool = False) -> Generator[None, None, bool]:
        """Takes a call such as `{"name": "f", "arguments": {…}}` off the front of `_text`.

        False, and nothing taken, where there is none. `name_first`: other orders of the keys do not count.
        """
        if self._n_calls == self._n_max_calls:
            return False
        names = [json.dumps(name, ensure_ascii=False) for name in self._names]
        keys = [f'"{key}"' for key in ARGUMENT_KEYS]
        head = [["{"], ['"name"'], [":"], names, [","], keys, [":"], ["{"]]
        match = (yield from self._match(head)) if self._eager or name_first else None
        if match is not None and self._eager:
            at, chosen = match
            self._take(at - 1)
            yield from self._stream_arguments(self._start_call(json.loads(chosen[3])))
            yield from self._skip("}")
            return True
        if name_first and match is None:
            return False
        return (yield from self._held_json_call())

    def _held_json_call(self) -> Generator[None, None, bool]:
        """The same, when all of it is there."""
        opened = yield from self._match([["{"]])
        if opened is None or (end := (yield from self._value_end(opened[0] - 1))) < 0:
            return False
        call = call_of(self._text[:end], self._names)
        if call is None:
            return False
        self._take(end)
        self._call(*call)
        return True


class Brackets:
    """Finds the end of a JSON object or array in text that comes in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._is_escaped = False

    def read(self, text: str) -> int:
        """How much of `text` belongs to the value, if it ends there; else -1, and all of it does."""
        for i, character in enumerate(text):
            if self._is_escaped:
                self._is_escaped = False
            elif self._in_string:
                self._is_escaped = character == "\\"
                self._in_string = character != '"'
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    return i + 1
        return -1


def call_of(text: str, names: Collection[str]) -> tuple[str, dict[str, Any]] | None:
    """Name and arguments of the call that `text` is in JSON, if it is one of a tool in `names`."""
    value = loads(text)
    return call_in(value, names)


def call_in(value: Any, names: Collection[str]) -> tuple[str, dict[str, Any]] | None:
    """The same of a decoded value. Arguments may be left out, or be JSON in a string."""
    if not isinstance(value, dict):
        return None
    if isinstance(inner := value.get("function"), dict):
        value = inner
    name = value.get("name")
    arguments: Any = next((value[key] for key in ARGUMENT_KEYS if key in value), {})
    if isinstance(arguments, str):
        arguments = loads(arguments) if arguments.strip() else {}
    if isinstance(name, str) and name in names and isinstance(arguments, dict):
        return name, arguments
    return None


def loads(text: str) -> Any:
    """The value of a JSON text; None for what is no JSON, or has numbers that JSON has not."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def skip_space(text: str, start: int) -> int:
    while start < len(text) and text[start] in " \t\r\n":
        start += 1
    return start


def n_ambiguous(text: str, markers: Iterable[str]) -> int:
    """How many characters at the end of `text` may be the beginning, and not all, of one of `markers`."""
    longest = 0
    for marker in markers:
        for n in range(min(len(marker) - 1, len(text)), longest, -1):
            if text.endswith(marker[:n]):
                longest = n
                break
    return longest
