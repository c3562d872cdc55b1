"""GET /metrics: the tally and the engine's load as Prometheus wants them."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from lucebox import __version__
from lucebox.engine.client import EngineState
from lucebox.server.operation import Contract, Operation
from lucebox.server.service import Service
from lucebox.server.tally import Histogram, Tally

TEXT = "text/plain"
PREFIX = "lucebox_"


class ServiceCollector(Collector):
    """Reads a service's figures when they are asked for. Names are vLLM's where it has the same figure."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        yield from _requests(self._service.tally)
        yield from _tokens(self._service.tally)
        yield from _times(self._service.tally)
        yield from _speculation(self._service.tally)
        yield from _engine(self._service)


async def metrics(request: Request) -> Response:
    service: Service = request.app.state.service
    registry = CollectorRegistry()
    registry.register(ServiceCollector(service))
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(registry), headers={"Content-Type": content_type, "Cache-Control": "no-store"})


def markdown_table(service: Service) -> str:
    """The README's list of metrics."""
    lines = ["| Metric | Labels | Meaning |", "|---|---|---|"]
    for metric in ServiceCollector(service).collect():
        name = metric.name + {"counter": "_total", "info": "_info"}.get(metric.type, "")
        labels = ", ".join(f"`{label}`" for label in getattr(metric, "_labelnames", ()))
        lines.append(f"| `{name}` | {labels} | {metric.documentation} |")
    return "\n".join(lines) + "\n"


def _counter(name: str, meaning: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(PREFIX + name, meaning, labels=labels)


def _requests(tally: Tally) -> Iterator[Metric]:
    requests = _counter("requests", "HTTP requests that were answered", "path", "method", "status")
    for (path, method, status), n in tally.requests.items():
        requests.add_metric([path, method, str(status)], n)
    yield requests
    choices = _counter("choices", "answers that ended, or were given up", "finish_reason")
    for reason, n in tally.choices.items():
        choices.add_metric([reason], n)
    yield choices
    texts = _counter("embedded_texts", "texts that were embedded")
    texts.add_metric([], tally.n_texts)
    yield texts


def _tokens(tally: Tally) -> Iterator[Metric]:
    prompt = _counter("prompt_tokens", "tokens of prompts and embedded texts, cached ones included")
    prompt.add_metric([], tally.n_prompt)
    yield prompt
    cached = _counter("cached_prompt_tokens", "tokens of prompts that the prefix cache had")
    cached.add_metric([], tally.n_cached)
    yield cached
    generated = _counter(
        "generation_tokens", "generated tokens: plain, accepted, corrected, bonus or forced", "origin"
    )
    for origin, n in tally.tokens.items():
        generated.add_metric([origin], n)
    yield generated


def _times(tally: Tally) -> Iterator[Metric]:
    for name, meaning, histogram in (
        ("request_queue_time_seconds", "waiting for the engine", tally.queue_s),
        (
            "time_to_first_token_seconds",
            "from a request's submission to its first token",
            tally.first_token_s,
        ),
        ("inter_token_latency_seconds", "per token behind the first", tally.inter_token_s),
        ("e2e_request_latency_seconds", "from a request's submission to its end", tally.choice_s),
    ):
        family = HistogramMetricFamily(PREFIX + name, meaning)
        family.add_metric([], _buckets(histogram), histogram.total)
        yield family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    bounds = [*map(str, histogram.bounds), "+Inf"]
    return list(zip(bounds, map(float, histogram.cumulative), strict=True))


def _speculation(tally: Tally) -> Iterator[Metric]:
    rounds = _counter("spec_decode_num_drafts", "rounds that had a draft", "drafter")
    drafted = _counter("spec_decode_num_draft_tokens", "drafted tokens", "drafter")
    accepted = _counter("spec_decode_num_accepted_tokens", "drafted tokens that were kept", "drafter")
    positions = _counter(
        "spec_decode_num_accepted_tokens_per_pos", "kept ones by depth, from 0 on", "drafter", "position"
    )
    for drafter, drafts in tally.drafts.items():
        rounds.add_metric([drafter], drafts.n_rounds)
        drafted.add_metric([drafter], drafts.n_drafted)
        accepted.add_metric([drafter], drafts.n_accepted)
        for position, n in sorted(drafts.accepted_per_position.items()):
            positions.add_metric([drafter, str(position)], n)
    yield from (rounds, drafted, accepted, positions)


def _engine(service: Service) -> Iterator[Metric]:
    load, status = service.load(), service.status()
    used = load.n_cells_used / load.n_cells if load.n_cells else 0.0
    cached = load.n_cells_cached / load.n_cells if load.n_cells else 0.0
    for name, meaning, value in (
        ("num_requests_running", "sequences that are computed", load.n_running),
        ("num_requests_waiting", "those that wait for a slot or for their grammar", load.n_waiting),
        ("kv_cache_usage_perc", "share of key/value cells that hold something, from 0 to 1", used),
        ("kv_cache_prefix_perc", "share of cells that the prefix cache holds", cached),
        ("engine_ready", "1 if requests are answered now", status.state is EngineState.READY),
        ("engine_degraded", "1 if it works, but not as fast as it was meant to", bool(status.degraded)),
    ):
        yield GaugeMetricFamily(PREFIX + name, meaning, value=float(value))
    restarts = _counter("engine_restarts", "times that the engine's process was replaced")
    restarts.add_metric([], status.n_restarts)
    yield restarts
    build = InfoMetricFamily(PREFIX + "build", "version and model")
    build.add_metric([], {"version": __version__, "model": service.name})
    yield build


routes = (Operation("GET", "/metrics", metrics, "figures for Prometheus", Contract(media_type=TEXT)),)
