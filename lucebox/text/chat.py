"""Chat templates: from the messages of a conversation to the prompt a model was trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from jinja2 import TemplateSyntaxError
from jinja2.exceptions import SecurityError
from jinja2.meta import find_undeclared_variables

from lucebox.errors import RequestError, TemplateError
from lucebox.text.fields import TokenizerFields
from lucebox.text.literal import Literal
from lucebox.text.template_sandbox import TemplateRefusalError, TemplateSandbox
from lucebox.text.tokenizer import Tokenizer
from lucebox.text.tools import MAX_NESTING, nests_deeper_than

Message = Mapping[str, Any]

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_CHATML_MARKERS = {"<|im_start|>", "<|im_end|>"}
_TEMPLATE_KEY = "tokenizer.chat_template"
_RESERVED = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})
_BROKEN = "use /v1/completions or generate with a prompt of your own, or another file of this model"


class ChatTemplate:
    """A model's chat template, in Jinja, run in a sandbox. Threads may share it.

    `bos_token` and `eos_token` are the texts of these tokens, which a template may spell out. `path` is for
    messages.
    """

    def __init__(
        self, source: str, *, bos_token: str = "", eos_token: str = "", path: object = "chat template"
    ) -> None:
        """TemplateError for a template that is no Jinja."""
        self.source = source
        self._path = path
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        try:
            sandbox = TemplateSandbox()
            self._render = sandbox.compile_template(source)
            self.variables = frozenset(find_undeclared_variables(sandbox.parse(source)))
        except TemplateSyntaxError as error:
            raise self._error(f"line {error.lineno}: {error.message}") from error
        except Exception as error:
            raise self._error(f"does not compile: {_said(error)}") from error

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], path: object = "metadata") -> ChatTemplate | None:
        """The template of a GGUF file, ChatML if it has none but ChatML's tokens, else None.

        Raises TemplateError for a broken template, ModelFileError for a broken tokenizer.
        """
        fields = TokenizerFields(metadata, path)
        texts = fields.strings("tokens")
        source = metadata.get(_TEMPLATE_KEY)
        if source is None:
            if not set(texts) >= _CHATML_MARKERS:
                return None
            source = CHATML
        if not isinstance(source, str):
            raise TemplateError(f"{path}: {_TEMPLATE_KEY}: is not a string", remedy=_BROKEN)
        names = {}
        for name in ("bos", "eos"):
            token = fields.token_id(f"{name}_token_id", len(texts))
            names[f"{name}_token"] = "" if token is None else texts[token]
        return cls(source, path=path, **names)

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt, as text, that the model is to continue.

        A message is `{"role": …, "content": a text, a list of text parts or None}`, and what else the
        template takes, such as `tool_calls`. `extra` are further variables of it, such as `enable_thinking`.
        Raises TemplateError where the template fails or refuses the messages, RequestError for messages of
        another form.
        """
        extra = extra or {}
        reserved = _RESERVED & extra.keys()
        if reserved:
            raise RequestError(
                f"{min(reserved)} cannot be set for a chat template",
                param="chat_template_kwargs",
                remedy="leave it out",
            )
        if nests_deeper_than(extra, MAX_NESTING):
            raise RequestError(
                f"values nest more than {MAX_NESTING} levels deep", param="chat_template_kwargs"
            )
        unknown = extra.keys() - self.variables
        if unknown:
            raise RequestError(
                f"the model's chat template has no variable {min(unknown)!r:.80}",
                param="chat_template_kwargs",
                remedy="leave it out",
            )
        conversation = [_message(index, message) for index, message in enumerate(_checked(messages))]
        try:
            return self._render(
                messages=conversation,
                tools=list(tools) if tools else None,
                add_generation_prompt=add_generation_prompt,
                **self._tokens,
                **extra,
            )
        except TemplateRefusalError as error:
            raise TemplateError(
                f"The model's chat template refuses the messages: {error}",
                remedy="send messages of the roles and in the order that it takes",
            ) from error
        except SecurityError as error:
            raise self._error(f"is refused: {error}") from error
        except Exception as error:
            raise self._error(f"fails on these messages: {_said(error)}") from error

    def text(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> str:
        """As `render`, of messages whose calls may be as `encode` takes them."""
        return self.render(
            [self._with_arguments(message) for message in _checked(messages)],
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            extra=extra,
        )

    def encode(
        self,
        messages: Sequence[Message],
        tokenizer: Tokenizer,
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """The token ids of the prompt; control tokens come from the template alone.

        The name of one in a message is text like any other: it cannot end the message or begin another.
        Without such names the ids are those of the rendered text. Raises as `render` does. The arguments of
        calls may be JSON in a string, as OpenAI's API has them, whichever form the template takes.
        """
        literal = Literal(tokenizer.control_tokens, avoid=self.source)
        conversation = [self._with_arguments(message) for message in _checked(messages)]
        given = literal.hide({"messages": conversation, "tools": tools, "extra": extra})
        prompt = self.render(
            given["messages"],
            add_generation_prompt=add_generation_prompt,
            tools=given["tools"],
            extra=given["extra"],
        )
        ids = tokenizer.encode(prompt, parse_special=True, add_bos=False, stand_ins=literal.stand_ins)
        vocabulary = tokenizer.vocabulary
        if vocabulary.add_bos and vocabulary.bos_id is not None and ids[:1] != [vocabulary.bos_id]:
            ids.insert(0, vocabulary.bos_id)
        return ids

    def _with_arguments(self, message: Message) -> Message:
        """The message with the arguments of its calls as the template takes them."""
        if not (calls := message.get("tool_calls")) or self._wants_text_arguments:
            return message
        return {**message, "tool_calls": [_with_object(call) for call in calls]}

    @cached_property
    def _wants_text_arguments(self) -> bool:
        """Most templates turn arguments into JSON themselves; some paste them, and want a text."""
        function = {"name": "f", "arguments": {"probe": "x"}}
        call = {"id": "call00001", "type": "function", "function": function}
        messages: list[Message] = [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ]
        try:
            return "{'probe'" in self.render(messages, add_generation_prompt=False)
        except TemplateError:
            return True

    def _error(self, problem: str) -> TemplateError:
        return TemplateError(f"{self._path}: {_TEMPLATE_KEY}: {problem}", remedy=_BROKEN)


def _checked(messages: Sequence[Message]) -> Sequence[Message]:
    """Raises RequestError for what is no list of messages: users of the library may pass anything."""
    if isinstance(messages, Sequence) and not isinstance(messages, str | bytes):
        wrong = [message for message in messages if not isinstance(message, Mapping)]
        if not wrong:
            return messages
        problem = f"messages has {type(wrong[0]).__name__} for a message"
    else:
        problem = f"messages is {type(messages).__name__}, not a list of messages"
    raise RequestError(
        problem, param="messages", remedy='send [{"role": "user", "content": "Hi"}] or the like'
    )


def _message(index: int, message: Message) -> dict[str, Any]:
    """The message with its text parts joined, as nearly all templates expect it."""
    field = f"messages[{index}].content"
    content = message.get("content")
    if content is None:
        return {"content": None if message.get("tool_calls") else "", **_without_content(message)}
    if isinstance(content, str):
        return dict(message)
    if not isinstance(content, list | tuple):
        raise RequestError(f"{field} is neither a string nor a list of parts", param=field)
    texts = []
    for part in content:
        text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None
        if not isinstance(text, str):
            raise RequestError(f"{field} has a part that is no text", param=field, remedy="send text only")
        texts.append(text)
    return {**message, "content": "\n".join(texts)}


def _with_object(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """The call with its arguments as an object, if their text is one."""
    function = call.get("function")
    if not isinstance(function, Mapping) or not isinstance(text := function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        return call
    if not isinstance(arguments, dict) or nests_deeper_than(arguments, MAX_NESTING):
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def _without_content(message: Message) -> dict[str, Any]:
    return {key: value for key, value in message.items() if key != "content"}


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
