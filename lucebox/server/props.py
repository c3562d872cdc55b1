"""GET /props: what this server is set to, in llama.cpp's words where it has them. No paths."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lucebox import __version__
from lucebox.config import Pooling
from lucebox.sampling.params import SamplingParams
from lucebox.server.json_response import json_response
from lucebox.server.operation import Contract, Operation
from lucebox.server.service import Service


class Modalities(msgspec.Struct, frozen=True):
    vision: bool = False
    audio: bool = False


class GenerationSettings(msgspec.Struct, frozen=True):
    """What a request gets that says nothing. `n_ctx` is per sequence."""

    n_ctx: int
    params: SamplingParams


class Speculation(msgspec.Struct, frozen=True):
    """Who guesses for requests that name nobody, preferred first, and how guesses are measured and judged."""

    drafters: tuple[str, ...]
    draft_model: str | None
    draft_length: str
    acceptance: str


class Props(msgspec.Struct, frozen=True, kw_only=True):
    """`chat_template` is in Jinja, null for a model without; `n_embd` numbers make a vector of a text."""

    default_generation_settings: GenerationSettings
    total_slots: int
    model_alias: str
    model_name: str
    architecture: str
    device: str
    chat_template: str | None
    pooling: Pooling
    n_embd: int
    speculation: Speculation
    modalities: Modalities = Modalities()
    build_info: str


async def props(request: Request) -> Response:
    service: Service = request.app.state.service
    serving = await service.serving()
    info = serving.info
    body = Props(
        default_generation_settings=GenerationSettings(info.n_ctx, SamplingParams()),
        total_slots=info.n_parallel,
        model_alias=service.name,
        model_name=info.target.name,
        architecture=info.target.architecture,
        device=info.target.device,
        chat_template=serving.text.template_source,
        pooling=service.config.pooling,
        n_embd=info.target.n_embd,
        speculation=Speculation(
            drafters=info.drafters,
            draft_model=None if info.draft is None else info.draft.name,
            draft_length=info.draft_length,
            acceptance=info.acceptance,
        ),
        build_info=f"lucebox {__version__}",
    )
    return json_response(body)


routes = (Operation("GET", "/props", props, "the model, its template, and defaults", Contract(answer=Props)),)
