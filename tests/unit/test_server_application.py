"""The application as a value, from a config or from the environment, and the start of a whole server."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from starlette.types import Message

import lucebox.server
from lucebox.config import EngineOptions, ServerOptions
from lucebox.errors import ConfigError, EngineError
from lucebox.server import launch
from lucebox.server.__main__ import main
from lucebox.server.application import EnvironmentApp, create_app
from lucebox.server.host import is_loopback
from lucebox.server.service import CLOSE_TIMEOUT_S, KEEP_TIMEOUT_S, Service
from tests.support.scripted_engine import ByteText, ScriptedEngine, says
from tests.support.serving import server_config
from tests.support.tiny_models import write_tiny

IN_USE = r"in use \(perhaps another Lucebox runs there; choose another port with --port\)"


def test_exports() -> None:
    assert sorted(lucebox.server.__all__) == ["app", "create_app", "lifespan", "serve"]
    assert lucebox.server.create_app is create_app
    assert lucebox.server.serve is launch.serve
    assert lucebox.server.app is lucebox.server.app
    with pytest.raises(AttributeError, match="nothing"):
        lucebox.server.nothing  # noqa: B018


def test_import_is_cheap() -> None:
    code = "import sys, lucebox.server; print('starlette' in sys.modules, 'numpy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]


def test_making_an_app_starts_nothing() -> None:
    app = create_app(server_config())
    assert app.state.service.status().state == "loading"
    assert app.state.service.name == "tiny"


def lifespan_answer(app: EnvironmentApp) -> Message:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "lifespan.startup"}

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send))
    return sent[0]


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("LUCEBOX_PORT", "many", "LUCEBOX_PORT"),
        ("LUCEBOX_TARGET_MODEL", "no/such/model.gguf", "no/such/model.gguf"),
    ],
)
def test_a_wrong_environment_fails_the_startup_with_a_message(variable: str, value: str, says: str) -> None:
    answer = lifespan_answer(EnvironmentApp({variable: value}))
    assert answer["type"] == "lifespan.startup.failed"
    assert says in answer["message"]
    assert "Traceback" not in answer["message"]


def test_a_port_in_use() -> None:
    with launch.listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert launch.url_of(first) == f"http://127.0.0.1:{port}"
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port}"):
            launch.listen("127.0.0.1", port)


def test_a_port_in_use_shows_before_models_are_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LUCEBOX_CACHE", str(tmp_path))
    monkeypatch.setattr(launch, "resolve", lambda *_, **__: pytest.fail("fetched"))
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    with launch.listen("127.0.0.1", 0) as first, pytest.raises(ConfigError, match=IN_USE):
        launch.serve(ServerOptions(port=first.getsockname()[1]))


def test_a_wrong_model_shows_before_a_port_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    engine = EngineOptions(target_model="no/such.gguf")
    with launch.listen("127.0.0.1", 0) as first, pytest.raises(ConfigError, match="no model file no/such"):
        launch.serve(ServerOptions(engine=engine, port=first.getsockname()[1]))


def test_a_port_in_use_shows_before_a_model_here_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    monkeypatch.setattr(launch, "Run", lambda *_: pytest.fail("loaded"))
    engine = EngineOptions(target_model=str(write_tiny(tmp_path / "tiny.gguf")))
    with launch.listen("127.0.0.1", 0) as first, pytest.raises(ConfigError, match=IN_USE):
        launch.serve(ServerOptions(engine=engine, port=first.getsockname()[1]))


@pytest.mark.parametrize(("host", "opens"), [("0.0.0.0", "127.0.0.1"), ("::", "[::1]")])
def test_where_every_address_is_listened_on_the_url_opens_here(host: str, opens: str) -> None:
    listener = SimpleNamespace(getsockname=lambda: (host, 80))
    assert launch.url_of(listener) == f"http://{opens}:80"  # type: ignore[arg-type]


def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(ConfigError, match="--host"):
        launch.listen("192.0.2.1", 8080)
    with pytest.raises(ConfigError, match="--host"):
        launch.listen("no-such-host.invalid", 8080)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_url_of_an_ipv6_address() -> None:
    try:
        listener = launch.listen("::1", 0)
    except ConfigError:
        pytest.skip("no IPv6 loopback")
    with listener:
        assert launch.url_of(listener).startswith("http://[::1]:")


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("example.org", False)],
)
def test_open_addresses_are_warned_of(host: str, is_local: bool, caplog: pytest.LogCaptureFixture) -> None:
    assert is_loopback(host) is is_local
    with caplog.at_level(logging.WARNING):
        launch.warn_if_open(server_config(host=host))
        assert bool(caplog.records) is not is_local
        caplog.clear()
        launch.warn_if_open(server_config(host=host, api_keys=("k",)))
        assert not caplog.records


def test_the_default_address_is_loopback() -> None:
    assert is_loopback(ServerOptions().host)


@pytest.mark.parametrize(
    ("argv", "code"), [(["--port", "x"], 2), (["--target-model", "{missing}", "--draft-model", "none"], 1)]
)
def test_what_keeps_it_from_starting_is_one_line(
    argv: list[str],
    code: int,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    missing = tmp_path / "missing.gguf"
    if code == 1:
        missing.write_bytes(b"not a model")
    assert main([argument.format(missing=missing) for argument in argv]) == code
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("lucebox: ")


@pytest.mark.parametrize(
    ("file", "at_once", "expected_s"),
    [
        (None, False, CLOSE_TIMEOUT_S),
        ("/x/prefixes", False, KEEP_TIMEOUT_S),
        ("/x/prefixes", True, 0.0),
    ],
)
def test_an_engine_gets_time_to_write_its_prefix_cache(
    file: str | None, at_once: bool, expected_s: float
) -> None:
    settings = server_config()
    engine_config = msgspec.structs.replace(settings.engine, prefix_file=file)
    settings = msgspec.structs.replace(settings, engine=engine_config)
    given: list[float] = []

    class Engine(ScriptedEngine):
        def close(self, timeout_s: float = 10.0) -> None:
            given.append(timeout_s)
            super().close(timeout_s)

    async def run() -> None:
        service = Service(settings, lambda _, on: Engine(says(b"Hi"), on_status=on), lambda _: ByteText())
        service.start()
        if at_once:
            service.abort(EngineError("stop"), at_once=True)
        await service.close()

    asyncio.run(run())
    assert given == [expected_s]
