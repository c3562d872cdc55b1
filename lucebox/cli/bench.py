"""`lucebox bench`: what guessing brings on this machine, and the other benchmarks."""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins
from msgspec.structs import replace

from lucebox import __version__, flags
from lucebox.config import MODEL_DRAFTER, NONE, EngineOptions, engine_options
from lucebox.cores import physical_cores
from lucebox.errors import ConfigError

if TYPE_CHECKING:
    from lucebox.api import Engine
    from lucebox.bench.report import Report
    from lucebox.progress import Bars

HELP = "measure what guessing brings, and other speeds"
DEFAULT_ARMS = ("model/fixed:n=3", "suffix/fixed:n=15", "auto")
_SPEC = "Every prompt is answered by every arm in turn, on one loaded engine, beside plain decoding."
DEFAULT_WORKLOADS = "code,edit,summarise,prose,chat"
_OTHERS: Mapping[str, str] = {
    "plain": "plain decoding, beside llama.cpp if it is there",
    "load": "time and memory of loading a model",
    "serving": "the server with several clients, beside llama.cpp's if it is there",
    "kernels": "compiled kernels beside their NumPy twins",
}
# No argument begins with it, so that all of them pass through to the module as they are.
_NO_PREFIX = "\0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    names = ",".join(("spec", *_OTHERS))
    kinds = parser.add_subparsers(dest="benchmark", metavar=f"{{{names}}}")
    spec = kinds.add_parser("spec", help="speculation beside plain decoding", description=_SPEC)
    spec.add_argument(
        "--workloads",
        metavar="A,B,…",
        default=DEFAULT_WORKLOADS,
        help="code, edit, summarise, prose, chat, grid (or one of it, as grid-1k-160) [default: %(default)s]",
    )
    spec.add_argument(
        "--arm",
        action="append",
        metavar="DRAFTER/LENGTH/ACCEPTANCE",
        help="a way to guess, as suffix/fixed:n=16 or auto; may be repeated; plain decoding is always "
        f"there [default: {', '.join(DEFAULT_ARMS)}]",
    )
    numbers = (
        ("--rounds", "3", "rounds, behind one that warms up"),
        ("--prompts", None, "prompts of each workload, as far as it has so many [default: the workload's]"),
        ("--tokens", None, "most tokens of an answer; the grid has its own [default: the workload's]"),
        ("--seed", "0", "chooses problems, files and texts, and draws the sampled ones"),
    )
    for flag, default, text in numbers:
        more = f" [default: {default}]" if default else ""
        spec.add_argument(flag, metavar="N", default=default, help=text + more)
    spec.add_argument("--json", metavar="FILE", help="write figures and samples to FILE, too")
    spec.add_argument(
        "--f16",
        action="store_true",
        help="measure on the target's float16 copy, which is made once and kept in the cache folder",
    )
    spec.add_argument(
        "--remember",
        action="store_true",
        help="let drafters keep earlier requests; arms then find the answers of the arms before them",
    )
    flags.add_arguments(spec, EngineOptions)
    for name, text in _OTHERS.items():
        other = kinds.add_parser(name, help=text, prefix_chars=_NO_PREFIX, add_help=False)
        other.add_argument("rest", nargs=argparse.REMAINDER)


def run(arguments: argparse.Namespace, environ: Mapping[str, str]) -> int:
    if arguments.benchmark in _OTHERS:
        import_module(f"lucebox.bench.{arguments.benchmark}").main(arguments.rest)
        return 0
    return _Spec(arguments, environ).run()


class _Spec:
    """One run of `lucebox bench spec`. Raises ConfigError before anything is loaded."""

    def __init__(self, arguments: argparse.Namespace, environ: Mapping[str, str]) -> None:
        from lucebox.bench import arms, workloads

        self.options = engine_options(arguments, environ)
        self.names = workloads.expand(arguments.workloads)
        self.arms = arms.parse_all(arguments.arm or _default_arms(self.options))
        self.n_rounds = flags.integer(arguments, "rounds", 1)
        self.seed = flags.integer(arguments, "seed", 0)
        n_prompts = None if arguments.prompts is None else flags.integer(arguments, "prompts", 1)
        n_tokens = None if arguments.tokens is None else flags.integer(arguments, "tokens", 1)
        self.size = workloads.Size(n_prompts, n_tokens, self.seed)
        self.remembers = arguments.remember
        self.f16 = arguments.f16
        self.json = None if arguments.json is None else _writable(arguments.json)

    def run(self) -> int:
        from lucebox.api import Engine
        from lucebox.bench import report
        from lucebox.progress import Bars

        with Bars() as bars:
            if self.f16:
                self._take_copy(bars)
            # Drafters that remember find the answer of an arm in that of the arm before, and guess all of it.
            engine = Engine.from_options(
                self.options,
                on_download=bars.on_download,
                on_status=bars.on_status,
                remembers=self.remembers,
            )
        found = report.Report(self._title(engine), self._configuration(engine), self.arms)
        found.mark = report.F16_MARK if self.f16 else ""
        status = 0
        try:
            with engine, Bars() as bars:
                self._measure(engine, found, bars)
        except KeyboardInterrupt:
            status = 128 + signal.SIGINT
        finally:
            found.print(report.console())
            if self.json is not None:
                self.json.write_text(json.dumps(found.as_json(), indent=1) + "\n", encoding="utf-8")
        return status

    def _take_copy(self, bars: Bars) -> None:
        """The target's float16 copy becomes the target."""
        from lucebox.bench.dequantised import f16_copy
        from lucebox.resolve import find_model

        source = find_model(self.options.target_model, on_progress=bars.on_download)
        copy = f16_copy(source, partial(bars.on_work, "writing the float16 copy", ""))
        self.options = replace(self.options, target_model=str(copy))

    def _measure(self, engine: Engine, found: Report, bars: Bars) -> None:
        """Adds samples to `found` as they come."""
        from lucebox.bench import spec, workloads

        bars.on_work("preparing", "", 0.0)
        spec.warm_up(engine, self.arms)
        for i, name in enumerate(self.names):
            bars.on_work("preparing", name, i / len(self.names))
            found.workloads.append(workloads.make(name, engine, self.size))
        if self.f16 and engine.info.draft is not None:
            bars.on_work("comparing draft and target", "", 0.0)
            cases = [case for workload in found.workloads for case in workload.cases]
            found.agreement = spec.agreement(engine, cases)
        n_total = (self.n_rounds + 1) * len(self.arms) * sum(w.cost for w in found.workloads)
        n_done = 0.0
        for workload in found.workloads:
            for sample in spec.measure(engine, workload, self.arms, self.n_rounds, self.seed):
                found.samples.append(sample)
                n_done += workload.cost_of(sample.case)
                at = f"{workload.name}, round {sample.round} of {self.n_rounds}"
                bars.on_work("measuring", at, n_done / n_total)

    @property
    def _n_threads(self) -> int:
        return self.options.threads or physical_cores()

    def _title(self, engine: Engine) -> str:
        info = engine.info
        draft = "no draft model" if info.draft is None else f"draft {info.draft.name} on {info.draft.device}"
        target = f"{info.target.name} on {info.target.device}"
        return f"{target}, {draft}, {self._n_threads} threads, seed {self.seed}"

    def _configuration(self, engine: Engine) -> dict[str, object]:
        return {
            "lucebox": __version__,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "threads": self._n_threads,
            "options": to_builtins(self.options),
            "engine": to_builtins(engine.info),
            "arms": {arm.name: to_builtins(arm.speculative) for arm in self.arms},
            "rounds": self.n_rounds,
            "seed": self.seed,
            "remembers": self.remembers,
        }


def _default_arms(options: EngineOptions) -> list[str]:
    """Those that the engine can do: without a draft model none that asks for it."""
    has_draft = options.draft_model not in (None, NONE)
    return [arm for arm in DEFAULT_ARMS if has_draft or not arm.startswith(f"{MODEL_DRAFTER}/")]


def _writable(file: str) -> Path:
    """The path of a file that can be written. Told before an hour of measuring, not behind it."""
    path = Path(file)
    if (
        path.is_dir()
        or not os.access(path.parent, os.W_OK)
        or (path.exists() and not os.access(path, os.W_OK))
    ):
        raise ConfigError(f"--json {file} cannot be written", remedy="name a file in a folder of yours")
    return path
