"""Time from the start of a process to a loaded model, and its peak memory, beside llama.cpp in the same run.

    python -m lucebox.bench.load MODEL [--llama-cpp PYTHON] [--threads 2] [--rounds 5]

Each sample is a fresh process that loads the model and computes one token; rounds alternate; medians are
printed. The first round, which warms the page cache, does not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from lucebox.hub import resolve

N_CTX = 1024
OURS = """
import json, resource, sys
from lucebox import Engine, SamplingParams
with Engine(sys.argv[1], threads=int(sys.argv[2]), ctx_size=int(sys.argv[3])) as engine:
    engine.generate([0, 0], SamplingParams(temperature=0, max_tokens=1))
    print(json.dumps({"peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}), flush=True)
"""


def sample(command: list[str]) -> tuple[float, float]:
    """(seconds to the first line of output, peak resident megabytes)."""
    started = time.perf_counter()
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        line = process.stdout.readline()
        elapsed_s = time.perf_counter() - started
        process.stdin.close()
    if not line:
        raise SystemExit(f"{command[0]} ended with status {process.returncode}")
    return elapsed_s, json.loads(line)["peak_mb"]


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m lucebox.bench.load")
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--llama-cpp", metavar="PYTHON", help="an interpreter that has llama-cpp-python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args(argv)
    numbers = [str(resolve(args.model)), str(args.threads), str(N_CTX)]
    commands = {"lucebox": [sys.executable, "-c", OURS, *numbers]}
    if args.llama_cpp:
        worker = str(Path(__file__).with_name("llama_cpp_worker.py"))
        commands["llama.cpp"] = [args.llama_cpp, worker, *numbers]
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for round_ in range(args.rounds + 1):
        for name, command in commands.items():
            measured = sample(command)
            if round_:
                samples[name].append(measured)
    for name, values in samples.items():
        seconds, megabytes = (statistics.median(v) for v in zip(*values, strict=True))
        print(f"{name}: ready in {seconds:.2f} s, peak {megabytes:.0f} MB (medians of {args.rounds})")


if __name__ == "__main__":
    main(sys.argv[1:])
