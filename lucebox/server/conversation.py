"""A conversation as chat templates want it, built up from the items or blocks that an API cuts it into."""

from __future__ import annotations

from typing import Any

from lucebox.server.errors import ApiError


class Conversation:
    """All that the model said between two messages of others becomes one message of the assistant."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._tools: dict[str, str] = {}  # the tool that each call was of

    def say(self, role: str, text: str) -> None:
        """A message of somebody else: `role` is system or user."""
        self.messages.append({"role": role, "content": text})

    def ask(self, text: str) -> None:
        """A text of the user; one after another they are one message."""
        if self.messages and self.messages[-1]["role"] == "user":
            self.messages[-1]["content"] += f"\n{text}"
        else:
            self.say("user", text)

    def answer(self, text: str) -> None:
        """A text of the model."""
        turn = self._assistant()
        turn["content"] = text if turn["content"] is None else f"{turn['content']}\n{text}"

    def think(self, text: str) -> None:
        """What the model thought."""
        turn = self._assistant()
        before = turn.get("reasoning_content")
        turn["reasoning_content"] = text if before is None else f"{before}\n{text}"

    def call(self, id: str, name: str, arguments: str) -> None:
        """A call of the tool `name` by the model; `arguments` is JSON."""
        self._tools[id] = name
        function = {"name": name, "arguments": arguments}
        self._assistant().setdefault("tool_calls", []).append(
            {"id": id, "type": "function", "function": function}
        )

    def result(self, id: str, text: str, at: str) -> None:
        """What call `id` brought. Raises ApiError naming `at` if there was no such call."""
        name = self._tools.get(id)
        if name is None:
            raise ApiError(
                f"'{at}' is the result of a call {id!r}, and no such call comes before it; send that, too.",
                param=at,
                code="invalid_value",
            )
        self.messages.append({"role": "tool", "tool_call_id": id, "name": name, "content": text})

    def _assistant(self) -> dict[str, Any]:
        if not self.messages or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": None})
        return self.messages[-1]
