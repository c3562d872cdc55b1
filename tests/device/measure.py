"""What an accelerator brings on this machine: target and draft model on it and beside it, in one run.

    python -m tests.device.measure --device CUDA0 [--target MODEL --draft MODEL] [--json FILE]

Each placement decodes plainly, with drafts in turn with the target, and with drafts while the target
verifies. Without models it writes some of the sizes of Qwen2.5-Coder-1.5B and 0.5B (see successor_models),
whose text is known, and checks it. Prints medians of rounds that take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console
from rich.table import Table

from lucebox import Completion, Engine, SamplingParams, SpeculativeParams
from lucebox.bench.plain import LlamaCpp, Side
from lucebox.engine.step import Stepper
from lucebox.ggml.backend import Backend
from lucebox.ggml.devices import find_device
from lucebox.ggml.scheduler import Scheduler
from lucebox.hub import resolve
from tests.device.successor_models import DRAFT, SMALL, TARGET, Size, text_from, write_successor_model

AGREEMENT = 0.8  # acceptance rate of the models that are written
N_PROMPT = 64
N_CTX = 1024


@dataclass(slots=True)
class Models:
    """Files, and the text that the target must say behind `prompt`, where that is known."""

    target: str
    draft: str
    prompt: list[int]
    text: list[int] | None


@dataclass(slots=True)
class Row:
    """One arm of one placement: a figure of each round."""

    placement: str
    arm: str
    tokens_per_s: list[float] = field(default_factory=list)
    acceptance: list[float] = field(default_factory=list)
    python_ms: list[float] = field(default_factory=list)


class Clock:
    """The engine's steps, and what of them its thread did not spend in ggml's computation."""

    def __init__(self) -> None:
        self.n_steps = 0
        self._python_s = 0.0
        self._thread = 0

    @contextmanager
    def watch(self) -> Iterator[None]:
        step = Stepper.step

        def timed_step(stepper: Stepper) -> Any:
            self._thread = threading.get_ident()
            started = time.perf_counter()
            events = step(stepper)
            self._python_s += time.perf_counter() - started
            self.n_steps += 1
            return events

        with (
            mock.patch.object(Stepper, "step", timed_step),
            mock.patch.object(Backend, "compute", self._timed(Backend.compute)),
            mock.patch.object(Scheduler, "compute", self._timed(Scheduler.compute)),
        ):
            yield

    def _timed(self, compute: Callable[[Any, int], None]) -> Callable[[Any, int], None]:
        def timed(owner: Any, graph: int) -> None:
            started = time.perf_counter()
            compute(owner, graph)
            if threading.get_ident() == self._thread:
                self._python_s -= time.perf_counter() - started

        return timed

    def take_ms(self) -> float:
        """Milliseconds of Python for each step since the last call."""
        milliseconds = 1000.0 * self._python_s / max(1, self.n_steps)
        self.n_steps, self._python_s = 0, 0.0
        return milliseconds


def placements(device: str) -> dict[str, dict[str, str]]:
    """Options of each, by name; on a machine without an accelerator only the first is a mix of one."""
    both = {"target_device": device, "draft_device": device}
    if device == "CPU":
        return {"both on CPU": both}
    return {
        f"both on {device}": both,
        f"target on {device}, draft on CPU": {"target_device": device, "draft_device": "CPU"},
        f"target 3:1 on {device} and CPU, draft on {device}": {
            "target_device": f"{device},CPU",
            "target_split": "3,1",
            "draft_device": device,
        },
    }


def ask(engine: Engine, models: Models, n_tokens: int, *, n_draft: int) -> Completion:
    """A greedy answer, with drafts of so many tokens. Raises SystemExit when it is not the known text."""
    speculative = SpeculativeParams(enabled=n_draft > 0, draft_length=f"fixed:n={max(1, n_draft)}")
    params = SamplingParams(temperature=0, max_tokens=n_tokens, ignore_eos=True, speculative=speculative)
    answer = engine.generate(models.prompt, params)
    if models.text is not None and answer.tokens != models.text[:n_tokens]:
        wrong = next(i for i, token in enumerate(answer.tokens) if token != models.text[i])
        raise SystemExit(f"on {engine.info.target.device} token {wrong} of the text is wrong")
    return answer


def measure_engine(
    name: str, models: Models, arms: Mapping[str, int], args: argparse.Namespace, options: Mapping[str, Any]
) -> list[Row]:
    """One row for each arm, which is a draft length, on one loaded engine."""
    rows = {arm: Row(name, arm) for arm in arms}
    clock = Clock()
    common = {"draft_vocab": "all", "drafter": "model", "ctx_size": N_CTX, "threads": args.threads}
    with clock.watch(), Engine(models.target, models.draft, **common, **options) as engine:
        for round_ in range(args.rounds + 1):
            for arm, n_draft in arms.items():
                clock.take_ms()
                timings = ask(engine, models, args.tokens, n_draft=n_draft).timings
                python_ms = clock.take_ms()
                if round_:  # the first warms up
                    rows[arm].tokens_per_s.append(1000.0 * timings.predicted_n / timings.predicted_ms)
                    rows[arm].acceptance.append(timings.draft_n_accepted / max(1, timings.draft_n))
                    rows[arm].python_ms.append(python_ms)
    return list(rows.values())


def measure(models: Models, args: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    for name, options in placements(args.device).items():
        arms = {"plain": 0, "serial": args.draft_tokens}
        rows += measure_engine(name, models, arms, args, {**options, "overlap": "off"})
        if options["target_device"] != options["draft_device"] and "," not in options["target_device"]:
            # Only then has the draft model a device of its own.
            arms = {"overlapped": args.draft_tokens}
            rows += measure_engine(name, models, arms, args, {**options, "overlap": "on"})
    if args.llama_cpp:
        rows.append(measure_llama_cpp(models, args))
    return rows


def measure_llama_cpp(models: Models, args: argparse.Namespace) -> Row:
    """Plain decoding by llama.cpp, with as many layers on accelerators as it puts there by itself."""
    row, side = Row("llama.cpp", "plain"), Side()
    llama = LlamaCpp(args.llama_cpp, Path(models.target), args.threads)
    for _ in range(args.rounds + 1):
        llama.run(models.prompt, args.tokens, side)
    llama.close()
    row.tokens_per_s += side.decode[1:]
    return row


def table(rows: list[Row], title: str) -> Table:
    result = Table("placement", "arm", "tok/s", "beside plain", "accepted", "Python ms/step", title=title)
    plain = {row.placement: statistics.median(row.tokens_per_s) for row in rows if row.arm == "plain"}
    for row in rows:
        speed = statistics.median(row.tokens_per_s)
        accepted = f"{statistics.median(row.acceptance):.2f}" if row.acceptance and row.arm != "plain" else ""
        python_ms = f"{statistics.median(row.python_ms):.2f}" if row.python_ms else ""
        ratio = f"{speed / plain[row.placement]:.2f}"
        result.add_row(row.placement, row.arm, f"{speed:.1f}", ratio, accepted, python_ms)
    return result


def successor_models(folder: Path, target: Size, draft: Size) -> Models:
    prompt = [*range(N_PROMPT)]
    return Models(
        str(write_successor_model(folder / "target.gguf", target)),
        str(write_successor_model(folder / "draft.gguf", draft, agreement=AGREEMENT)),
        prompt,
        text_from(prompt[-1], N_CTX - N_PROMPT, target.n_vocab),
    )


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="python -m tests.device.measure")
    result.add_argument("--device", required=True, help="the accelerator, as `lucebox devices` names it")
    result.add_argument("--target", help="a GGUF file or a name; one is written unless given")
    result.add_argument("--draft", help="likewise")
    result.add_argument("--small", action="store_true", help="write small models: a rehearsal in seconds")
    result.add_argument("--threads", type=int, default=8, help="of the CPU, for each model")
    result.add_argument("--tokens", type=int, default=256)
    result.add_argument("--draft-tokens", type=int, default=4)
    result.add_argument("--rounds", type=int, default=3)
    result.add_argument("--llama-cpp", metavar="PYTHON", help="an interpreter that has llama_cpp")
    result.add_argument("--json", type=Path, help="where all figures go")
    return result


def main() -> None:
    args = parser().parse_args()
    device = find_device(args.device)
    with tempfile.TemporaryDirectory() as folder:
        if args.target and args.draft:
            prompt = [1000 + 37 * i for i in range(N_PROMPT)]
            models = Models(str(resolve(args.target)), str(resolve(args.draft)), prompt, None)
        elif args.small:
            models = successor_models(Path(folder), SMALL, SMALL)
        else:
            models = successor_models(Path(folder), TARGET, DRAFT)
        rows = measure(models, args)
    known = (
        "of real models" if models.text is None else f"of written models, known to agree at {AGREEMENT:.0%}"
    )
    title = f"{device.description}, {args.tokens} tokens {known}, drafts of {args.draft_tokens}"
    Console(width=120).print(table(rows, title))
    if args.json:
        figures = {"device": device.description, "models": known, "rows": [asdict(row) for row in rows]}
        settings = {name: str(value) for name, value in vars(args).items()}
        args.json.write_text(json.dumps({**figures, "settings": settings}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
