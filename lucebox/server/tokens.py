"""POST /tokenize, /detokenize and /apply-template: what the model reads, as numbers and as text."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from lucebox.server.decode import read
from lucebox.server.errors import ApiError
from lucebox.server.json_response import json_response
from lucebox.server.messages import Message, template_messages
from lucebox.server.operation import Contract, Operation
from lucebox.server.service import Service, TextModel
from lucebox.server.token_inputs import check_token_ids

TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class TokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A text, as `content` (llama.cpp's name) or as `prompt` (vLLM's).

    `add_special`: with the tokens that the model has around every text, by default only for a `prompt`.
    `parse_special`: names of control tokens, as `<|im_end|>`, become these tokens.
    """

    content: str | None = None
    prompt: str | None = None
    model: str | None = None
    add_special: bool | None = None
    add_special_tokens: bool | None = None  # the same in vLLM's words
    parse_special: bool = True
    with_pieces: bool = False


class TokenPiece(msgspec.Struct, frozen=True):
    """A token and what it stands for: its text, or its bytes where these are no text."""

    id: int
    piece: str | list[int]


class Tokens(msgspec.Struct, frozen=True):
    """`tokens` are numbers, or pieces if asked for. `max_model_len` is the context in tokens."""

    tokens: list[int | TokenPiece]
    count: int
    max_model_len: int


class DetokenizeRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    tokens: list[TokenId]
    model: str | None = None


class Detokenized(msgspec.Struct, frozen=True):
    """The text under llama.cpp's and under vLLM's name; bytes that are no UTF-8 show as U+FFFD."""

    content: str
    prompt: str


class TemplateRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    messages: list[Message]
    model: str | None = None
    add_generation_prompt: bool = True
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class TemplatedPrompt(msgspec.Struct, frozen=True):
    prompt: str


async def tokenize(request: Request) -> Response:
    body = await read(request, TokenizeRequest)
    service: Service = request.app.state.service
    service.check_model(body.model)
    text, add_special = _text(body)
    serving = await service.serving()
    tokens = await asyncio.to_thread(
        serving.text.tokenize, text, add_special=add_special, parse_special=body.parse_special
    )
    shown: list[int | TokenPiece] = list(tokens)
    if body.with_pieces:
        shown = [_piece(serving.text, token) for token in tokens]
    return json_response(Tokens(shown, len(tokens), serving.info.n_ctx))


async def detokenize(request: Request) -> Response:
    body = await read(request, DetokenizeRequest)
    service: Service = request.app.state.service
    service.check_model(body.model)
    text = (await service.serving()).text
    check_token_ids("tokens", body.tokens, text.n_vocab)
    content = b"".join(map(text.vocabulary.bytes_of, body.tokens)).decode("utf-8", "replace")
    return json_response(Detokenized(content, content))


async def apply_template(request: Request) -> Response:
    body = await read(request, TemplateRequest)
    service: Service = request.app.state.service
    service.check_model(body.model)
    messages = template_messages(body.messages)
    text = (await service.serving()).text
    prompt = await asyncio.to_thread(
        text.apply_template,
        messages,
        tools=body.tools or (),
        template_kwargs=body.chat_template_kwargs,
        add_generation_prompt=body.add_generation_prompt,
    )
    return json_response(TemplatedPrompt(prompt))


def _text(body: TokenizeRequest) -> tuple[str, bool]:
    """The text, and whether tokens are added around it. Raises ApiError for none and for two."""
    if (body.content is None) == (body.prompt is None):
        raise ApiError(
            "Exactly one of 'content' and 'prompt' is needed.",
            param="content",
            code="missing_required_parameter" if body.content is None else "invalid_value",
        )
    asked = body.add_special if body.add_special is not None else body.add_special_tokens
    text = body.prompt if body.content is None else body.content
    assert text is not None
    return text, body.content is None if asked is None else asked


def _piece(text: TextModel, token: int) -> TokenPiece:
    spelling = text.vocabulary.bytes_of(token)
    try:
        return TokenPiece(token, spelling.decode())
    except UnicodeDecodeError:
        return TokenPiece(token, list(spelling))


routes = (
    Operation(
        "POST",
        "/tokenize",
        tokenize,
        "a text as tokens, with `with_pieces` spelt out",
        Contract(body=TokenizeRequest, example={"content": "Hello!", "with_pieces": True}, answer=Tokens),
    ),
    Operation(
        "POST",
        "/detokenize",
        detokenize,
        "tokens as text",
        Contract(body=DetokenizeRequest, example={"tokens": [1, 2]}, answer=Detokenized),
    ),
    Operation(
        "POST",
        "/apply-template",
        apply_template,
        "the prompt that messages become",
        Contract(
            body=TemplateRequest,
            example={"messages": [{"role": "user", "content": "Say hello."}]},
            answer=TemplatedPrompt,
        ),
    ),
)
