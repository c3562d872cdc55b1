"""GET /metrics: what is counted of requests, tokens, times and drafts, and what that costs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from lucebox.core import Origin
from lucebox.engine.engine_load import EngineLoad
from lucebox.engine.messages import Degraded, Event, Finish, StepEvent, Submit
from lucebox.engine.timings import DraftedRound, Timings
from lucebox.errors import EngineError, QueueFullError
from lucebox.server.tally import Histogram, Tally
from tests.support.scripted_engine import EOS, N_CTX, fails, says
from tests.support.serving import CHAT, HELLO, TEXT, Connection, Server, http_scope, serving

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def scrape(server: Server) -> Samples:
    response = await server.http.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(response.text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((f"lucebox_{name}", tuple(sorted(labels.items()))), 0.0)


def drafted(submit: Submit) -> Iterator[Event]:
    """Two rounds with drafts, one without, then the end."""
    origins = [Origin.ACCEPTED, Origin.ACCEPTED, Origin.CORRECTED]
    yield StepEvent(
        id=submit.id, tokens=[97, 98, 99], origins=origins, drafted=[DraftedRound("model", 4, 4, 2)]
    )
    yield StepEvent(
        id=submit.id,
        tokens=[97, 98],
        origins=[Origin.ACCEPTED, Origin.BONUS],
        drafted=[DraftedRound("suffix", 1, 1, 1)],
    )
    yield StepEvent(
        id=submit.id,
        tokens=[EOS],
        origins=[Origin.PLAIN],
        finish=Finish(reason="stop", timings=Timings(prompt_n=5, cache_n=3, prompt_ms=1.0)),
    )


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_counted_once_streamed_or_not(stream: bool) -> None:
    async def run() -> None:
        async with serving(drafted) as server:
            body = {"messages": HELLO, "stream": stream, "n": 2}
            assert (await server.post(CHAT, body)).status_code == 200
            samples = await scrape(server)
            assert value(samples, "requests_total", path=CHAT, method="POST", status="200") == 1
            assert value(samples, "choices_total", finish_reason="stop") == 2
            n_prompt = len(server.engine.submits[0].prompt)
            assert value(samples, "prompt_tokens_total") == 2 * n_prompt
            assert value(samples, "cached_prompt_tokens_total") == 6
            counts = {"accepted": 6, "corrected": 2, "bonus": 2, "plain": 2}
            for origin, n in counts.items():
                assert value(samples, "generation_tokens_total", origin=origin) == n
            for drafter, rounds, tokens, kept in (("model", 1, 4, 2), ("suffix", 1, 1, 1)):
                spec = "spec_decode_num_"
                assert value(samples, f"{spec}drafts_total", drafter=drafter) == 2 * rounds
                assert value(samples, f"{spec}draft_tokens_total", drafter=drafter) == 2 * tokens
                assert value(samples, f"{spec}accepted_tokens_total", drafter=drafter) == 2 * kept
            depths = "spec_decode_num_accepted_tokens_per_pos_total"
            assert [value(samples, depths, drafter="model", position=str(i)) for i in range(3)] == [2, 2, 0]
            for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time"):
                assert value(samples, f"{name}_seconds_count") == 2

    asyncio.run(run())


def test_a_prompt_without_an_answer_is_counted_and_no_more_of_it_known_than_it_has() -> None:
    def nothing(submit: Submit) -> Iterator[Event]:
        """As two engines have it, the second of which went on for the first."""
        timings = Timings(cache_n=2 * len(submit.prompt), prompt_ms=1.0)
        yield StepEvent(id=submit.id, tokens=[], origins=[], finish=Finish(reason="length", timings=timings))

    async def run() -> None:
        async with serving(nothing) as server:
            answer = (await server.post(TEXT, {"prompt": "abcd", "max_tokens": 0, "echo": True})).json()
            n_prompt = len(server.engine.submits[0].prompt)
            assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": n_prompt}
            samples = await scrape(server)
            assert value(samples, "prompt_tokens_total") == n_prompt
            assert value(samples, "cached_prompt_tokens_total") == n_prompt

    asyncio.run(run())


def test_tokens_behind_the_first_step_have_latencies() -> None:
    async def run() -> None:
        async with serving(says(b"ab", b"cde", b"f")) as server:
            server.engine.gate.clear()
            task = asyncio.create_task(server.post(TEXT, {"prompt": "x"}))
            await asyncio.sleep(0.05)
            server.engine.gate.set()
            await task
            samples = await scrape(server)
            assert value(samples, "time_to_first_token_seconds_sum") >= 0.04
            n = value(samples, "inter_token_latency_seconds_count")
            assert n <= 5, "tokens that came together with the first have none"
            assert value(samples, "inter_token_latency_seconds_bucket", le="+Inf") == n

    asyncio.run(run())


def test_what_is_refused_fails_or_is_left_is_counted_as_such() -> None:
    async def run() -> None:
        async with serving(fails(EngineError("no"), b"a")) as server:
            await server.post(CHAT, {})
            await server.post("/no/such/path/1")
            await server.post("/no/such/path/2")
            await server.http.request("BREW", "/coffee")
            await server.http.get("/v1/models/tiny")
            assert (await server.post(TEXT, {"prompt": "x"})).status_code == 503
            samples = await scrape(server)
            assert value(samples, "requests_total", path=CHAT, method="POST", status="400") == 1
            assert value(samples, "requests_total", path="unknown", method="POST", status="404") == 2
            assert value(samples, "requests_total", path="unknown", method="unknown", status="404") == 1
            model = "/v1/models/{model:path}"
            assert value(samples, "requests_total", path=model, method="GET", status="200") == 1
            assert value(samples, "requests_total", path=TEXT, method="POST", status="503") == 1
            assert value(samples, "choices_total", finish_reason="error") == 1

            def refuses(request: Any, on_event: Any) -> None:
                raise QueueFullError(9)

            server.engine.submit = refuses  # type: ignore[method-assign]
            assert (await server.post(TEXT, {"prompt": "x"})).status_code == 429
            assert value(await scrape(server), "choices_total", finish_reason="refused") == 1

    asyncio.run(run())


def test_a_client_that_leaves() -> None:
    async def run() -> None:
        async with serving(says(b"a", b"b")) as server:
            server.engine.gate.clear()
            connection = Connection({"prompt": "x"})
            task = asyncio.create_task(server.app(http_scope(TEXT), connection.receive, connection.send))
            await server.until_submitted()
            connection.leave()
            await task
            samples = await scrape(server)
            assert value(samples, "choices_total", finish_reason="cancelled") == 1
            server.engine.gate.set()

    asyncio.run(run())


def test_embedded_texts_are_counted() -> None:
    async def run() -> None:
        async with serving(says(b"")) as server:
            await server.post("/v1/embeddings", {"input": [[1, 2], [3]]})
            samples = await scrape(server)
            assert value(samples, "embedded_texts_total") == 2
            assert value(samples, "prompt_tokens_total") == 3

    asyncio.run(run())


def test_gauges_follow_the_engine() -> None:
    async def run() -> None:
        async with serving(says(b"")) as server:
            load = EngineLoad(n_running=2, n_waiting=5, n_cells=80, n_cells_used=60, n_cells_cached=20)
            server.engine._dispatch(load)
            server.engine._dispatch(Degraded("lost"))
            samples = await scrape(server)
            assert value(samples, "num_requests_running") == 2
            assert value(samples, "num_requests_waiting") == 5
            assert value(samples, "kv_cache_usage_perc") == 0.75
            assert value(samples, "kv_cache_prefix_perc") == 0.25
            assert value(samples, "engine_ready") == 1
            assert value(samples, "engine_degraded") == 1
            server.engine.restart("killed")
            samples = await scrape(server)
            assert value(samples, "engine_ready") == 0
            assert value(samples, "engine_restarts_total") == 1
            assert value(samples, "num_requests_running") == 0

    asyncio.run(run())


def test_openmetrics_if_asked_for() -> None:
    async def run() -> httpx.Response:
        async with serving(drafted) as server:
            await server.post(CHAT, {"messages": HELLO})
            accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
            return await server.http.get("/metrics", headers=accept)

    response = asyncio.run(run())
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    names = {family.name for family in parse_openmetrics(response.text)}
    assert {"lucebox_requests", "lucebox_inter_token_latency_seconds"} <= names


def test_metrics_need_the_key_and_tell_no_path_of_this_machine() -> None:
    async def run() -> None:
        async with serving(says(b""), api_keys=("k",)) as server:
            assert (await server.http.get("/metrics")).status_code == 401
            response = await server.http.get("/metrics", headers={"Authorization": "Bearer k"})
            assert 'status="401"' in response.text
            assert "secret" not in response.text

    asyncio.run(run())


def test_two_servers_in_one_process_count_for_themselves() -> None:
    async def run() -> None:
        async with serving(says(b"a")) as one, serving(says(b"a")) as other:
            await one.post(TEXT, {"prompt": "x"})
            assert value(await scrape(one), "choices_total", finish_reason="stop") == 1
            assert value(await scrape(other), "choices_total", finish_reason="stop") == 0

    asyncio.run(run())


def test_buckets_hold_what_is_at_most_their_bound() -> None:
    histogram = Histogram([1.0, 2.0])
    for observed, n in ((0.5, 1), (1.0, 2), (1.5, 3), (9.0, 1)):
        histogram.observe(observed, n)
    assert histogram.cumulative == [3, 6, 7]
    assert histogram.total == 0.5 + 2 + 4.5 + 9


def test_a_token_costs_microseconds() -> None:
    """Far below the milliseconds that it takes to make one; the bound leaves room for a busy machine."""
    meter = Tally().meter()
    event = StepEvent(
        id="a",
        tokens=[1, 2, 3],
        origins=[Origin.ACCEPTED, Origin.ACCEPTED, Origin.BONUS],
        drafted=[DraftedRound("model", 4, 4, 2)],
    )
    start_s = time.process_time()
    for _ in range(2000):
        meter.note(0, event, N_CTX)
    assert (time.process_time() - start_s) / 6000 < 50e-6
