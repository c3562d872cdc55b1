"""langchain-openai against the server at argv[1]: bind_tools, with_structured_output, stream."""

import sys

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field


@tool
def add(a: int, b: int) -> int:
    """Adds two integers."""
    return a + b


class Answer(BaseModel):
    """An answer with how sure it is."""

    text: str = Field(max_length=30)
    is_sure: bool


def main() -> None:
    model = ChatOpenAI(base_url=f"{sys.argv[1]}/v1", api_key="x", model="m", temperature=0, max_tokens=96)
    bound = model.bind_tools([add], tool_choice="add")
    question = HumanMessage("What is 2 plus 3?")
    message = bound.invoke([question])
    assert isinstance(message, AIMessage)
    assert not message.invalid_tool_calls
    (call,) = message.tool_calls
    assert call["name"] == "add"
    result = ToolMessage(add.invoke(call["args"]), tool_call_id=call["id"])
    assert model.invoke([question, message, result]).content
    for method in ("function_calling", "json_schema"):
        answer = model.with_structured_output(Answer, method=method).invoke("Is the sky blue?")
        assert isinstance(answer, Answer), method
    chunks = list(model.stream("Count to three."))
    assert len(chunks) > 1
    assert "".join(str(chunk.content) for chunk in chunks)
    whole = None
    for chunk in bound.stream([question]):
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    assert whole.tool_calls[0]["args"] == call["args"]


main()
