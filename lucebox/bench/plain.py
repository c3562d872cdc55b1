"""Plain greedy decoding, beside llama.cpp on the same machine in the same run.

    python -m lucebox.bench.plain MODEL... [--llama-cpp PYTHON] [--threads 2] [--tokens 128] [--rounds 5]

PYTHON is an interpreter that has `llama-cpp-python`, built natively from its sdist. Both sides load once and
stay loaded; rounds alternate; medians of the tokens per second and of the ratio of each pair are printed.
Our side is the whole engine, as a library user has it; `outside ggml` is the time per step of the engine
that ggml's graph computation does not take.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from rich.console import Console
from rich.table import Table

from lucebox import Engine, SamplingParams
from lucebox.engine.messages import RequestEvent
from lucebox.engine.step import Stepper
from lucebox.ggml.backend import Backend
from lucebox.hub import resolve

N_PROMPT = 64
N_CTX = 1024
SEED = 7


@dataclass(slots=True)
class Side:
    """Samples of one engine: tokens per second, prompt tokens per second, and milliseconds outside ggml."""

    decode: list[float] = field(default_factory=list)
    prefill: list[float] = field(default_factory=list)
    outside_ms: list[float] = field(default_factory=list)


class Clock:
    """Sums the seconds spent in the engine's steps, and in ggml's graph computation within them."""

    def __init__(self) -> None:
        self.n_steps = 0
        self.step_s = 0.0
        self.compute_s = 0.0

    @contextmanager
    def watch(self) -> Iterator[None]:
        step, compute = Stepper.step, Backend.compute

        def timed_step(stepper: Stepper) -> list[RequestEvent]:
            started = time.perf_counter()
            events = step(stepper)
            self.step_s += time.perf_counter() - started
            self.n_steps += 1
            return events

        def timed_compute(backend: Backend, graph: int) -> None:
            started = time.perf_counter()
            compute(backend, graph)
            self.compute_s += time.perf_counter() - started

        with (
            mock.patch.object(Stepper, "step", timed_step),
            mock.patch.object(Backend, "compute", timed_compute),
        ):
            yield

    def outside_ms(self) -> float:
        """Milliseconds per step outside ggml's computation since the last call."""
        milliseconds = 1000 * (self.step_s - self.compute_s) / max(1, self.n_steps)
        self.n_steps, self.step_s, self.compute_s = 0, 0.0, 0.0
        return milliseconds


class LlamaCpp:
    """llama.cpp in an interpreter of its own."""

    def __init__(self, python: str, model: Path, n_threads: int) -> None:
        worker = Path(__file__).with_name("llama_cpp_worker.py")
        self._process = subprocess.Popen(
            [python, str(worker), str(model), str(n_threads), str(N_CTX)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._answer()

    def run(self, prompt: list[int], n_tokens: int, side: Side) -> None:
        assert self._process.stdin is not None
        print(json.dumps({"prompt": prompt, "n_tokens": n_tokens}), file=self._process.stdin, flush=True)
        answer = self._answer()
        side.prefill.append(len(prompt) / answer["prefill_s"])
        side.decode.append(n_tokens / answer["decode_s"])

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(
                f"llama.cpp ended with status {self._process.wait()}: is llama-cpp-python there?"
            )
        answer: dict[str, float] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def run_lucebox(engine: Engine, clock: Clock, prompt: list[int], n_tokens: int, side: Side) -> None:
    params = SamplingParams(temperature=0, max_tokens=n_tokens + 1, ignore_eos=True)
    arrivals: list[float] = []
    clock.outside_ms()
    started = time.perf_counter()
    for chunk in engine.stream(prompt, params):
        arrivals += [time.perf_counter()] * len(chunk.tokens)
    side.prefill.append(len(prompt) / (arrivals[0] - started))
    decode_s = arrivals[-1] - arrivals[0]
    side.decode.append((len(arrivals) - 1) / decode_s)
    side.outside_ms.append(clock.outside_ms())


def measure(model: str, args: argparse.Namespace) -> tuple[Side, Side]:
    path = resolve(model)
    prompt = random.Random(SEED).choices(range(1000, 30000), k=N_PROMPT)
    ours, theirs = Side(), Side()
    llama = LlamaCpp(args.llama_cpp, path, args.threads) if args.llama_cpp else None
    clock = Clock()
    with clock.watch(), Engine(str(path), threads=args.threads, ctx_size=N_CTX) as engine:
        for round_ in range(args.rounds + 1):
            if round_ == 1:  # the first warms both up
                ours, theirs = Side(), Side()
            run_lucebox(engine, clock, prompt, args.tokens, ours)
            if llama:
                llama.run(prompt, args.tokens, theirs)
    if llama:
        llama.close()
    return ours, theirs


def add_row(table: Table, model: str, ours: Side, theirs: Side) -> None:
    row = [model, f"{statistics.median(ours.decode):.1f}", f"{statistics.median(ours.prefill):.0f}"]
    row.append(f"{statistics.median(ours.outside_ms):.2f}")
    if theirs.decode:
        row += [f"{statistics.median(theirs.decode):.1f}", f"{statistics.median(theirs.prefill):.0f}"]
        for a, b in ((ours.decode, theirs.decode), (ours.prefill, theirs.prefill)):
            row.append(f"{statistics.median(x / y for x, y in zip(a, b, strict=True)):.3f}")
    table.add_row(*row)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m lucebox.bench.plain", description="Plain greedy decoding."
    )
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--llama-cpp", metavar="PYTHON", help="an interpreter that has llama-cpp-python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args(argv)
    table = Table("model", "tok/s", "prompt tok/s", "step outside ggml, ms")
    if args.llama_cpp:
        for name in ("llama.cpp tok/s", "llama.cpp prompt tok/s", "ratio", "prompt ratio"):
            table.add_column(name)
    for model in args.models:
        add_row(table, model, *measure(model, args))
    title = (
        f"{args.threads} threads, {N_PROMPT} prompt tokens, {args.tokens} generated, medians of {args.rounds}"
    )
    Console().print(title, table, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
