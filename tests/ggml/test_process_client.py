"""The engine in a process of its own: deaths on either side, cancels, slow readers and bad starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

from lucebox.config import EngineConfig
from lucebox.core import Origin
from lucebox.engine import process_client
from lucebox.engine.client import EngineStatus
from lucebox.engine.engine_load import EngineLoad
from lucebox.engine.engine_process import EngineProcess
from lucebox.engine.messages import Cancel, Event, Failed, Loading, Planned, Ready, StepEvent, Submit
from lucebox.engine.process_client import ProcessClient
from lucebox.errors import ConfigError, EngineError, ModelFileError, RequestError, VocabularyMismatchError
from lucebox.sampling.params import SamplingParams
from tests.support import waiting
from tests.support.tiny_engines import TIMEOUT_S, Asked, tiny_config

eventually = partial(waiting.eventually, timeout_s=TIMEOUT_S)

PROMPT = [10, 20, 30, 40]
N_CTX = 4096
LONG = SamplingParams(temperature=0.0, max_tokens=1500, ignore_eos=True)
SHORT = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)
WIDE = {"n_layer": 3, "n_embd": 512, "n_ff": 4096}  # a long prompt takes seconds, nearly all of them in ggml
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def config(tmp_path: Path) -> EngineConfig:
    context = {"llama.context_length": N_CTX}
    draft = {"perturbation": 0.1, "metadata": context}
    return tiny_config(tmp_path, draft=draft, n_ctx=N_CTX, n_parallel=2, metadata=context)


@pytest.fixture
def client(config: EngineConfig) -> Iterator[ProcessClient]:
    with ProcessClient(config, log_level="warning") as client:
        client.wait_ready(TIMEOUT_S)
        yield client


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def next_of_requests(child: EngineProcess) -> Event | None:
    """The next event that does not say what the engine is busy with."""
    while isinstance(event := child.receive(), EngineLoad):
        pass
    return event


def kill(client: ProcessClient, number: int = signal.SIGKILL) -> int:
    pid = client.pid
    assert pid is not None
    os.kill(pid, number)
    return pid


def test_a_model_may_bear_a_name_that_is_no_unicode(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, metadata={"general.name": "NAMENAME"})
    path = Path(config.target.path)
    path.write_bytes(path.read_bytes().replace(b"NAMENAME", b"n\xff\xfe\xc3(ame"))
    with ProcessClient(config, log_level="warning") as client:
        assert client.wait_ready(TIMEOUT_S).target.name == "n???(ame"


@pytest.mark.parametrize("seed", [None, 11])
def test_a_stream_goes_on_over_a_killed_engine(client: ProcessClient, seed: int | None) -> None:
    chosen = {"temperature": 0.0} if seed is None else {"temperature": 0.8, "seed": seed}
    params = SamplingParams(max_tokens=1500, ignore_eos=True, frequency_penalty=0.1, **chosen)  # type: ignore[arg-type]
    whole = Asked(client, "whole", PROMPT, params, seed=seed or 1).all()
    asked, other = (Asked(client, id, PROMPT, params, seed=seed or 1) for id in ("a", "b"))
    asked.until(20)
    kill(client)
    assert asked.all().tokens == whole.tokens
    assert other.all().tokens == whole.tokens
    assert client.status().n_restarts == 1
    assert client.status().state == "ready"
    finish = asked.answer.finish
    assert finish.reason == "length"
    assert finish.timings.predicted_n == 1500
    assert finish.timings.prompt_n + finish.timings.cache_n == len(PROMPT)
    assert finish.timings.draft_n_accepted == asked.answer.origins.count(Origin.ACCEPTED)
    assert sum(finish.timings.accepted_per_position) == finish.timings.draft_n_accepted
    assert sum(totals.n_drafted for totals in finish.timings.drafters.values()) == finish.timings.draft_n


def test_a_killed_engine_is_back_for_the_next_request(client: ProcessClient) -> None:
    before = Asked(client, "a", PROMPT, SHORT).all()
    pid = kill(client)
    assert Asked(client, "b", PROMPT, SHORT).all().tokens == before.tokens
    assert client.pid not in (None, pid)
    assert not Path(f"/proc/{pid}").exists()  # no zombie is left


def test_a_request_that_kills_two_engines_fails_and_the_next_is_answered(tmp_path: Path) -> None:
    """Killed while they compute its prompt, before it got a token."""
    config = tiny_config(tmp_path, n_ctx=N_CTX, metadata={"llama.context_length": N_CTX}, **WIDE)
    with ProcessClient(config, log_level="warning") as client:
        client.wait_ready(TIMEOUT_S)
        victim = Asked(client, "victim", [1] * 4000, SHORT)
        waiting = Asked(client, "waiting", PROMPT, SHORT)
        for n_restarts in range(2):
            assert eventually(lambda n=n_restarts: client.status().n_restarts == n)  # type: ignore[misc]
            assert eventually(lambda: client.status().state == "ready")
            kill(client)
        failure = victim.all().failure
        assert isinstance(failure.error(), EngineError)
        assert "SIGKILL" in failure.message
        assert len(waiting.all().tokens) == 10


def test_an_engine_that_never_lives_is_away_until_it_does(
    client: ProcessClient, config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_client, "FIRST_BACKOFF_S", 0.001)
    monkeypatch.setattr(process_client, "LONG_BACKOFF_S", 0.3)
    before = Asked(client, "before", PROMPT, SHORT).all()
    path = Path(config.target.path)
    path.rename(path.with_suffix(".hidden"))
    waiting = Asked(client, "waiting", PROMPT, LONG)
    kill(client)
    assert eventually(lambda: client.status().state == "away")
    assert isinstance(waiting.all().failure.error(), ModelFileError)
    with pytest.raises(ModelFileError, match=r"target\.gguf"):
        Asked(client, "a", PROMPT, SHORT)
    path.with_suffix(".hidden").rename(path)
    assert eventually(lambda: client.status().state == "ready")
    assert Asked(client, "b", PROMPT, SHORT).all().tokens == before.tokens


def test_an_engine_that_stands_still_is_replaced(
    client: ProcessClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped, it answers no ping; while a long prompt is computed, it does."""
    monkeypatch.setattr(process_client, "PING_S", 0.1)
    monkeypatch.setattr(process_client, "HANG_S", 1.0)
    whole = Asked(client, "whole", PROMPT, LONG).all()
    asked = Asked(client, "a", PROMPT, LONG).until(20)
    pid = client.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    assert asked.all().tokens == whole.tokens
    assert client.pid != pid
    assert not is_alive(pid)
    assert client.status().n_restarts == 1


def test_an_engine_that_does_not_answer_shows_as_degraded(
    client: ProcessClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_client, "PING_S", 0.2)
    monkeypatch.setattr(process_client, "SILENT_S", 1.0)
    kill(client, signal.SIGSTOP)
    assert eventually(lambda: client.status().degraded.startswith("the engine's process has not answered"))
    kill(client, signal.SIGCONT)
    assert eventually(lambda: not client.status().degraded)
    assert client.status().n_restarts == 0


def test_a_long_prompt_is_no_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_client, "PING_S", 0.05)
    config = tiny_config(tmp_path, n_ctx=N_CTX, metadata={"llama.context_length": N_CTX}, **WIDE)
    with ProcessClient(config, log_level="warning") as client:
        client.wait_ready(TIMEOUT_S)
        monkeypatch.setattr(process_client, "HANG_S", 0.2)
        asked = Asked(client, "long", [1] * 4000, SHORT)
        assert eventually(lambda: client.status().quiet_s > 0.5)
        assert len(asked.all().tokens) == 10
        assert client.status().n_restarts == 0


def test_cancel_frees_the_engine(client: ProcessClient) -> None:
    endless = [
        Asked(client, f"e{i}", PROMPT, SamplingParams(temperature=0.0, ignore_eos=True)) for i in range(2)
    ]
    waiting = Asked(client, "w", PROMPT, SHORT)
    endless[0].until(5)
    client.cancel("e0")
    assert endless[0].all().finish.reason == "cancelled"
    assert len(endless[0].answer.tokens) < N_CTX - len(PROMPT)
    assert len(waiting.all().tokens) == 10
    client.cancel("e1")
    assert endless[1].all().finish.reason == "cancelled"


def test_refusals_arrive_by_type(client: ProcessClient) -> None:
    error = Asked(client, "a", [], SHORT).all().failure.error()
    assert isinstance(error, RequestError)
    assert error.param == "prompt"


@pytest.mark.parametrize("damage", ["file", "vocabulary", "device"])
def test_a_start_that_fails_tells_why_and_is_not_repeated(tmp_path: Path, damage: str) -> None:
    config = tiny_config(tmp_path, draft={"n_vocab": 100} if damage == "vocabulary" else {})
    error: type[Exception] = VocabularyMismatchError
    if damage == "file":
        Path(config.target.path).write_bytes(b"nonsense")
        error = ModelFileError
    elif damage == "device":
        target = msgspec.structs.replace(config.target, device="CUDA7")
        config = msgspec.structs.replace(config, target=target)
        error = process_client.LuceboxError
    seen: list[EngineStatus] = []
    with ProcessClient(config, seen.append, log_level="warning") as client:
        with pytest.raises(error):
            client.wait_ready(TIMEOUT_S)
        assert eventually(lambda: client.pid is None)
        assert client.status().state == "failed"
        assert client.status().n_restarts == 0


def test_close_leaves_no_process_thread_or_descriptor(config: EngineConfig) -> None:
    import threading

    threads, n_open = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        client = ProcessClient(config, log_level="warning")
        client.start()
        client.wait_ready(TIMEOUT_S)
        asked = Asked(client, "a", PROMPT, LONG).until(3)
        pid = client.pid
        assert pid is not None
        started_s = time.monotonic()
        client.close()
        assert time.monotonic() - started_s < 5
        assert asked.all().events
        assert not Path(f"/proc/{pid}").exists()
        client.close()
    assert set(threading.enumerate()) <= threads  # those of earlier tests may still be ending
    assert len(os.listdir("/proc/self/fd")) <= n_open


def test_close_during_loading(config: EngineConfig) -> None:
    client = ProcessClient(config, log_level="warning")
    client.start()
    client.close()
    assert client.status().state == "stopped"
    with pytest.raises(EngineError, match="closed"):
        client.wait_ready(1)


PARENT = """
import sys, time
import msgspec
from lucebox.config import EngineConfig
from lucebox.engine.messages import Submit
from lucebox.engine.process_client import ProcessClient
from lucebox.sampling.params import SamplingParams

client = ProcessClient(msgspec.json.decode(sys.argv[1], type=EngineConfig), log_level="warning")
client.start()
client.wait_ready(60)
prompt = [int(t) for t in sys.argv[2].split(",")]
params = SamplingParams(temperature=0.0, ignore_eos=True)
client.submit(Submit(id="a", prompt=prompt, params=params, seed=1), lambda event: None)
print(client.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("busy", ["decoding", "mid-forward"])
def test_the_engine_dies_with_its_parent(tmp_path: Path, busy: str) -> None:
    options: dict[str, int] = WIDE if busy == "mid-forward" else {}
    context = {"llama.context_length": N_CTX}
    config = tiny_config(tmp_path, n_ctx=N_CTX, metadata=context, **options)
    prompt = [1] * (3000 if busy == "mid-forward" else 3)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, msgspec.json.encode(config).decode(), ",".join(map(str, prompt))],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        engine = int(parent.stdout.readline())
        time.sleep(0.3)
        assert is_alive(engine)
        parent.kill()
        killed_s = time.monotonic()
        assert eventually(lambda: not is_alive(engine), timeout_s=1.0)
        print(f"{busy}: gone after {time.monotonic() - killed_s:.3f} s")


def test_the_last_words_of_ggml_reach_the_parent(
    config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
from lucebox.ggml.library import load
library = load()
library.abort_report.write_to(int(sys.argv[1]))
library.abort_report.set_activity(b"target forward, 8 rows")
library.ggml_backend_dev_get(99)
"""

    def command(module: str, config: EngineConfig, level: str, socket_fd: int, abort_fd: int) -> list[str]:
        return [sys.executable, "-c", code, str(abort_fd)]

    monkeypatch.setattr("lucebox.engine.child_process._command", command)
    monkeypatch.setattr(process_client, "FIRST_BACKOFF_S", 0.001)
    with ProcessClient(config) as client, pytest.raises(EngineError) as caught:
        client.wait_ready(TIMEOUT_S)
    assert "SIGABRT" in caught.value.message
    assert "GGML_ASSERT(index < ggml_backend_dev_count()) failed" in caught.value.message
    assert "while: target forward, 8 rows" in caught.value.message


def test_the_end_of_the_connection_ends_the_engine_by_itself(config: EngineConfig) -> None:
    """Without Linux's help: the socket closes while the parent lives on."""
    child = EngineProcess(config, "warning")
    while not isinstance(child.receive(), Ready):
        pass
    child.send(Submit(id="a", prompt=PROMPT, params=LONG, seed=1))
    assert isinstance(next_of_requests(child), StepEvent)
    started_s = time.monotonic()
    ending = str(child.reap(timeout_s=30))
    assert time.monotonic() - started_s < 1.0
    assert ending == "the engine process exited with status 4"


def test_the_end_of_the_connection_ends_a_forward(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, n_ctx=512, **WIDE)
    child = EngineProcess(config, "warning")
    while not isinstance(child.receive(), Ready):
        pass
    child.send(Submit(id="a", prompt=[1] * 500, params=SHORT, seed=1))
    time.sleep(0.1)
    assert is_alive(child.pid)
    started_s = time.monotonic()
    assert str(child.reap(timeout_s=30)) == "the engine process exited with status 4"
    assert time.monotonic() - started_s < 1.0


def test_malformed_messages_harm_nobody(config: EngineConfig) -> None:
    child = EngineProcess(config, "error")
    try:
        for garbage in ({"type": "nonsense"}, [1, 2], "text", {"type": "submit", "id": "x"}):
            child.send(garbage)  # type: ignore[arg-type]
        child.send(Cancel("unknown"))
        child.send(Submit(id="a", prompt=PROMPT, params=SHORT, seed=1))
        tokens: list[int] = []
        while len(tokens) < 10:
            event = child.receive()
            assert event is not None
            assert not isinstance(event, Failed)
            if isinstance(event, StepEvent):
                tokens += event.tokens
            else:
                assert isinstance(event, Loading | Planned | Ready | EngineLoad)
    finally:
        child.reap(timeout_s=5)


def test_a_reader_that_sleeps_stalls_no_engine(config: EngineConfig) -> None:
    child = EngineProcess(config, "error")
    try:
        while not isinstance(child.receive(), Ready):
            pass
        n_tokens = 2000  # with their log-probabilities more than a socket holds
        params = SamplingParams(temperature=0.0, ignore_eos=True, logprobs=20, max_tokens=n_tokens)
        child.send(Submit(id="slow", prompt=PROMPT, params=params, seed=1))
        time.sleep(2.0)
        sizes: list[int] = []
        while sum(sizes) < n_tokens:
            event = next_of_requests(child)
            assert isinstance(event, StepEvent)
            assert event.logprobs is not None
            assert [entry.token for entry in event.logprobs] == event.tokens
            sizes.append(len(event.tokens))
        assert sum(sizes) == n_tokens
        assert max(sizes) > 20, "what was emitted while the socket was full came in one piece"
    finally:
        child.reap(timeout_s=5)


def test_an_unknown_configuration_field_is_refused(config: EngineConfig) -> None:
    raw = msgspec.to_builtins(config) | {"drafer": "model"}
    with pytest.raises((ConfigError, msgspec.ValidationError)):
        msgspec.convert(raw, EngineConfig)
