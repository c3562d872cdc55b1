"""Engines on mixed devices, through the public library, in a process whose environment admits them.

ggml decides once for each process which devices it has: a software Vulkan has to be asked for before ggml is
loaded, and a worker's devices stay. So tests drive a process of their own, job by job.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

import pytest

ROOT = Path(__file__).resolve().parents[2]
VULKAN, BLAS = "Vulkan0", "BLAS"
# Mesa's llvmpipe is a CPU, which ggml skips unless told otherwise. Its Debian 12 version (22.3) crashes on
# descriptors of a freed buffer that no shader reads, which ggml's fusion of add and norm leaves behind.
SOFTWARE_VULKAN = {
    "GGML_VK_VISIBLE_DEVICES": "0",
    "GGML_VK_DISABLE_FUSION": "1",
    "LP_NUM_THREADS": "1",
    "GOMP_SPINCOUNT": "0",
}
REQUIRED = "REQUIRED_TEST_DEVICES"  # names, joined by commas, whose absence fails a test: CI sets it
ANSWER_TIMEOUT_S = 240.0
_TAIL_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class Answer:
    """A greedy continuation; `top` has the two likeliest tokens of each place, and their log-probability."""

    tokens: list[int]
    top: list[list[tuple[int, float]]]
    n_accepted: int
    n_foreseen: int  # rounds whose draft was begun while the target verified the one before

    def gap(self, place: int) -> float:
        """Distance of the two likeliest tokens at `place`, in nats."""
        (_, first), (_, second) = self.top[place]
        return first - second


@dataclass(frozen=True, slots=True)
class Engine:
    """What one engine said: `target` and `draft` are where the models lay."""

    target: str
    draft: str | None
    answers: list[Answer]


class EngineProcess:
    """A Python that does one job after the other (see `_JOBS`), and whose stderr is in `log`."""

    def __init__(self, log: Path, environ: Mapping[str, str] | None = None) -> None:
        self._log = log
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, **SOFTWARE_VULKAN, "PYTHONPATH": path, **(environ or {})}
        with log.open("ab") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.mixed_devices"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                env=environment,
                cwd=ROOT,
                text=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the process; idempotent."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def devices(self) -> list[str]:
        """Names of all devices, as `lucebox devices` lists them."""
        return list(self._call("devices"))

    def ask(
        self, prompts: Sequence[Sequence[int] | str], n_tokens: int, *, repeat: int = 1, **options: Any
    ) -> Engine:
        """Loads an engine of these EngineOptions, has it continue each prompt, and unloads it."""
        answer = self._call("ask", prompts=prompts, n_tokens=n_tokens, repeat=repeat, options=options)
        answers = [
            Answer(
                each["tokens"],
                [[(int(t), p) for t, p in top] for top in each["top"]],
                each["n_accepted"],
                each["n_foreseen"],
            )
            for each in answer["answers"]
        ]
        return Engine(answer["target"], answer["draft"], answers)

    def cycle(self, n_cycles: int, prompt: Sequence[int], **options: Any) -> list[dict[str, int]]:
        """Loads, asks and unloads `n_cycles` times; behind each the bytes that process and devices use."""
        return list(self._call("cycle", n_cycles=n_cycles, prompt=prompt, options=options))

    def _call(self, job: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"job": job, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail("ended before", job, arguments)
        if not select.select([self._process.stdout], [], [], ANSWER_TIMEOUT_S)[0]:
            self._process.kill()
            self._fail(f"said nothing for {ANSWER_TIMEOUT_S:.0f} s at", job, arguments)
        line = self._process.stdout.readline()
        if not line:
            self._fail(f"ended with status {self._process.wait()} at", job, arguments)
        answer = json.loads(line)
        if "error" in answer:
            self._fail(f"raised {answer['error']} at", job, arguments)
        return answer["result"]

    def _fail(self, what: str, job: str, arguments: Mapping[str, Any]) -> NoReturn:
        words = self._log.read_text(encoding="utf-8", errors="replace")[-_TAIL_CHARACTERS:]
        pytest.fail(f"the process {what} {job}, {arguments.get('options')}\n{words}", pytrace=False)


def need(*names: str, found: Sequence[str]) -> None:
    """Skips a test whose devices are not among those found; fails it where the environment requires them."""
    missing = [name for name in names if name not in found]
    if not missing:
        return
    words = f"there is no {', '.join(missing)} here, only {', '.join(found)}"
    required = [name.strip() for name in os.environ.get(REQUIRED, "").split(",")]
    if set(missing) & set(required):
        pytest.fail(f"{words}, and {REQUIRED} asks for it", pytrace=False)
    pytest.skip(words)


def rss_bytes(pid: int | str = "self") -> int:
    """Memory of a process that is its own, mapped files left out."""
    fields = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    (line,) = (line for line in fields if line.startswith("RssAnon:"))
    return int(line.split()[1]) << 10


def _devices() -> list[str]:
    from lucebox.ggml.devices import list_devices

    return [device.name for device in list_devices()]


def _ask(prompts: Sequence[Any], n_tokens: int, repeat: int, options: Mapping[str, Any]) -> dict[str, Any]:
    import lucebox

    params = lucebox.SamplingParams(temperature=0.0, max_tokens=n_tokens, ignore_eos=True, logprobs=2)
    with lucebox.Engine(**options) as engine:
        completions = [engine.generate(prompt, params) for _ in range(repeat) for prompt in prompts]
        info = engine.info
    answers = [
        {
            "tokens": each.tokens,
            "top": [entry.top for entry in each.logprobs or ()],
            "n_accepted": each.timings.draft_n_accepted,
            "n_foreseen": each.timings.n_foreseen,
        }
        for each in completions
    ]
    return {
        "target": info.target.device,
        "draft": info.draft and info.draft.device,
        "answers": answers,
    }


def _cycle(n_cycles: int, prompt: Sequence[int], options: Mapping[str, Any]) -> list[dict[str, int]]:
    from lucebox.ggml.devices import DeviceKind, list_devices

    used = []
    for _ in range(n_cycles):
        _ask([prompt], 4, 1, options)
        devices = [device for device in list_devices() if device.kind is not DeviceKind.CPU]
        used.append({device.name: device.total_bytes - device.free_bytes for device in devices})
        used[-1]["process"] = rss_bytes()
    return used


_JOBS = {"devices": _devices, "ask": _ask, "cycle": _cycle}


def main() -> None:
    """Reads a job a line from stdin and writes an answer a line, until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed is no answer
    for line in sys.stdin:
        arguments = json.loads(line)
        job = _JOBS[arguments.pop("job")]
        try:
            answer = {"result": job(**arguments)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
