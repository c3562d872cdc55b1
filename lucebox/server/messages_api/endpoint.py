"""POST /v1/messages and POST /v1/messages/count_tokens."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import Response

from lucebox.sampling.params import SamplingParams
from lucebox.server.answer import respond
from lucebox.server.anthropic_errors import PATH, ErrorEnvelope
from lucebox.server.chat_task import ChatTask, count_prompt, generate
from lucebox.server.decode import read
from lucebox.server.json_response import json_response
from lucebox.server.messages_api.blocks import conversation
from lucebox.server.messages_api.body import MessageBody, TokensCount
from lucebox.server.messages_api.events import AnyEvent
from lucebox.server.messages_api.request import (
    CountRequest,
    MessagesRequest,
    effort_of,
    params_of,
    refuse_unsupported,
    thinking_of,
)
from lucebox.server.messages_api.shape import MessagesShape
from lucebox.server.messages_api.tools import choice_of, tools_of
from lucebox.server.operation import Contract, Operation
from lucebox.server.service import Service, Serving


async def messages(request: Request) -> Response:
    body = await read(request, MessagesRequest)
    service: Service = request.app.state.service
    service.check_model(body.model)
    refuse_unsupported(body)
    serving = await service.serving()
    task = _task(body, serving, params_of(body, serving.text.n_vocab))
    id = f"msg_{uuid4().hex}"
    generation = await generate(service, task, id)
    display = (body.thinking or {}).get("display")
    shape = MessagesShape(
        id, service.name, generation.bill, body.max_tokens, shows_thinking=display != "omitted"
    )
    return await respond(request, service, generation, shape, stream=bool(body.stream))


async def count_tokens(request: Request) -> Response:
    body = await read(request, CountRequest)
    service: Service = request.app.state.service
    service.check_model(body.model)
    refuse_unsupported(body)
    serving = await service.serving()
    task = _task(body, serving, SamplingParams())
    n_tokens = await asyncio.to_thread(count_prompt, serving, task)
    return json_response(TokensCount(n_tokens))


def _task(body: CountRequest, serving: Serving, params: SamplingParams) -> ChatTask:
    tools = tools_of(body.tools)
    choice, parallel = choice_of(body.tool_choice, tools)
    variables, reasons = serving.text.template_variables, serving.answers.reasons
    return ChatTask(
        messages=conversation(body.messages, body.system),
        params=params,
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=parallel,
        effort=effort_of(body, thinking_of(body), variables, reasons=reasons),
        effort_param="thinking",
        grammar_param="output_config.format",
    )


routes = (
    Operation(
        "POST",
        PATH,
        messages,
        "a conversation continued, as Anthropic's API has it",
        Contract(
            body=MessagesRequest,
            example={"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16},
            answer=MessageBody,
            events=AnyEvent,
            error=ErrorEnvelope,
        ),
    ),
    Operation(
        "POST",
        f"{PATH}/count_tokens",
        count_tokens,
        "how many tokens a conversation has",
        Contract(
            body=CountRequest,
            example={"messages": [{"role": "user", "content": "Say hello."}]},
            answer=TokensCount,
            error=ErrorEnvelope,
        ),
    ),
)
