"""POST /v1/embeddings."""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated, Any, Literal
from uuid import uuid4

import msgspec
import numpy as np
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from lucebox.errors import ContextLengthError, RequestError
from lucebox.server.access import record_of
from lucebox.server.decode import read
from lucebox.server.disconnect import until_disconnect
from lucebox.server.embedding_job import EmbeddingJob, Vector
from lucebox.server.errors import ApiError
from lucebox.server.generation import Bill
from lucebox.server.operation import Contract, Operation
from lucebox.server.sampled_request import Int64
from lucebox.server.service import Service, TextModel
from lucebox.server.token_inputs import check_token_ids, named_inputs

MAX_TEXTS = 2048  # as OpenAI has it


class EmbeddingRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`input` is a text, token ids, or a list of either. `dimensions`: only so many numbers of each vector,
    which then has length 1 again."""

    input: str | list[str | Int64 | list[Int64]]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    user: Any = None


class Embedding(msgspec.Struct, frozen=True, kw_only=True):
    """`embedding` is a list of numbers, or the base64 of float32 ones, little-endian."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    total_tokens: int


class Embeddings(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


async def embeddings(request: Request) -> Response:
    body = await read(request, EmbeddingRequest)
    service: Service = request.app.state.service
    service.check_model(body.model)
    serving = await service.serving()
    info = serving.info
    if body.dimensions is not None and body.dimensions > info.target.n_embd:
        raise ApiError(
            f"'dimensions' is {body.dimensions}, and this model's vectors have {info.target.n_embd}.",
            param="dimensions",
            code="invalid_value",
        )
    texts = await asyncio.to_thread(_texts, body.input, serving.text, info.n_ctx)
    bill = record_of(request.scope).bill = Bill(sum(map(len, texts)))
    id = f"embd-{uuid4().hex}"
    with service.job(EmbeddingJob(serving.engine, id, texts, service.config.pooling, info.n_parallel)) as job:
        vectors = await until_disconnect(request.receive, job.vectors())
    service.tally.note_texts(len(texts), bill.n_prompt)
    answer = await asyncio.to_thread(_answer, body, vectors, service.name, bill.n_prompt)
    return Response(answer, media_type="application/json")


def _answer(body: EmbeddingRequest, vectors: list[Vector], model: str, n_tokens: int) -> bytes:
    data = []
    for index, vector in enumerate(vectors):
        shown = vector if body.dimensions is None else shortened(vector, body.dimensions)
        is_base64 = body.encoding_format == "base64"
        numbers = base64.b64encode(shown.tobytes()).decode() if is_base64 else shown.tolist()
        data.append(Embedding(index=index, embedding=numbers))
    usage = EmbeddingUsage(n_tokens, n_tokens)
    return msgspec.json.encode(Embeddings(data=data, model=model, usage=usage))


def shortened(vector: Vector, n: int) -> Vector:
    """float32[n]: the first numbers of `vector`, again of length 1 (Matryoshka representations)."""
    part = vector[:n]
    length = float(np.linalg.norm(part))
    return part / np.float32(length) if length else part


def _texts(given: str | list[Any], text: TextModel, n_ctx: int) -> list[list[int]]:
    """The tokens of every text. Raises ApiError naming a wrong one, ContextLengthError if one is too long."""
    named = named_inputs("input", given)
    if len(named) > MAX_TEXTS:
        raise ApiError(
            f"'input' has {len(named)} texts, and at most {MAX_TEXTS} are taken.",
            param="input",
            code="array_above_max_length",
        )
    return [_tokens(name, item, text, n_ctx) for name, item in named]


def _tokens(name: str, item: object, text: TextModel, n_ctx: int) -> list[int]:
    if isinstance(item, str):
        tokens = _encoded(name, item, text) if item else []
    elif isinstance(item, list):
        tokens = item
    else:
        raise ApiError(
            "'input' must be a string, a list of strings, a list of token ids or a list of such lists.",
            param=name,
            code="invalid_type",
        )
    if not tokens:
        raise ApiError(f"'{name}' is empty.", param=name, code="invalid_value")
    if len(tokens) > n_ctx:
        raise ContextLengthError(n_ctx, len(tokens), param=name)
    check_token_ids(name, tokens, text.n_vocab)
    return tokens


def _encoded(name: str, item: str, text: TextModel) -> list[int]:
    """Names of control tokens are text: whoever wrote what is embedded does not steer the model."""
    try:
        return text.tokenize(item, add_special=True, parse_special=False)
    except RequestError as error:
        raise ApiError(str(error), param=name, code=error.code) from None


routes = (
    Operation(
        "POST",
        "/v1/embeddings",
        embeddings,
        "vectors of texts, to compare them",
        Contract(body=EmbeddingRequest, example={"input": ["a cat", "a dog"]}, answer=Embeddings),
    ),
)
