"""Requests that schemathesis makes from /openapi.json, at a real server: none ends in a 5xx.

It tries every field with what the schema allows and what it does not. `API_FUZZ=full` makes well over 5,000
requests, which takes some minutes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from lucebox.server.application import ROUTES
from lucebox.server.operation import Operation
from tests.support.server_process import ServerProcess
from tests.support.tiny_models import write_tiny

IS_FULL = os.environ.get("API_FUZZ") == "full"
PHASES = "examples,coverage,fuzzing" if IS_FULL else "examples,fuzzing"
N_PER_OPERATION = 160 if IS_FULL else 20
N_LEAST = 5000 if IS_FULL else 200
TIMEOUT_S = 1800 if IS_FULL else 300
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
    "unsupported_method",
)
N_CTX = 128  # whatever a request asks for, it is short


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    model = write_tiny(tmp_path / "tiny.gguf", "qwen2", n_ctx=N_CTX, seed=3)
    paths = ["--target-model", str(model), "--draft-model", "none"]
    flags = ["--threads", "1", "--ctx-size", str(N_CTX), "--max-queue", "2000"]
    with ServerProcess(tmp_path / "server.log", *paths, *flags) as running:
        yield running


def statuses(server: ServerProcess) -> dict[str, Counter[int]]:
    """How often each route answered with each status, as the server counts it."""
    found: dict[str, Counter[int]] = {}
    text = httpx.get(f"{server.url}/metrics", timeout=30).text
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "lucebox_requests_total":
                counts = found.setdefault(sample.labels["path"], Counter())
                counts[int(sample.labels["status"])] += int(sample.value)
    return found


@pytest.mark.timeout(TIMEOUT_S + 60)
def test_no_request_made_from_the_schema_breaks_the_server(server: ServerProcess, tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        f"{server.url}/openapi.json",
        *("--checks", ",".join(CHECKS)),
        *("--phases", PHASES),
        *("--max-examples", str(N_PER_OPERATION)),
        *("--suppress-health-check", "all"),
        "--generation-deterministic",
        "--continue-on-failure",
        "--no-shrink",
        "--no-color",
    ]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=TIMEOUT_S)
    assert run.returncode == 0, run.stdout + run.stderr
    found = statuses(server)
    assert not {path: n for path, counts in found.items() for status, n in counts.items() if status >= 500}
    assert sum(map(Counter.total, found.values())) >= N_LEAST
    for route in ROUTES:
        if isinstance(route, Operation):
            assert found[route.path][200], f"{route.path} was never asked for something it could do"
    assert "Traceback" not in server.words()
