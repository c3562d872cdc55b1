"""What the three APIs of conversations refuse alike, and in the same words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from lucebox.server.tool_checks import MAX_TOOLS
from tests.support.scripted_engine import says
from tests.support.serving import CHAT, ask

HI = says(b"Hi")
SCHEMA = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Api:
    """How an API has what all of them have."""

    path: str
    name_at: str  # of a tool's name, in the tool
    image: dict[str, Any]

    def body(self, **fields: Any) -> dict[str, Any]:
        talk = "input" if self.path == "/v1/responses" else "messages"
        return {talk: [{"role": "user", "content": "x"}], **self._limit(), **fields}

    def with_part(self, part: dict[str, Any]) -> dict[str, Any]:
        talk = "input" if self.path == "/v1/responses" else "messages"
        return self.body(**{talk: [{"role": "user", "content": [part]}]})

    def tools(self, names: Sequence[str]) -> list[dict[str, Any]]:
        match self.path:
            case "/v1/messages":
                return [{"name": name, "input_schema": SCHEMA} for name in names]
            case "/v1/responses":
                return [{"type": "function", "name": name, "parameters": SCHEMA} for name in names]
            case _:
                functions = [{"name": name, "parameters": SCHEMA} for name in names]
                return [{"type": "function", "function": function} for function in functions]

    def choice(self, name: str) -> dict[str, Any]:
        match self.path:
            case "/v1/messages":
                return {"type": "tool", "name": name}
            case "/v1/responses":
                return {"type": "function", "name": name}
            case _:
                return {"type": "function", "function": {"name": name}}

    def demand(self) -> Any:
        return {"type": "any"} if self.path == "/v1/messages" else "required"

    def refusal(self, body: dict[str, Any]) -> str:
        response = ask(HI, self.path, body)
        assert response.status_code == 400, response.text
        return str(response.json()["error"]["message"])

    def _limit(self) -> dict[str, int]:
        return {"max_tokens": 9} if self.path == "/v1/messages" else {}


APIS = (
    Api(CHAT, "function.name", {"type": "image_url", "image_url": {"url": "data:,"}}),
    Api("/v1/responses", "name", {"type": "input_image", "image_url": "data:,"}),
    Api("/v1/messages", "name", {"type": "image", "source": {}}),
)
every_api = pytest.mark.parametrize("api", APIS, ids=lambda api: api.path)


@every_api
def test_too_many_tools(api: Api) -> None:
    names = [f"f{i}" for i in range(MAX_TOOLS + 1)]
    assert api.refusal(api.body(tools=api.tools(names))) == (
        "'tools' has 129 entries, and at most 128 are allowed."
    )
    assert ask(HI, api.path, api.body(tools=api.tools(names[1:]))).status_code == 200


@every_api
def test_two_tools_of_one_name(api: Api) -> None:
    at = f"tools[2].{api.name_at}"
    assert api.refusal(api.body(tools=api.tools(["f", "g", "f"]))) == (
        f"Invalid '{at}': two tools are named 'f'; give each a name of its own."
    )


@every_api
def test_a_tool_that_must_be_called_and_is_not_there(api: Api) -> None:
    body = api.body(tools=api.tools(["f", "g"]), tool_choice=api.choice("h"))
    assert api.refusal(body).endswith("'h' is none of the tools of this request; its tools are 'f', 'g'.")
    many = api.body(tools=api.tools([f"f{i}" for i in range(20)]), tool_choice=api.choice("h"))
    assert api.refusal(many).endswith("'f6', 'f7', ….")
    body = api.body(tool_choice=api.choice("h"))
    assert api.refusal(body).endswith(
        "'h' is none of the tools of this request, which has none; send 'tools'."
    )


@every_api
def test_a_call_is_demanded_and_there_are_no_tools(api: Api) -> None:
    message = api.refusal(api.body(tool_choice=api.demand()))
    word = "any" if api.path == "/v1/messages" else "required"
    assert message == f"'tool_choice' is '{word}', and there are no tools; send 'tools'."


@every_api
def test_an_image_is_no_text(api: Api) -> None:
    message = api.refusal(api.with_part(api.image))
    kind = api.image["type"]
    assert f"].content[0]' is of type '{kind}', and this server's models read text only." in message
    assert "Supported types are: '" in message
