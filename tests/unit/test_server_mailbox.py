"""The mailbox between the engine's thread and the loop."""

from __future__ import annotations

import asyncio
import threading

from lucebox.core import Origin
from lucebox.engine.messages import Failed, StepEvent
from lucebox.server.mailbox import Mailbox


def step(*tokens: int) -> StepEvent:
    return StepEvent(id="a", tokens=list(tokens), origins=[Origin.PLAIN] * len(tokens))


def test_waiting_steps_become_one_and_a_failure_stays_behind_them() -> None:
    async def run() -> None:
        mailbox = Mailbox(asyncio.get_running_loop())
        mailbox.put(0, step(1))
        mailbox.put(0, step(2, 3))
        mailbox.put(0, Failed(id="a", kind="EngineError", message="no"))
        first = await mailbox.get()
        assert first is not None
        assert isinstance(first[1], StepEvent)
        assert first[1].tokens == [1, 2, 3]
        second = await mailbox.get()
        assert second is not None
        assert isinstance(second[1], Failed)
        assert await mailbox.get(0.001) is None

    asyncio.run(run())


def test_a_backlog_leaves_the_loop_to_others() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        mailbox = Mailbox(loop)
        for index in range(3):
            mailbox.put(index, step(index))
        for n in range(3):
            others: list[int] = []
            loop.call_soon(others.append, n)
            await mailbox.get()
            assert others == [n]

    asyncio.run(run())


def test_choices_take_turns() -> None:
    async def run() -> None:
        mailbox = Mailbox(asyncio.get_running_loop())
        for index in (0, 1, 0, 2):
            mailbox.put(index, step(index))
        got = [await mailbox.get() for _ in range(3)]
        assert [item and item[0] for item in got] == [0, 1, 2]

    asyncio.run(run())


def test_nothing_is_lost_between_threads() -> None:
    n = 2000

    async def run() -> None:
        mailbox = Mailbox(asyncio.get_running_loop())

        def write() -> None:
            for i in range(n):
                mailbox.put(0, step(i))

        writer = threading.Thread(target=write)
        writer.start()
        tokens: list[int] = []
        while len(tokens) < n:
            item = await mailbox.get(5)
            assert item is not None
            assert isinstance(item[1], StepEvent)
            tokens += item[1].tokens
        writer.join()
        assert tokens == list(range(n))

    asyncio.run(run())
