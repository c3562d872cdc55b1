"""Workers in processes of their own: what their devices compute and say, and how their loss is noticed."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lucebox.errors import WorkerError
from lucebox.ggml.devices import DeviceKind, find_device, list_devices
from lucebox.worker.client import WorkerLink, connect
from tests.support.tiny_models import write_tiny
from tests.support.workers import FreezingProxy, WorkerProcess

ROOT = Path(__file__).resolve().parents[2]
LOST_TIMEOUT_S = 5.5  # STALL_S, a ping's interval, and some of the test's own


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerProcess]:
    with WorkerProcess() as process:
        yield process


@pytest.fixture
def link(worker: WorkerProcess) -> Iterator[WorkerLink]:
    (link,) = connect([worker.address], _unexpected)
    yield link
    link.close()


class Lost:
    """An `on_lost` that remembers."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self._event = threading.Event()

    def __call__(self, reason: str) -> None:
        self.reasons.append(reason)
        self._event.set()

    def wait_s(self) -> float:
        """Seconds until the worker is reported lost."""
        started_s = time.monotonic()
        assert self._event.wait(LOST_TIMEOUT_S), "the loss was not noticed"
        return time.monotonic() - started_s


def _unexpected(reason: str) -> None:
    raise AssertionError(reason)


def run_script(code: str, *arguments: object, timeout_s: float = 60.0) -> str:
    """What `code` prints, in a process of its own."""
    run = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "GOMP_SPINCOUNT": "0"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_its_devices_are_listed_with_what_it_says(link: WorkerLink, worker: WorkerProcess) -> None:
    cpu = find_device("CPU")
    (far,) = [device for device in list_devices() if device.worker is not None]
    assert (far.name, far.worker, far.kind) == ("RPC0", worker.address, DeviceKind.CPU)
    assert far.description == cpu.description
    assert far.total_bytes == cpu.total_bytes
    assert abs(far.free_bytes - cpu.free_bytes) < 2**30
    assert find_device("rpc0").name == far.name  # its free memory may be another by now
    assert not far.is_own_cpu
    assert worker.ready_line.endswith("MiB free)")
    link.close()
    assert not [device for device in list_devices() if device.worker is not None]


MODEL = """
import sys
import numpy as np
from lucebox.runtime.rows import Rows, Want
from lucebox.runtime.runtime import Runtime
from lucebox.worker.client import connect

(link,) = connect([sys.argv[1]], print)
outputs = []
for device in ("CPU", "RPC0"):
    with Runtime.load(sys.argv[2], device=device, n_threads=1, n_ctx=256, kv_type="f32") as runtime:
        assert runtime.backend.is_host == (device == "CPU")
        prompt = Rows.chain(0, list(range(70)), 0, want_all=Want.HIDDEN)
        output = runtime.forward(prompt)
        outputs.append([output.logits.copy(), output.hidden.copy()])
        runtime.cache.commit(0, range(70))
        tree = Rows.tree(0, [1, 2, 3, 4, 5, 6, 7], [-1, 0, 0, 1, 1, 2, -1], 70)
        tree.wants[3] = Want.NOTHING
        outputs[-1].append(runtime.forward(tree).logits.copy())
for here, there in zip(*outputs, strict=True):
    np.testing.assert_allclose(here, there, atol=2e-5)
link.close()
"""


@pytest.mark.parametrize("dtype", ["f32", "q4_0"])
def test_a_whole_model_computes_the_same(worker: WorkerProcess, tmp_path: Path, dtype: str) -> None:
    model = write_tiny(tmp_path / "tiny.gguf", "qwen2", dtype=dtype)
    assert run_script(MODEL, worker.address, model) == ""


BOTH = """
import sys
from lucebox import Engine, SamplingParams

def ask(**options):
    with Engine(sys.argv[2], draft_model=sys.argv[3], threads=1, ctx_size=256, kv_type="f32",
                draft_length="fixed:n=3", drafter="model", draft_quant="keep", **options) as engine:
        answers = [engine.generate(list(range(10 + n)), SamplingParams(temperature=0.0, max_tokens=30))
                   for n in range(3)]
        return [answer.tokens for answer in answers], sum(answer.timings.draft_n for answer in answers)

here, n_drafted = ask(target_device="CPU", draft_device="CPU")
there, n_drafted_there = ask(target_device="RPC0", draft_device="RPC0", workers=sys.argv[1])
assert here == there, (here, there)
assert n_drafted == n_drafted_there > 0
"""


def test_both_models_of_an_engine_on_one_worker(worker: WorkerProcess, tmp_path: Path) -> None:
    target = write_tiny(tmp_path / "target.gguf", "qwen2", n_layer=3)
    draft = write_tiny(tmp_path / "draft.gguf", "qwen2", n_layer=3, perturbation=0.3)
    assert run_script(BOTH, worker.address, target, draft) == ""


def test_one_engine_at_a_time(link: WorkerLink, worker: WorkerProcess) -> None:
    with pytest.raises(WorkerError, match=r"is busy: .*\(127\.0\.0\.1\) has used it for") as caught:
        connect([worker.address], _unexpected)
    assert "one engine at a time" in caught.value.remedy
    link.release()
    (other,) = connect([worker.address], _unexpected, first_number=5)
    assert other.names == ("RPC5",)
    assert link.describe(0).total_bytes == other.describe(0).total_bytes
    other.close()


def test_somebody_who_comes_between(monkeypatch: pytest.MonkeyPatch) -> None:
    with WorkerProcess() as process:
        others: list[socket.socket] = []
        with monkeypatch.context() as patches:
            patches.setattr("lucebox.worker.client.ANSWER_TIMEOUT_S", 0.3)
            patches.setattr(
                WorkerLink,
                "_check_rpc",
                lambda _: others.append(socket.create_connection(("127.0.0.1", process.port))),
            )
            with pytest.raises(WorkerError, match="serves somebody else"):
                connect([process.address], _unexpected)
        # ggml waits on in a thread, and would end this process if the worker hung up on it.
        with pytest.raises(WorkerError, match="is busy"):
            connect([process.address], _unexpected)
        others[0].close()
        connect([process.address], _unexpected)[0].close()


KILLED = """
import os, signal, sys
from lucebox.runtime.runtime import Runtime
from lucebox.worker.client import connect

connect([sys.argv[1]], print)
Runtime.load(sys.argv[2], device="RPC0", n_threads=1, n_ctx=256)
print("loaded", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_engine_leaves_the_worker_free(worker: WorkerProcess, tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "tiny.gguf")
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-c", KILLED, worker.address, str(model)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            timeout=60,
            check=False,
        )
        assert (run.stdout, run.returncode) == (b"loaded\n", -signal.SIGKILL)
    connect([worker.address], _unexpected)[0].close()


def test_a_worker_that_is_not_there() -> None:
    with WorkerProcess() as process:
        pass
    with pytest.raises(WorkerError, match="There is no worker at") as caught:
        connect([process.address], _unexpected)
    assert "lucebox worker" in caught.value.remedy


def test_a_worker_that_is_killed_is_missed_at_once_and_welcome_back() -> None:
    lost = Lost()
    with WorkerProcess() as process:
        (link,) = connect([process.address], lost)
        process.kill()
        assert lost.wait_s() < 1.0
    assert lost.reasons == [f"The worker {process.address} closed the connection"]
    with pytest.raises(WorkerError):
        list_devices()
    link.close()
    with WorkerProcess(port=process.port) as process:
        (link,) = connect([process.address], _unexpected)
        assert [device.name for device in list_devices() if device.worker] == ["RPC0"]
        link.close()


def test_a_worker_that_is_stopped_is_missed() -> None:
    lost = Lost()
    with WorkerProcess() as process:
        (link,) = connect([process.address], lost)
        process.stop()
        assert lost.wait_s() > 3.0
        assert lost.reasons == [f"The worker {process.address} has not answered for 4 s"]
        process.resume()
        link.close()
        connect([process.address], _unexpected)[0].close()


def test_a_worker_behind_a_cut_wire_is_missed(worker: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucebox.worker.watchdog.STALL_S", 0.5)
    monkeypatch.setattr("lucebox.worker.watchdog.PING_EVERY_S", 0.1)
    lost = Lost()
    with FreezingProxy(worker.port) as proxy:
        (link,) = connect([proxy.address], lost)
        time.sleep(0.7)
        assert not lost.reasons
        proxy.freeze()
        assert lost.wait_s() < 2.0
        link.close()
    connect([worker.address], _unexpected)[0].close()


LONG = """
import sys, time
from lucebox.ggml import _api
from lucebox.ggml.backend import Backend
from lucebox.ggml.devices import find_device
from lucebox.ggml.library import load
from lucebox.worker import watchdog
from lucebox.worker.client import connect

watchdog.STALL_S, watchdog.PING_EVERY_S = 1.0, 0.05
lost = []
(link,) = connect([sys.argv[1]], lost.append)
library, n = load(), 2048
context = library.new_context(64, library.ggml_graph_overhead_custom(64, False))
graph = library.ggml_new_graph_custom(context, 64, False)
a = result = library.ggml_new_tensor_2d(context, _api.Type.F32, n, n)
for _ in range(12):
    result = library.ggml_mul_mat(context, a, result)
library.ggml_build_forward_expand(graph, result)
with Backend(find_device("RPC0"), 1) as backend:
    buffer = library.ggml_backend_alloc_ctx_tensors_from_buft(context, backend.buffer_type)
    library.ggml_backend_buffer_clear(buffer, 0)
    started_s = time.monotonic()
    backend.compute(graph)
    library.ggml_backend_tensor_get(result, (__import__("ctypes").c_float * 1)(), 0, 4)
    assert not lost, lost
    print(time.monotonic() - started_s)
    library.ggml_backend_buffer_free(buffer)
link.close()
"""


def test_a_long_computation_is_no_stall(worker: WorkerProcess) -> None:
    assert float(run_script(LONG, worker.address)) > 1.5


def test_garbage_leaves_the_worker_alive(worker: WorkerProcess) -> None:
    source = random.Random(4)
    for _ in range(60):
        with socket.create_connection(("127.0.0.1", worker.port + 1), 5.0) as raw:
            raw.sendall(source.randbytes(source.randrange(1, 2000)))
    assert worker.process.poll() is None
    connect([worker.address], _unexpected)[0].close()


def test_a_signal_ends_it_at_once_and_frees_both_ports() -> None:
    for number, status in ((signal.SIGTERM, 0), (signal.SIGINT, 128 + signal.SIGINT)):
        with WorkerProcess() as process:
            (link,) = connect([process.address], lambda reason: None)
            process.process.send_signal(number)
            assert process.process.wait(2.0) == status
            link.close()


@pytest.mark.parametrize("offset", [0, -1])
def test_a_port_in_use(offset: int) -> None:
    with WorkerProcess() as process:
        run = _start(f"127.0.0.1:{process.port + offset}")
        assert run.returncode == 1
        assert "Cannot listen at" in run.stderr
        assert "Address already in use (choose another HOST:PORT with --listen)" in run.stderr


def test_wrong_flags() -> None:
    for flags, message in (
        (("nowhere.invalid:50052",), "has no IPv4 address"),
        (("127.0.0.1:0",), "no port from 1 to 65534"),
        (("127.0.0.1:50052", "--threads=0"), "--threads must be"),
        (("127.0.0.1:50052", "--device=CUDA7"), "There is no device"),
    ):
        run = _start(*flags)
        assert run.returncode in (1, 2)
        assert message in run.stderr


def test_a_warning_where_others_can_reach_it() -> None:
    with WorkerProcess(host="0.0.0.0") as process:
        assert "WARNING: other machines can reach 0.0.0.0" in process.words()
        connect([process.address], _unexpected)[0].close()
    with WorkerProcess() as process:
        assert "WARNING" not in process.words()


def _start(listen: str, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lucebox", "worker", f"--listen={listen}", "--device=CPU", *flags],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
