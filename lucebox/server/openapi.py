"""GET /openapi.json: what every route takes and gives, in OpenAPI 3.1, made from the routes themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from lucebox import __version__
from lucebox.server.operation import EVENTS, JSON, Contract, Operation
from lucebox.server.service import Service

Json = dict[str, Any]

_REF = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
_DESCRIPTION = "An OpenAI-compatible API of a language model, with speculation that changes no answer."
_SECURITY: Mapping[str, Json] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}


async def openapi(request: Request) -> Response:
    service: Service = request.app.state.service
    root = request.scope.get("root_path", "")
    body = document(request.app.routes, root_path=root, has_keys=bool(service.config.api_keys))
    return Response(msgspec.json.encode(body), media_type=JSON)


def document(routes: Iterable[BaseRoute], *, root_path: str = "", has_keys: bool = False) -> Json:
    """The document of those of `routes` that are Operations. `has_keys`: requests need one."""
    operations = [route for route in routes if isinstance(route, Operation)]
    kinds = list(dict.fromkeys(kind for operation in operations for kind in operation.contract.types()))
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    schema_of = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, Json] = {}
    for operation in operations:
        path = _PARAMETER.sub(r"{\1}", operation.path)
        paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, schema_of)
    shown: Json = {
        "openapi": "3.1.0",
        "info": {"title": "Lucebox", "version": __version__, "description": _DESCRIPTION},
        "servers": [{"url": root_path or "/"}],
        "paths": paths,
        "components": {"schemas": components},
    }
    if has_keys:
        shown["components"]["securitySchemes"] = dict(_SECURITY)
        shown["security"] = [{name: []} for name in _SECURITY]
    return shown


def markdown_table(routes: Iterable[BaseRoute]) -> str:
    """The README's table of endpoints."""
    lines = ["| Endpoint | What it does |", "|---|---|"]
    for route in routes:
        if isinstance(route, Operation):
            path = _PARAMETER.sub(r"{\1}", route.path)
            lines.append(f"| `{route.method} {path}` | {route.summary} |")
    return "\n".join(lines) + "\n"


def _operation(operation: Operation, schema_of: Mapping[Any, Json]) -> Json:
    contract = operation.contract
    shown: Json = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": _responses(contract, schema_of),
    }
    names = _PARAMETER.findall(operation.path)
    if names:
        shown["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    if contract.body is not None:
        content = {"schema": schema_of[contract.body], "example": contract.example}
        shown["requestBody"] = {"required": True, "content": {JSON: content}}
    return shown


def _responses(contract: Contract, schema_of: Mapping[Any, Json]) -> Json:
    def response(description: str, media_type: str, kind: Any) -> Json:
        schema = {"type": "string"} if kind is None else schema_of[kind]
        return {"description": description, "content": {media_type: {"schema": schema}}}

    done = response("Done", contract.media_type, contract.answer)
    if contract.events is not None:
        done["content"][EVENTS] = {"schema": _event(contract, schema_of)}
    shown = {"200": done}
    for status, kind in contract.others.items():
        shown[str(status)] = response("Not now", JSON, kind)
    shown["4XX"] = response("Refused; the message names the field", JSON, contract.error)
    shown["5XX"] = response(
        "Failed, or not ready: `Retry-After` says when to ask again", JSON, contract.error
    )
    return shown


def _event(contract: Contract, schema_of: Mapping[Any, Json]) -> Json:
    """One server-sent event: its data are JSON, that of an error included, or the word that ends a stream."""
    kinds = [schema_of[contract.events], schema_of[contract.error]]
    data: Json = {"type": "string", "contentMediaType": JSON, "contentSchema": {"anyOf": kinds}}
    if contract.last_event is not None:
        data = {"anyOf": [data, {"const": contract.last_event}]}
    return {"type": "object", "properties": {"event": {"type": "string"}, "data": data}, "required": ["data"]}


routes = (
    Operation(
        "GET",
        "/openapi.json",
        openapi,
        "this API as an OpenAPI 3.1 document",
        Contract(answer=dict[str, Any]),
    ),
)
