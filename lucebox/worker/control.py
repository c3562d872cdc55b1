"""Our end of a connection to a worker's control port."""

from __future__ import annotations

import getpass
import select
import socket
import threading
from typing import TypeVar

from lucebox.errors import EngineError, WorkerError
from lucebox.ggml import _api, rpc
from lucebox.wire import Channel
from lucebox.worker.address import WorkerAddress
from lucebox.worker.protocol import (
    ANSWER_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    MAX_MESSAGE_BYTES,
    PROTOCOL,
    Answer,
    Hello,
    Question,
    Refused,
    Welcome,
)

AnswerT = TypeVar("AnswerT", bound=Answer)


class ControlConnection:
    """A greeted connection to the worker at `address`. Raises WorkerError. For any thread; one question at
    a time. `close` is idempotent and wakes whoever waits for an answer."""

    def __init__(self, address: WorkerAddress) -> None:
        self.address = address
        self._lock = threading.Lock()
        self._socket = _connect(address)
        self._channel: Channel[Answer] = Channel(self._socket, Answer, MAX_MESSAGE_BYTES)  # type: ignore[arg-type]
        try:
            self._greet()
        except BaseException:
            self.close()
            raise

    def ask(self, question: Question, kind: type[AnswerT], *, timeout_s: float = ANSWER_TIMEOUT_S) -> AnswerT:
        """The answer, which must be of `kind`. Any failure ends the connection."""
        answer = self._ask(question, timeout_s)
        if isinstance(answer, Refused):
            raise WorkerError(f"The worker {self.address} refused a question: {answer.problem}")
        if not isinstance(answer, kind):
            self.close()
            raise WorkerError(f"The worker {self.address} answered with {type(answer).__name__}")
        return answer

    def is_closed_within(self, timeout_s: float) -> bool:
        """Waits, unless the worker hangs up first. Nothing else is to arrive while nobody asks."""
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLIN)
        except ValueError:  # closed by us
            return True
        return bool(poll.poll(1000 * timeout_s))

    def close(self) -> None:
        self._channel.close()

    def _ask(self, question: Question, timeout_s: float) -> Answer:
        with self._lock:
            try:
                self._socket.settimeout(timeout_s)
                self._channel.send(question)
                answer = self._channel.receive()
            except TimeoutError as error:
                self.close()
                raise WorkerError(
                    f"The worker {self.address} has not answered for {timeout_s:.0f} s",
                    remedy="look at its machine and the network",
                ) from error
            except (OSError, EngineError) as error:
                self.close()
                raise self._hung_up(error) from error
        if answer is None:
            self.close()
            raise self._hung_up(None)
        return answer

    def _hung_up(self, error: Exception | None) -> WorkerError:
        why = f": {error}" if error is not None else ""
        return WorkerError(
            f"The worker {self.address} closed the connection{why}", remedy="start it again, or see its log"
        )

    def _greet(self) -> None:
        ours = Hello(PROTOCOL, _api.VERSION, ".".join(map(str, rpc.VERSION)), _our_name())
        try:
            theirs = self.ask(ours, Welcome, timeout_s=CONNECT_TIMEOUT_S)
        except WorkerError as error:
            raise WorkerError(
                f"{self.address.host} port {self.address.control_port} does not answer as a worker of "
                f"Lucebox does: {error.message}",
                remedy=f"check that `lucebox worker --listen` has the port {self.address.port}, and its log",
            ) from error
        here, there = (ours.protocol, ours.ggml, ours.rpc), (theirs.protocol, theirs.ggml, theirs.rpc)
        if here != there:
            self.close()
            raise WorkerError(
                f"The worker {self.address} is of another version: it has {_versions(*there)}, "
                f"we have {_versions(*here)}",
                remedy="install the same version of Lucebox on both machines",
            )


def _connect(address: WorkerAddress) -> socket.socket:
    try:
        connection = socket.create_connection((address.resolve(), address.control_port), CONNECT_TIMEOUT_S)
    except OSError as error:
        reason = (
            f"no answer within {CONNECT_TIMEOUT_S:.0f} s"
            if isinstance(error, TimeoutError)
            else error.strerror or str(error)
        )
        raise WorkerError(
            f"There is no worker at {address} (its control port is {address.control_port}): {reason}",
            remedy="start `lucebox worker` there, and check the port and what lies between",
        ) from error
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _versions(protocol: int, ggml: str, rpc_version: str) -> str:
    return f"protocol {protocol}, ggml {ggml} and RPC {rpc_version}"


def _our_name() -> str:
    """Who we are, for those who find the worker busy."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # no name for our user number
        user = "somebody"
    return f"{user}@{socket.gethostname()}"[:200]
