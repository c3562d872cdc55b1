"""Keeps what users write from being read as control tokens, through a template that moves it about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lucebox.errors import RequestError
from lucebox.text.added_tokens import AddedTokens

# Roles a template may paste into a control token, as in '<|' + role + '|>'.
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
# What templates look up by name: a control token of the same spelling must not rename it.
_FIELDS = frozenset(
    {"messages", "tools", "extra", "role", "content", "name", "tool_calls", "tool_call_id", "type", "text"}
)
_PRIVATE_USE = range(0xE000, 0xF900)


class Literal:
    """Stand-ins for the first characters of control tokens in users' text.

    `hide` puts an unused character of the Private Use Area in the place of each character that begins a
    control token, or could begin one at the end of a text. No control token then comes of these through a
    template, and `stand_ins` (for `str.translate`) gives the characters back in the text that it makes.
    Out of reach: a template that deletes characters from the midst of a text.
    """

    def __init__(self, control: AddedTokens, *, avoid: str) -> None:
        self._control = control
        self._avoid = avoid
        self.stand_ins: dict[int, str] = {}

    def hide(self, value: dict[str, Any]) -> dict[str, Any]:
        """`value` (JSON-like: messages, tools, …) with stand-ins in all its strings. Once per object."""
        assert not self.stand_ins
        self._check_roles(value.get("messages", ()))
        strings = set(_strings(value))
        firsts = {text[at] for text in strings for at in self._starts(text)}
        taken = set(self._avoid).union(*strings) if firsts else set()
        free = (chr(code) for code in _PRIVATE_USE if chr(code) not in taken)
        hidden = dict(zip(sorted(firsts), free, strict=False))
        if len(hidden) < len(firsts):
            raise RequestError("The messages use every private character of Unicode", param="messages")
        self.stand_ins = {ord(stand_in): first for first, stand_in in hidden.items()}
        return self._map(value, hidden) if hidden else value

    def _check_roles(self, messages: Any) -> None:
        for index, message in enumerate(messages):
            role = message.get("role")
            if not isinstance(role, str):
                raise RequestError(f"messages[{index}].role is not a string", param=f"messages[{index}].role")
            if role not in _ROLES and self._control.is_part_of_name(role):
                raise RequestError(
                    f"messages[{index}].role is {role!r:.40}, a part of a control token",
                    param=f"messages[{index}].role",
                    remedy="use one of " + ", ".join(sorted(_ROLES)),
                )

    def _map(self, value: Any, hidden: Mapping[str, str]) -> Any:
        if isinstance(value, str):
            return self._replace(value, hidden)
        if isinstance(value, Mapping):
            return {
                key if key in _FIELDS else self._replace(key, hidden): (
                    item if _is_role(key, item) else self._map(item, hidden)
                )
                for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._map(item, hidden) for item in value]
        return value

    def _replace(self, text: str, hidden: Mapping[str, str]) -> str:
        starts = self._starts(text)
        if not starts:
            return text
        characters = list(text)
        for at in starts:
            characters[at] = hidden[text[at]]
        return "".join(characters)

    def _starts(self, text: str) -> list[int]:
        return [*self._control.starts(text), *self._control.unfinished(text)]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key not in _FIELDS:
                yield key
            if not _is_role(key, item):
                yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _is_role(key: str, item: Any) -> bool:
    return key == "role" and item in _ROLES
