"""Plain, serial and overlapped decoding on real devices, in turn, and a drawing of who computed when.

    python -m lucebox.research.overlap_times TARGET DRAFT [--plot times.png]

Unless a device is named for the draft model, a worker on this machine has it: a process of its own, with
threads of its own. Every round starts a new engine for each way to decode, which warms up first. Answers are
compared token by token.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from lucebox import flags, terminal
from lucebox.api import Engine
from lucebox.config import EngineConfig, EngineOptions, Overlap
from lucebox.cores import physical_cores
from lucebox.engine.timeline import Span
from lucebox.engine.timings import Timings
from lucebox.errors import ConfigError, LuceboxError, WorkerError
from lucebox.progress import Bars
from lucebox.research import plots
from lucebox.research.prompts import CODE
from lucebox.resolve import resolve_engine
from lucebox.sampling.params import SamplingParams, SpeculativeParams

N_CTX = 1024
N_WARM_UP_TOKENS = 16
PLAIN, SERIAL, AHEAD, AUTO = "plain", "serial", "overlap on", "overlap auto"
MODES: dict[str, Overlap] = {SERIAL: "off", AHEAD: "on", AUTO: "auto"}


@dataclass(slots=True)
class Samples:
    """One way to decode: the sums of each round, what it said in the last, and what was computed then."""

    timings: list[Timings] = field(default_factory=list)
    tokens: list[list[int]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    @property
    def speeds(self) -> list[float]:
        """Tokens per second behind the prompt, of each round."""
        return [each.predicted_per_second for each in self.timings]


def measure(
    config: EngineConfig, prompts: Sequence[str], n_rounds: int, n_tokens: int, bars: Bars
) -> dict[str, Samples]:
    """Samples of every way to decode. Raises what the engine raises."""
    params = SamplingParams(temperature=0.0, max_tokens=n_tokens, ignore_eos=True)
    plain = replace(params, speculative=SpeculativeParams(enabled=False))
    samples = {name: Samples() for name in (PLAIN, *MODES)}
    for n_round in range(n_rounds):
        for i, (name, mode) in enumerate(MODES.items()):
            done = (n_round + i / len(MODES)) / n_rounds
            bars.on_work("measuring", f"{name}, round {n_round + 1} of {n_rounds}", done)
            spans: list[Span] = []
            chosen = replace(config, overlap=mode)
            with Engine.from_config(chosen, on_work=spans.append) as engine:
                engine.generate(prompts[0], replace(params, max_tokens=N_WARM_UP_TOKENS))
                spans.clear()
                _answer(engine, prompts, params, samples[name])
                samples[name].spans = list(spans)
                if mode == "off":
                    _answer(engine, prompts, plain, samples[PLAIN])
    return samples


def _answer(engine: Engine, prompts: Sequence[str], params: SamplingParams, into: Samples) -> None:
    answers = [engine.generate(prompt, params) for prompt in prompts]
    into.tokens = [answer.tokens for answer in answers]
    into.timings.append(sum((answer.timings for answer in answers), Timings()))


def table(samples: dict[str, Samples]) -> Table:
    """A row for each way to decode; ratios are medians over rounds."""
    columns = ("", "tok/s", "of plain", "of serial", "tokens a round", "draft ms", "verify ms")
    result = Table(*columns, "overlapped", "foreseen", "hidden ms", "same text")
    for name, each in samples.items():
        total = sum(each.timings, Timings())
        n_drafted = max(1, total.n_drafted_rounds)
        ratios = [
            f"{median(a / b for a, b in zip(each.speeds, samples[other].speeds, strict=True)):.3f}"
            for other in (PLAIN, SERIAL)
        ]
        result.add_row(
            name,
            f"{median(each.speeds):.2f}",
            *ratios,
            f"{total.mean_acceptance_length:.2f}",
            f"{total.draft_ms / n_drafted:.1f}",
            f"{total.verify_ms / max(1, total.n_rounds):.1f}",
            f"{total.n_overlapped / n_drafted:.2f}",
            f"{total.n_foreseen / n_drafted:.2f}",
            f"{total.hidden_ms / n_drafted:.1f}",
            "yes" if each.tokens == samples[PLAIN].tokens else "NO",
        )
    return result


@contextlib.contextmanager
def local_worker(n_threads: int) -> Iterator[str]:
    """The address of a worker that serves this machine's CPU as long as this lasts."""
    port = _free_port_pair()
    flags_of_worker = [f"--listen=127.0.0.1:{port}", "--device=CPU", f"--threads={n_threads}"]
    command = [sys.executable, "-m", "lucebox", "worker", *flags_of_worker]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise WorkerError("the worker ended before it was ready")
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()


def _free_port_pair() -> int:
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                return port


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints. Returns the exit code."""
    parser = flags.ArgumentParser(
        prog="python -m lucebox.research.overlap_times",
        description="Plain, serial and overlapped decoding on real devices, in turn.",
    )
    parser.add_argument("target", metavar="TARGET", help="the target model, as for --target-model")
    parser.add_argument("draft", metavar="DRAFT", help="the draft model, as for --draft-model")
    parser.add_argument("--target-device", metavar="DEVICE", default="CPU", help="[default: %(default)s]")
    parser.add_argument(
        "--draft-device", metavar="DEVICE", help="[default: this machine's CPU, in a worker of its own]"
    )
    parser.add_argument("--draft-quant", metavar="TYPE", default="auto", help="as for `lucebox serve`")
    parser.add_argument("--workers", metavar="HOST:PORT,…", help="as for `lucebox serve`")
    for flag, default, text in (
        ("--threads", None, "CPU threads of the target [default: half the physical cores]"),
        ("--draft-threads", None, "CPU threads of the draft model [default: as --threads]"),
        ("--length", "4", "drafted tokens [default: %(default)s]"),
        ("--tokens", "96", "tokens per answer [default: %(default)s]"),
        ("--rounds", "3", "[default: %(default)s]"),
        ("--prompts", "4", f"of {len(CODE)} [default: %(default)s]"),
    ):
        parser.add_argument(flag, metavar="N", default=default, help=text)
    parser.add_argument("--plot", metavar="FILE", help="draw who computed when: FILE.png or FILE.svg")
    arguments = parser.parse_args(argv)
    try:
        _run(arguments)
    except LuceboxError as error:
        terminal.show_error(error)
        return 2 if isinstance(error, ConfigError) else 1
    return 0


def _run(arguments: argparse.Namespace) -> None:
    path = None if arguments.plot is None else plots.check_path(arguments.plot)
    n_threads = _integer(arguments, "threads", max(1, physical_cores() // 2))
    n_draft_threads = _integer(arguments, "draft_threads", n_threads)
    n_rounds, n_tokens = (flags.integer(arguments, name, 1) for name in ("rounds", "tokens"))
    prompts = CODE[: flags.integer(arguments, "prompts", 1, len(CODE))]
    with contextlib.ExitStack() as stack:
        workers, device = arguments.workers, arguments.draft_device
        if device is None:
            workers, device = stack.enter_context(local_worker(n_draft_threads)), "RPC0"
        options = EngineOptions(
            target_model=arguments.target,
            draft_model=arguments.draft,
            target_device=arguments.target_device,
            draft_device=device,
            draft_quant=arguments.draft_quant,
            workers=workers,
            ctx_size=N_CTX,
            threads=n_threads,
            draft_threads=n_draft_threads,
            drafter="model",
            draft_length=f"fixed:n={flags.integer(arguments, 'length', 1)}",
        )
        with Bars() as bars:
            config = resolve_engine(options, on_progress=bars.on_download)
            samples = measure(config, prompts, n_rounds, n_tokens, bars)
    print(
        f"{arguments.target} on {arguments.target_device}, {arguments.draft} on {device}, {n_threads} and "
        f"{n_draft_threads} threads, {len(prompts)} prompts, {n_tokens} tokens, medians of {n_rounds} rounds"
    )
    Console(width=None if sys.stdout.isatty() else 140).print(table(samples))
    if path is not None:
        runs = {name: samples[name].spans for name in (SERIAL, AHEAD)}
        plots.plot_timelines(path, runs)
        print(f"drawn to {path}")


def _integer(arguments: argparse.Namespace, name: str, default: int) -> int:
    return default if getattr(arguments, name) is None else flags.integer(arguments, name, 1)


if __name__ == "__main__":
    sys.exit(main())
