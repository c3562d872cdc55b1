"""The prompts of a completion request: texts or token ids, one or several."""

from __future__ import annotations

from dataclasses import dataclass

from lucebox.errors import ContextLengthError
from lucebox.server.errors import ApiError
from lucebox.server.sampled_request import MAX_CHOICES
from lucebox.server.schema import CompletionRequest
from lucebox.server.service import TextModel
from lucebox.server.token_inputs import named_inputs


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids, and the text they stand for where it is to be echoed."""

    tokens: list[int]
    text: str = ""


def prompts_of(body: CompletionRequest, text: TextModel, n_ctx: int) -> list[Prompt]:
    """Every prompt of the request. Raises ApiError naming a wrong one, ContextLengthError if too long."""
    named = named_inputs("prompt", body.prompt)
    n_each = max(body.n or 1, body.best_of or 1)
    if len(named) * n_each > MAX_CHOICES:
        raise ApiError(f"At most {MAX_CHOICES} choices in one request.", param="prompt", code="invalid_value")
    return [_prompt(name, item, body, text, n_ctx) for name, item in named]


def _prompt(name: str, item: object, body: CompletionRequest, text: TextModel, n_ctx: int) -> Prompt:
    if not isinstance(item, str | list):
        raise ApiError(
            "'prompt' must be a string, a list of strings, a list of token ids or a list of such lists.",
            param=name,
            code="invalid_type",
        )
    if isinstance(item, list):
        _check_tokens(name, item, text.n_vocab)
    if body.suffix:
        tokens = text.encode_infill(item, body.suffix)
    else:
        tokens = text.encode(item) if isinstance(item, str) else item
    if not tokens:
        raise ApiError(f"'{name}' is empty: there is nothing to continue.", param=name, code="invalid_value")
    # With nothing to generate, no room is needed for it, but the engine asks for it.
    if len(tokens) >= n_ctx:
        raise ContextLengthError(n_ctx, len(tokens), param="prompt")
    return Prompt(tokens, _echo(item, text) if body.echo else "")


def _check_tokens(name: str, tokens: list[object], n_vocab: int) -> None:
    for i, token in enumerate(tokens):
        at = f"{name}[{i}]"
        if not isinstance(token, int):
            raise ApiError(f"'{at}' is no token id.", param=at, code="invalid_type")
        if not 0 <= token < n_vocab:
            raise ApiError(
                f"'{at}': token id {token} is outside the vocabulary of {n_vocab}.",
                param=at,
                code="invalid_value",
            )


def _echo(item: str | list[int], text: TextModel) -> str:
    if isinstance(item, str):
        return item
    return b"".join(map(text.vocabulary.token_bytes, item)).decode("utf-8", "replace")
