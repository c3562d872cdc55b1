"""A conversation to be continued, whichever endpoint asks: from messages to a generation."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from lucebox.errors import ContextLengthError, RequestError, TemplateError
from lucebox.grammar import Grammar
from lucebox.sampling.params import SamplingParams
from lucebox.server.effort import Effort, effort_kwargs
from lucebox.server.errors import ApiError, without_folders
from lucebox.server.generation import Generation
from lucebox.server.logprobs import TokenNames
from lucebox.server.service import Service, Serving
from lucebox.server.tools import ToolMode
from lucebox.text.answer_parser import AnswerParser
from lucebox.text.tools import Tool

__all__ = ["ChatTask", "ToolMode", "count_prompt", "generate"]

_N_END_TOKENS = 24  # of the prompt: enough for a mark of reasoning, spelt out


@dataclass(slots=True, kw_only=True)
class ChatTask:
    """What is to be generated. `messages` are as chat templates have them.

    `tool_choice` is a mode, or the name of the one tool that must be called; `allowed_tools` are the names of
    those that may be, if not all. `params.grammar` binds answers without calls. `effort`, or else
    `reasoning`, says how hard to think, where the model's template can; None leaves it to the template.
    `traced` pieces tell of rounds. `grammar_param`, `effort_param` and `messages_param` are what the request
    calls them.
    """

    messages: list[dict[str, Any]]
    params: SamplingParams
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolMode | str = "auto"
    allowed_tools: Collection[str] | None = None
    parallel_tool_calls: bool = True
    n: int = 1
    prediction: str | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    effort: Effort | None = None
    reasoning: bool | None = None
    traced: bool = False
    grammar_param: str = "response_format"
    effort_param: str = "reasoning_effort"
    messages_param: str = "messages"

    @property
    def callable_tools(self) -> tuple[Tool, ...]:
        """Those that the answer may call."""
        if self.tool_choice == "none":
            return ()
        allowed = self.allowed_tools
        return tuple(tool for tool in self.tools if allowed is None or tool.name in allowed)

    @property
    def binding_param(self) -> str:
        """The field that a grammar of the answer comes from."""
        return "tools" if self.callable_tools and self.params.grammar is None else self.grammar_param


async def generate(service: Service, task: ChatTask, id: str) -> Generation:
    """`task` ready to run as request `id`. Raises ApiError or RequestError naming what is wrong with it."""
    serving = await service.serving()
    plan = await asyncio.to_thread(_plan, serving, task)
    answers, tools = serving.answers, task.callable_tools

    def parser() -> AnswerParser:
        is_bound = plan.params.grammar is not None
        parallel = task.parallel_tool_calls
        return answers.parser(tools, opened=plan.opened, eager=is_bound, parallel=parallel)

    generation = Generation(
        serving.engine,
        serving.text.vocabulary,
        id,
        [plan.prompt],
        plan.params,
        task.n,
        plan.prediction,
        make_parser=parser,
        markers=_markers(serving, has_tools=bool(tools)),
        traced=task.traced,
        grammar_param=task.binding_param,
    )
    generation.bill.n_reasoning = 0 if answers.reasons else None
    return generation


@dataclass(frozen=True, slots=True)
class _Plan:
    """What takes a while to find out. `opened`: the answer begins in mid-thought."""

    prompt: list[int]
    prediction: list[int] | None
    params: SamplingParams
    opened: bool


def _plan(serving: Serving, task: ChatTask) -> _Plan:
    prompt = _encoded(serving, task)
    if len(prompt) >= serving.info.n_ctx:
        raise ContextLengthError(serving.info.n_ctx, len(prompt), param=task.messages_param)
    opened = serving.answers.is_open(_end_of(prompt, serving.text.vocabulary))
    params = msgspec.structs.replace(task.params, grammar=_grammar(serving, task, opened=opened))
    return _Plan(prompt, _prediction(serving, task), params, opened)


def count_prompt(serving: Serving, task: ChatTask) -> int:
    """Tokens of the prompt, which may be longer than the context. Raises as `generate` does."""
    return len(_encoded(serving, task))


def _encoded(serving: Serving, task: ChatTask) -> list[int]:
    text, format = serving.text, serving.answers.tools
    tools = task.tools if task.tool_choice != "none" else ()
    messages = format.prepare(task.messages, tools, task.tool_choice)
    kwargs = {**_effort_kwargs(serving, task), **task.template_kwargs}
    shown = [tool.for_template() for tool in tools] if format.knows_tools else []
    try:
        return text.encode_chat(messages, tools=shown, template_kwargs=kwargs)
    except RequestError as error:
        named = error.param or ""
        is_ours = named.startswith((f"{task.messages_param}[", "chat_template_kwargs"))
        raise ApiError(str(error), param=named if is_ours else task.messages_param, code=error.code) from None
    except TemplateError as error:
        problem = without_folders(str(error))
        raise ApiError(problem, param=task.messages_param, code="invalid_value") from None


def _effort_kwargs(serving: Serving, task: ChatTask) -> dict[str, Any]:
    effort = task.effort
    if effort is None and task.reasoning is not None:
        effort = "medium" if task.reasoning else "none"
    variables, reasons = serving.text.template_variables, serving.answers.reasons
    return effort_kwargs(effort, variables, reasons=reasons, param=task.effort_param)


def _grammar(serving: Serving, task: ChatTask, *, opened: bool) -> Grammar | None:
    """What binds the answer. Raises ApiError naming the tool, or the field, that is wrong."""
    answers, tools = serving.answers, task.callable_tools
    compose = partial(answers.grammar, parallel=task.parallel_tool_calls, opened=opened)
    try:
        grammar = compose(tools, task.tool_choice, answer=task.params.grammar)
        if grammar is not None:
            serving.text.check_grammar(grammar)
    except RequestError as error:
        for tool in tools:
            _check_tool(serving, compose([tool], "required", answer=None), tool)
        raise ApiError(str(error), param=task.binding_param, code="invalid_value") from None
    return grammar


def _check_tool(serving: Serving, grammar: Grammar | None, tool: Tool) -> None:
    assert grammar is not None
    try:
        serving.text.check_grammar(grammar)
    except RequestError as error:
        raise ApiError(f"Invalid '{tool.path}': {error}", param=tool.path, code="invalid_value") from None


def _markers(serving: Serving, *, has_tools: bool) -> dict[int, str]:
    """The control tokens that the parser of an answer must see."""
    text = serving.text
    names = serving.answers.markers_of(has_tools=has_tools)
    ids = {name: text.named_tokens[name] for name in names if name in text.named_tokens}
    return {id: name for name, id in ids.items() if not text.vocabulary.token_bytes(id)}


def _end_of(prompt: Sequence[int], vocabulary: TokenNames) -> str:
    tail = b"".join(vocabulary.bytes_of(token) for token in prompt[-_N_END_TOKENS:])
    return tail.decode("utf-8", "replace")


def _prediction(serving: Serving, task: ChatTask) -> list[int] | None:
    """As much of it as an answer may have; None where none was made, which the bill then says nothing of."""
    if task.prediction is None:
        return None
    try:
        return serving.text.encode_plain(task.prediction)[: serving.info.n_ctx]
    except RequestError as error:
        raise ApiError(str(error), param="prediction", code=error.code) from None
