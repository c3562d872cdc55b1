"""An engine's own process while it compiles a grammar: cancels, counts and ends are not held up."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest

from lucebox.engine.process_client import EXIT_TIMEOUT_S, ProcessClient
from lucebox.grammar import Grammar
from lucebox.sampling.params import SamplingParams
from tests.support.tiny_engines import TIMEOUT_S, Asked, tiny_config
from tests.support.waiting import eventually

N_PROPERTIES = 9_000  # seconds of compilation


def slow_params() -> SamplingParams:
    schema = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(N_PROPERTIES)}}
    return SamplingParams(temperature=0.0, max_tokens=5, grammar=Grammar.json_schema(schema))


def test_a_process_that_compiles_a_grammar_answers_and_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ProcessClient(tiny_config(tmp_path), log_level="warning") as client:
        client.wait_ready(TIMEOUT_S)
        compiled, waiting = (Asked(client, id, [1, 2], slow_params()) for id in ("a", "b"))
        assert eventually(lambda: client.load().n_waiting == 2, TIMEOUT_S)
        client.cancel("b")
        assert waiting.all().finish.reason == "cancelled"
        free = SamplingParams(temperature=0.0, max_tokens=3, ignore_eos=True)
        assert Asked(client, "c", [1, 2], free).all().finish.reason == "length"
        assert not compiled.is_over
        started_s = time.monotonic()
        with caplog.at_level(logging.WARNING):
            client.close()
        assert time.monotonic() - started_s < EXIT_TIMEOUT_S
        assert compiled.all().finish.reason == "cancelled"
    assert not caplog.text
