"""POST /v1/responses."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response

from lucebox.sampling.params import SamplingParams
from lucebox.server.answer import respond
from lucebox.server.chat_task import ChatTask, generate
from lucebox.server.decode import read
from lucebox.server.operation import Contract, Operation
from lucebox.server.responses_api.body import ResponseBody
from lucebox.server.responses_api.events import AnyEvent
from lucebox.server.responses_api.items import conversation
from lucebox.server.responses_api.request import ResponsesRequest, effort_of, params_of, refuse_unsupported
from lucebox.server.responses_api.shape import ResponsesShape
from lucebox.server.responses_api.tools import choice_of, tools_of
from lucebox.server.service import Service


async def responses(request: Request) -> Response:
    body = await read(request, ResponsesRequest)
    service: Service = request.app.state.service
    service.check_model(body.model)
    refuse_unsupported(body)
    messages = conversation(body.input, body.instructions)
    serving = await service.serving()
    tools = tools_of(body.tools)
    tool_choice, allowed = choice_of(body.tool_choice, tools)
    task = ChatTask(
        messages=messages,
        params=params_of(body, serving.text.n_vocab),
        tools=tools,
        tool_choice=tool_choice,
        allowed_tools=allowed,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        effort=effort_of(body),
        messages_param="input",
        grammar_param="text.format",
        effort_param="reasoning.effort",
    )
    answer = response_body(body, task.params, service.name)
    generation = await generate(service, task, answer.id)
    shape = ResponsesShape(answer, serving.text.vocabulary if body.wants_logprobs else None)
    return await respond(request, service, generation, shape, stream=bool(body.stream))


def response_body(request: ResponsesRequest, params: SamplingParams, model: str) -> ResponseBody:
    """The response before anything was said."""
    reasoning, text = request.reasoning, request.text
    format = {"type": "text"} if text is None or text.format is None else text.format
    return ResponseBody(
        id=f"resp_{uuid4().hex}",
        created_at=int(time.time()),
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        max_tool_calls=request.max_tool_calls,
        metadata=request.metadata or {},
        model=model,
        parallel_tool_calls=request.parallel_tool_calls is not False,
        prompt_cache_key=request.prompt_cache_key,
        reasoning={"effort": None if reasoning is None else reasoning.effort, "summary": None},
        safety_identifier=request.safety_identifier,
        temperature=params.temperature,
        text={"format": format, "verbosity": "medium"},
        tool_choice=request.tool_choice or "auto",
        tools=[_shown(tool) for tool in request.tools or ()],
        top_logprobs=request.top_logprobs or 0,
        top_p=params.top_p,
        user=request.user,
    )


def _shown(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool as OpenAI's API gives it back: with all that clients may look for."""
    return {"description": None, "strict": False, "parameters": None} | tool


routes = (
    Operation(
        "POST",
        "/v1/responses",
        responses,
        "a conversation continued, as OpenAI's newer API has it",
        Contract(
            body=ResponsesRequest,
            example={"input": "Say hello.", "max_output_tokens": 16},
            answer=ResponseBody,
            events=AnyEvent,
        ),
    ),
)
