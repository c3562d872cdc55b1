"""GET /v1/models and /v1/models/{model}."""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lucebox.engine.messages import EngineInfo
from lucebox.server.json_response import json_response
from lucebox.server.operation import Contract, Operation
from lucebox.server.service import Service


class ModelMeta(msgspec.Struct, frozen=True):
    """What a ready engine tells of the model; `n_ctx` is per sequence, sizes are bytes."""

    architecture: str
    device: str
    n_vocab: int
    n_ctx: int
    n_ctx_train: int
    size: int
    draft: str | None
    draft_device: str | None
    drafters: tuple[str, ...]
    draft_length: str
    acceptance: str

    @classmethod
    def of(cls, info: EngineInfo) -> ModelMeta:
        target, draft = info.target, info.draft
        return cls(
            architecture=target.architecture,
            device=target.device,
            n_vocab=target.n_vocab,
            n_ctx=info.n_ctx,
            n_ctx_train=target.n_ctx_train,
            size=target.n_bytes,
            draft=draft.name if draft else None,
            draft_device=draft.device if draft else None,
            drafters=info.drafters,
            draft_length=info.draft_length,
            acceptance=info.acceptance,
        )


class Model(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "lucebox"
    meta: ModelMeta | None = None


class ModelList(msgspec.Struct, frozen=True):
    data: list[Model]
    object: Literal["list"] = "list"


async def list_models(request: Request) -> Response:
    return json_response(ModelList([_model(request.app.state.service)]))


async def get_model(request: Request) -> Response:
    service: Service = request.app.state.service
    service.check_model(request.path_params["model"])
    return json_response(_model(service))


def _model(service: Service) -> Model:
    info = service.info()
    meta = None if info is None else ModelMeta.of(info)
    return Model(id=service.name, created=service.created, meta=meta)


routes = (
    Operation("GET", "/v1/models", list_models, "the model that is served", Contract(answer=ModelList)),
    Operation("GET", "/v1/models/{model:path}", get_model, "the same by its name", Contract(answer=Model)),
)
