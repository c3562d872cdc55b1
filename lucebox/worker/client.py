"""Makes the devices of workers ours."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

import msgspec

from lucebox.errors import WorkerError
from lucebox.ggml import rpc
from lucebox.ggml.devices import (
    DeviceKind,
    WorkerDevice,
    add_worker_device,
    remove_worker_device,
)
from lucebox.ggml.library import load
from lucebox.worker.address import WorkerAddress
from lucebox.worker.control import AnswerT, ControlConnection
from lucebox.worker.operation import describe
from lucebox.worker.protocol import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    Claim,
    Claimed,
    DeviceFacts,
    Devices,
    ListDevices,
    Question,
    Supported,
    Supports,
)
from lucebox.worker.watchdog import LostHandler, Watchdog

_BUSY_TIMEOUT_S = 1.0

_T = TypeVar("_T")


def connect(
    addresses: Sequence[str], on_lost: LostHandler, *, first_number: int | None = None
) -> list[WorkerLink]:
    """Claims the workers at `addresses`, and has their devices listed as RPC0, RPC1, … in that order.

    `first_number` is that of the first device: by default, the first that is free in this process. Should a
    worker be lost later, `on_lost(reason)` is called once for it, in a thread of its own; ggml, if it is
    waiting for that worker, waits on. Raises ConfigError for an address that is none, and WorkerError, with
    nothing claimed but a worker whose RPC server serves somebody else, until that is over.
    """
    number = _first_free_number() if first_number is None else first_number
    with contextlib.ExitStack() as undo:
        links = []
        for address in [WorkerAddress.parse(text) for text in addresses]:
            links.append(WorkerLink(address, on_lost, number))
            undo.callback(links[-1].close)
            number += len(links[-1].names)
        undo.pop_all()
    return links


class WorkerLink:
    """A claim on a worker and its devices. `close` ends both; nothing may lie on the devices any more."""

    def __init__(self, address: WorkerAddress, on_lost: LostHandler, first_number: int) -> None:
        self.address = address
        self.first_number = first_number
        self._requests = _Requests(address)
        self._answers: dict[bytes, bool] = {}
        self._watchdog: Watchdog | None = None
        self._pointers: tuple[int, ...] = ()
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            facts = self._facts()
            self.names = tuple(f"RPC{first_number + i}" for i in range(len(facts)))
            self._claim(on_lost)
            self._pointers = self._add_to_ggml(len(facts))
            for i, pointer in enumerate(self._pointers):
                add_worker_device(pointer, partial(self.describe, i))
            undo.pop_all()

    def describe(self, index: int) -> WorkerDevice:
        """What the worker now says of its device number `index`. Raises WorkerError."""
        facts = self._facts()[index]
        return WorkerDevice(
            name=self.names[index],
            worker=str(self.address),
            description=facts.description,
            kind=DeviceKind(facts.kind),
            free_bytes=facts.free_bytes,
            total_bytes=facts.total_bytes,
            support=partial(self.supports, index),
        )

    def supports(self, index: int, operation: int) -> bool:
        """Whether device number `index` can compute the ggml_tensor `operation`. Raises WorkerError."""
        description = describe(operation)
        if description is None:
            return False
        question = Supports(index, description)
        key = msgspec.msgpack.encode(question)
        if key not in self._answers:
            self._answers[key] = self._requests.ask(question, Supported).yes
        return self._answers[key]

    def release(self) -> None:
        """Lets others use the devices. They stay listed, and the worker is watched no more. Idempotent."""
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            watchdog.stop()

    def close(self) -> None:
        """Idempotent."""
        for pointer in self._pointers:
            remove_worker_device(pointer)
        self.release()
        self._requests.close()

    def _facts(self) -> tuple[DeviceFacts, ...]:
        facts = self._requests.ask(ListDevices(), Devices).devices
        if not facts or any(device.kind not in _KINDS for device in facts):
            raise WorkerError(f"The worker {self.address} has no devices that we can use")
        return facts

    def _claim(self, on_lost: LostHandler) -> None:
        connection = ControlConnection(self.address)
        try:
            answer = _ask_for_devices(connection)
            if answer.other is not None:
                raise WorkerError(
                    f"The worker {self.address} is busy: {answer.other} has used it for {answer.for_s:.0f} s",
                    remedy="it serves one engine at a time: end that one, or start another worker",
                )
            self._check_rpc()
        except BaseException:
            connection.close()
            raise
        self._watchdog = Watchdog(connection, on_lost)

    def _check_rpc(self) -> None:
        """That ggml will be answered at once: it would wait for ever, or end this process."""
        host, port = self.address.resolve(), self.address.port
        try:
            version = rpc.server_version(host, port, CONNECT_TIMEOUT_S)
        except (OSError, ValueError) as error:
            raise WorkerError(
                f"ggml's RPC server at {self.address} does not answer: {error}",
                remedy="check that both ports are open, and that nobody else uses it",
            ) from error
        if version != rpc.VERSION:
            raise WorkerError(f"ggml's RPC server at {self.address} is of version {version}")

    def _add_to_ggml(self, n_devices: int) -> tuple[int, ...]:
        adding = _in_a_thread(partial(rpc.add_server, f"{self.address.resolve()}:{self.address.port}"))
        try:
            pointers = adding.result(ANSWER_TIMEOUT_S)
        except TimeoutError:
            self._release_after(adding)
            raise WorkerError(
                f"ggml's RPC server at {self.address} serves somebody else",
                remedy="end that program, and start this one again",
            ) from None
        if len(pointers) != n_devices:
            raise WorkerError(
                f"The worker {self.address} has {n_devices} devices, and had {len(pointers)} before",
                remedy="start this process again",
            )
        return pointers

    def _release_after(self, adding: Future[tuple[int, ...]]) -> None:
        """Keeps the claim for as long as ggml waits for an answer.

        A worker ends all connections of a claim that is gone, and ggml ends the process whose connection
        ends while it waits.
        """
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            watchdog.disarm()
            adding.add_done_callback(lambda _: watchdog.stop())


class _Requests:
    """Questions to one worker, over a connection that is opened again when it was closed for its silence."""

    def __init__(self, address: WorkerAddress) -> None:
        self._address = address
        self._connection: ControlConnection | None = None
        self._lock = threading.Lock()

    def ask(self, question: Question, kind: type[AnswerT]) -> AnswerT:
        with self._lock:
            if self._connection is not None and self._connection.is_closed_within(0.0):
                self.close()
            if self._connection is None:
                self._connection = ControlConnection(self._address)
            return self._connection.ask(question, kind)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


_KINDS = frozenset(DeviceKind)


def _ask_for_devices(connection: ControlConnection) -> Claimed:
    """Again and again for a moment: that the client before has gone may be news to the worker."""
    deadline_s = time.monotonic() + _BUSY_TIMEOUT_S
    while True:
        answer = connection.ask(Claim(), Claimed)
        if answer.other is None or time.monotonic() > deadline_s:
            return answer
        time.sleep(0.05)


def _in_a_thread(work: Callable[[], _T]) -> Future[_T]:
    """What `work` returns or raises, at some time or never: nothing waits for its thread."""
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="add server", daemon=True).start()
    return future


def _first_free_number() -> int:
    taken = [describe().name.removeprefix("RPC") for describe in load().worker_devices.values()]
    return 1 + max(map(int, taken), default=-1)
