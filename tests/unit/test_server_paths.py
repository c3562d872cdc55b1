"""Keys, and where the application is: under a proxy's path, mounted, not started, one of several workers."""

from __future__ import annotations

import asyncio
import multiprocessing
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp

import lucebox.server
from lucebox.errors import ConfigError
from lucebox.server.application import EnvironmentApp, create_app
from lucebox.server.paths import route_path
from lucebox.server.service import Service
from lucebox.server.siblings import only_worker
from tests.support.scripted_engine import ByteText, ScriptedEngine, says
from tests.support.serving import CHAT, HELLO, server_config, serving

HI = says(b"Hi")


def get(app: ASGIApp, path: str, **headers: str) -> httpx.Response:
    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            return await http.get(path, headers=headers)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x-api-key": "one"}, 200),
        ({"x-api-key": "two"}, 200),
        ({"authorization": "Bearer two"}, 200),
        ({"authorization": "Bearer wrong", "x-api-key": "one"}, 200),
        ({"x-api-key": "three"}, 401),
        ({"x-api-key": ""}, 401),
        ({"x-api-key": "Bearer one"}, 401),
        ({"authorization": "one"}, 401),
        ({"x-api-key": "schlüssel"}, 200),
    ],
)
def test_each_key_lets_in(headers: dict[str, str], status: int) -> None:
    async def run() -> None:
        async with serving(HI, api_keys=("one", "two", "schlüssel")) as server:
            encoded = {name: value.encode() for name, value in headers.items()}
            response = await server.http.get("/v1/models", headers=encoded)  # type: ignore[arg-type]
            assert response.status_code == status

    asyncio.run(run())


@pytest.mark.parametrize(
    ("method", "path", "is_open"),
    [
        ("GET", "/", True),
        ("HEAD", "/", True),
        ("GET", "/health", True),
        ("GET", "/static/nothing.css", True),
        ("GET", "/v1/models", False),
        ("GET", "/metrics", False),
        ("GET", "/static", False),
        ("GET", "/nothing", False),
        ("POST", "/static/nothing.css", False),
    ],
)
@pytest.mark.parametrize("root", ["", "/llm"])
def test_what_is_open_without_a_key(method: str, path: str, is_open: bool, root: str) -> None:
    async def run() -> None:
        async with serving(HI, api_keys=("k",), root_path=root) as server:
            url = httpx.URL("http://test").copy_with(raw_path=(root + path).encode())
            response = await server.http.request(method, url)
            assert (response.status_code != 401) is is_open
            assert response.status_code in (200, 401, 404)

    asyncio.run(run())


@pytest.mark.parametrize("prefix", ["", "/llm"])  # proxies strip it, or do not
def test_under_a_proxys_path(prefix: str) -> None:
    async def run() -> None:
        async with serving(HI, root_path="/llm") as server:
            assert (await server.http.get(f"{prefix}/health")).status_code == 200
            answer = await server.post(f"{prefix}{CHAT}", {"messages": HELLO})
            assert answer.json()["choices"][0]["message"]["content"] == "Hi"
            assert (await server.http.get("/llmore/health")).status_code == 404

    asyncio.run(run())


def test_the_page_is_behind_a_slash() -> None:
    """Its links are relative."""

    async def run() -> None:
        async with serving(HI, root_path="/llm") as server:
            response = await server.http.get("/llm")
            assert response.status_code == 307
            assert response.headers["location"] == "/llm/"
            page = await server.http.get("/llm/")
            assert page.headers["content-type"].startswith("text/html")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "root", "behind"),
    [("/a", "", "/a"), ("/x/a", "/x", "/a"), ("/x", "/x", "/"), ("/xa", "/x", "/xa"), ("/a", "/x", "/a")],
)
def test_route_path(path: str, root: str, behind: str) -> None:
    assert route_path({"path": path, "root_path": root}) == behind


def new_app(**config: Any) -> Starlette:
    settings = server_config(**config)
    service = Service(settings, lambda _, on: ScriptedEngine(HI, on_status=on), lambda _: ByteText())
    return create_app(settings, service)


def assert_never_started(response: httpx.Response) -> None:
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "not_started"
    assert "lucebox.server.lifespan(app)" in response.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/llm/health", "/llm/v1/models", "/llm/"])
def test_a_mounted_application_that_was_not_started_says_what_to_do(path: str) -> None:
    assert_never_started(get(Starlette(routes=[Mount("/llm", new_app())]), path))
    assert_never_started(get(Starlette(routes=[Mount("/llm", EnvironmentApp({}))]), path))


def test_a_mounted_application_runs_in_the_outer_lifespan() -> None:
    inner = new_app(api_keys=("k",))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> Any:
        async with lucebox.server.lifespan(inner):
            yield

    async def run() -> None:
        outer = Starlette(routes=[Mount("/llm", inner)], lifespan=lifespan)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(outer.router.lifespan_context(outer))
            transport = httpx.ASGITransport(outer)
            http = await stack.enter_async_context(
                httpx.AsyncClient(transport=transport, base_url="http://test/llm")
            )
            assert (await http.get("/health")).status_code in (200, 503)
            assert (await http.get("/v1/models")).status_code == 401
            while (await http.get("/health")).status_code != 200:
                await asyncio.sleep(0)
            answer = await http.post(CHAT, json={"messages": HELLO}, headers={"x-api-key": "k"})
            assert answer.json()["choices"][0]["message"]["content"] == "Hi"
        assert inner.state.service.status().state == "stopped"

    asyncio.run(run())


def hold(folder: Path, held: Any, over: Any) -> None:
    with only_worker(server_config(), folder):
        held.set()
        over.wait(30)


def contend(folder: Path, port: int, answers: Any) -> None:
    try:
        with only_worker(server_config(port=port), folder):
            answers.put("alone")
    except ConfigError as error:
        answers.put(str(error))


def test_the_second_worker_of_a_server_is_refused(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    held, over, answers = spawn.Event(), spawn.Event(), spawn.Queue()
    first = spawn.Process(target=hold, args=(tmp_path, held, over))
    first.start()
    assert held.wait(30)
    for port, says_ in ((8080, "another worker"), (9090, "alone")):  # another server of the same parent
        second = spawn.Process(target=contend, args=(tmp_path, port, answers))
        second.start()
        assert says_ in answers.get(timeout=30)
        second.join()
    over.set()
    first.join()
    third = spawn.Process(target=contend, args=(tmp_path, 8080, answers))
    third.start()
    assert answers.get(timeout=30) == "alone"
    third.join()
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_no_worker_contends_with_nobody(tmp_path: Path) -> None:
    with only_worker(server_config(), tmp_path), only_worker(server_config(), tmp_path):
        assert list(tmp_path.iterdir()) == []
