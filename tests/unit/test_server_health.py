"""GET /health, GET /v1/models."""

from __future__ import annotations

import asyncio

import lucebox
from lucebox.engine.messages import Degraded, Loading
from lucebox.errors import EngineError
from tests.support.scripted_engine import says
from tests.support.serving import CHAT, HELLO, Server, serving


def test_health_follows_the_engine() -> None:
    async def run() -> None:
        async with serving(says(b"x"), ready=False) as server:
            server.engine._dispatch(Loading("target", 0.25))
            loading = await server.http.get("/health")
            assert loading.status_code == 503
            assert loading.json() == {
                "status": "loading",
                "detail": "target",
                "progress": 0.25,
                "n_in_flight": 0,
                "n_restarts": 0,
                "quiet_s": 0.0,
                "degraded": "",
                "version": lucebox.__version__,
            }
            server.engine.become_ready()
            while (ready := await server.http.get("/health")).json()["detail"] == "tokenizer":
                await asyncio.sleep(0)
            assert ready.status_code == 200
            assert ready.json()["status"] == "ready"
            server.engine._dispatch(Degraded("the draft model /x/y.gguf was lost"))
            degraded = await server.http.get("/health")
            assert degraded.status_code == 200
            assert degraded.json()["degraded"] == "the draft model y.gguf was lost"
            server.engine._dispatch(Degraded(""))
            assert (await server.http.get("/health")).json()["degraded"] == ""
            server.engine.restart("/x/ggml.c:1: killed")
            restarting = await server.http.get("/health")
            assert restarting.status_code == 503
            assert restarting.headers["retry-after"]
            assert restarting.json()["detail"] == "ggml.c:1: killed"
            assert restarting.json()["n_restarts"] == 1
            server.engine._turn_away(EngineError("the worker is gone"))
            away = await server.http.get("/health")
            assert away.status_code == 503
            assert away.json()["status"] == "away"
            refused = await server.post(CHAT, {"messages": HELLO})
            assert refused.status_code == 503
            assert refused.headers["retry-after"]
            assert refused.json()["error"]["code"] == "engine_away"
            assert "the worker is gone" in refused.json()["error"]["message"]
            server.engine.become_ready()
            assert (await server.http.get("/health")).status_code == 200
            server.engine.fail(EngineError("gone"))
            failed = await server.http.get("/health")
            assert failed.status_code == 503
            assert failed.json()["status"] == "failed"

    asyncio.run(run())


def test_a_refusal_while_loading_says_how_far_it_is() -> None:
    async def message(server: Server) -> str:
        refused = await server.post(CHAT, {"messages": HELLO})
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "engine_loading"
        return str(refused.json()["error"]["message"])

    async def run() -> None:
        async with serving(says(b"x"), ready=False) as server:
            assert await message(server) == "The model is loading"  # before anything is known
            server.engine._dispatch(Loading("target model x.gguf", 0.25))
            assert await message(server) == "The model is loading (target model x.gguf, 25%)"

    asyncio.run(run())


def test_requests_in_flight_are_counted() -> None:
    async def run() -> None:
        async with serving(says(b"a", b"b")) as server:
            server.engine.gate.clear()
            asking = asyncio.create_task(server.post(CHAT, {"messages": HELLO}))
            await server.until_submitted()
            assert (await server.http.get("/health")).json()["n_in_flight"] == 1
            server.engine.gate.set()
            await asking
            assert (await server.http.get("/health")).json()["n_in_flight"] == 0

    asyncio.run(run())


def test_models() -> None:
    async def run() -> None:
        async with serving(says(b"x")) as server:
            listed = (await server.http.get("/v1/models")).json()
            assert listed["object"] == "list"
            (model,) = listed["data"]
            assert model["id"] == "tiny"
            assert model["object"] == "model"
            assert isinstance(model["created"], int)
            assert model["owned_by"] == "lucebox"
            assert model["meta"]["n_ctx"] == 64
            for name in ("tiny", "tiny-q4.gguf"):
                assert (await server.http.get(f"/v1/models/{name}")).json() == model
            missing = await server.http.get("/v1/models/org/other")
            assert missing.status_code == 404
            assert missing.json()["error"]["code"] == "model_not_found"

    asyncio.run(run())


def test_models_while_loading() -> None:
    async def run() -> None:
        async with serving(says(b"x"), ready=False) as server:
            listed = (await server.http.get("/v1/models")).json()
            assert listed["data"][0]["meta"] is None

    asyncio.run(run())
