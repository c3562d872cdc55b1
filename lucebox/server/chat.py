"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lucebox.engine.messages import TokenLogprobs
from lucebox.server import sse
from lucebox.server.answer import Answer, Head, OpenAIErrors, respond
from lucebox.server.chat_task import ChatTask, generate
from lucebox.server.decode import read
from lucebox.server.generation import Bill, Piece
from lucebox.server.logprobs import TokenNames, chat_logprobs
from lucebox.server.messages import template_messages
from lucebox.server.operation import Contract, Operation
from lucebox.server.responses import (
    AssistantReply,
    CalledFunction,
    ChatChoice,
    ChatChunkChoice,
    ChatLogprobs,
    Completion,
    Delta,
    FunctionDelta,
    ToolCallBody,
    ToolCallDelta,
    Usage,
)
from lucebox.server.schema import ChatRequest, chat_params, refuse_unsupported
from lucebox.server.service import Service
from lucebox.server.token_report import TokenReport
from lucebox.server.tools import choice_of, tools_of
from lucebox.text.answer_parser import CallArguments, CallStart, Content, Reasoning, Segment


async def chat_completions(request: Request) -> Response:
    body = await read(request, ChatRequest)
    service: Service = request.app.state.service
    service.check_model(body.model)
    refuse_unsupported(body)
    messages = template_messages(body.messages)
    tools = tools_of(body.tools)
    choice, allowed = choice_of(body.tool_choice, tools)
    serving = await service.serving()
    task = ChatTask(
        messages=messages,
        tools=tools,
        tool_choice=choice,
        allowed_tools=allowed,
        parallel_tool_calls=body.parallel_tool_calls is not False,
        effort=body.reasoning_effort,
        template_kwargs=body.chat_template_kwargs or {},
        grammar_param="response_format" if body.grammar is None else "grammar",
        params=chat_params(body, serving.text.n_vocab),
        n=body.n or 1,
        prediction=None if body.prediction is None else body.prediction.text,
        traced=body.include_tokens,
    )
    head = Head.new("chatcmpl", service)
    generation = await generate(service, task, head.id)
    vocabulary = serving.text.vocabulary
    report = TokenReport(vocabulary) if body.include_tokens else None
    shape = ChatShape(head, vocabulary if body.logprobs else None, report, usage=body.include_usage)
    return await respond(request, service, generation, shape, stream=bool(body.stream))


class ChatShape(OpenAIErrors):
    """Answers as chat.completion objects. `vocabulary` is None unless log-probabilities are wanted.

    `usage`: a stream ends with a chunk that has it, and nothing else. With `report`, chunks of a stream say
    where their tokens came from.
    """

    def __init__(
        self, head: Head, vocabulary: TokenNames | None, report: TokenReport | None = None, *, usage: bool
    ) -> None:
        self._head = head
        self._vocabulary = vocabulary
        self._report = report
        self._usage = usage

    def opening(self, index: int) -> list[bytes]:
        return [self._event([ChatChunkChoice(index, Delta(role="assistant", content=""))])]

    def chunk(self, piece: Piece, bill: Bill | None) -> list[bytes]:
        deltas = [_delta(segment) for segment in piece.segments]
        logprobs = self._logprobs(piece.logprobs) if piece.logprobs else None
        is_reported = self._report is not None and bool(piece.tokens)
        if not deltas and (logprobs or piece.finish_reason or is_reported):
            deltas.append(Delta())
        events = []
        for i, delta in enumerate(deltas):  # all log-probabilities and tokens go with the first
            choice = ChatChunkChoice(piece.index, delta, None if i else logprobs, piece.finish_reason)
            reported = piece if is_reported and not i else None
            events.append(self._event([choice], None if self._usage else bill, reported=reported))
        return events

    def closing(self, bill: Bill) -> list[bytes]:
        return [self._event([], bill, Usage.of(bill)), sse.DONE] if self._usage else [sse.DONE]

    def whole(self, answers: Sequence[Answer], bill: Bill) -> Completion[ChatChoice]:
        choices = [
            ChatChoice(i, _reply(a), a.finish_reason, self._logprobs(a.logprobs))
            for i, a in enumerate(answers)
        ]
        return self._head.completion("chat.completion", choices, Usage.of(bill), bill)

    def _logprobs(self, entries: Sequence[TokenLogprobs]) -> ChatLogprobs | None:
        return None if self._vocabulary is None else chat_logprobs(entries, self._vocabulary)

    def _event(
        self,
        choices: list[ChatChunkChoice],
        bill: Bill | None = None,
        usage: Usage | None = None,
        *,
        reported: Piece | None = None,
    ) -> bytes:
        shown = usage if self._usage else msgspec.UNSET
        chunk = self._head.completion("chat.completion.chunk", choices, shown, bill)
        if self._report is None or reported is None:
            return sse.data(chunk)
        return sse.data(self._report.added_to(chunk, reported))


def _delta(segment: Segment) -> Delta:
    match segment:
        case Content(text):
            return Delta(content=text)
        case Reasoning(text):
            return Delta(reasoning_content=text)
        case CallStart(index, id, name):
            return Delta(tool_calls=[ToolCallDelta(index, FunctionDelta("", name), id, "function")])
        case CallArguments(index, text):
            return Delta(tool_calls=[ToolCallDelta(index, FunctionDelta(text))])


def _reply(answer: Answer) -> AssistantReply:
    calls = [ToolCallBody(call.id, CalledFunction(call.name, call.arguments)) for call in answer.calls]
    return AssistantReply(
        content=None if calls and not answer.content else answer.content,
        reasoning_content=answer.reasoning or msgspec.UNSET,
        tool_calls=calls or msgspec.UNSET,
    )


routes = (
    Operation(
        "POST",
        "/v1/chat/completions",
        chat_completions,
        "a conversation continued",
        Contract(
            body=ChatRequest,
            example={"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16},
            answer=Completion[ChatChoice],
            events=Completion[ChatChunkChoice],
            last_event="[DONE]",
        ),
    ),
)
