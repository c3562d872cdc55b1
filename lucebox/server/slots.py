"""GET /slots: what each of the sequences that run at the same time is doing."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lucebox.engine.engine_load import SlotState
from lucebox.server.json_response import json_response
from lucebox.server.operation import Contract, Operation
from lucebox.server.service import Service


class Slot(msgspec.Struct, frozen=True):
    """`n_cached` of `n_prompt` tokens were known before; `n_tokens` are prompt and answer so far."""

    id: int
    n_ctx: int
    is_processing: bool
    state: SlotState
    request: str
    n_prompt: int
    n_cached: int
    n_tokens: int


async def slots(request: Request) -> Response:
    service: Service = request.app.state.service
    n_ctx = (await service.serving()).info.n_ctx
    body = [
        Slot(
            slot.id,
            n_ctx,
            slot.state != "idle",
            slot.state,
            slot.request,
            slot.n_prompt,
            slot.n_cached,
            slot.n_tokens,
        )
        for slot in service.load().slots
    ]
    return json_response(body, {"Cache-Control": "no-store"})


routes = (
    Operation(
        "GET", "/slots", slots, "what each sequence that may run is doing", Contract(answer=list[Slot])
    ),
)
