"""Libraries that people use instead of OpenAI's own, each in a process of its own against a real server."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.server_process import ROOT, ServerProcess

CLIENTS = ROOT / "tests" / "support" / "clients"


@pytest.fixture(scope="module")
def server(
    model_path: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    log = tmp_path_factory.mktemp("clients") / "log"
    model = str(model_path("qwen2.5-coder-0.5b"))
    flags = ["--target-model", model, "--draft-model", "suffix", "--ctx-size", "1024", "--model-alias", "m"]
    with ServerProcess(log, *flags) as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("name", ["langchain", "litellm", "instructor"])
def test_client(server: ServerProcess, name: str) -> None:
    """Their imports take long, and warn, so they stay out of this process."""
    environ = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1"}
    command = [sys.executable, str(CLIENTS / f"{name}_client.py"), server.url]
    run = subprocess.run(command, capture_output=True, text=True, timeout=150, env=environ, check=False)
    assert run.returncode == 0, f"{run.stdout}\n{run.stderr}\n{server.words()[-2000:]}"


def test_every_client_is_run() -> None:
    names = {path.name.removesuffix("_client.py") for path in CLIENTS.glob("*_client.py")}
    assert names == {"langchain", "litellm", "instructor"}
