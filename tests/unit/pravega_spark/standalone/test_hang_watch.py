"""Tests that a process without answers is killed, and no other one."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from pravega_common.services.http_busy import busy_reason
from pravega_spark.standalone.hang_watch import HangWatch, question_period_s, start_silence_max_s
from pravega_spark.standalone.liveness import LivenessProbe
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock

hung_after_s = 30.0


@dataclass
class Child:
    """A child with a process that sleeps."""

    process: asyncio.subprocess.Process | None = None
    name: str = "child"

    async def launch(self) -> None:
        program = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        self.process = await asyncio.create_subprocess_exec(*program, stdin=asyncio.subprocess.PIPE)


@pytest.fixture
async def child() -> AsyncIterator[Child]:
    made = Child()
    await made.launch()
    yield made
    assert made.process is not None
    with contextlib.suppress(ProcessLookupError):
        made.process.kill()
    await made.process.wait()


class Answers:
    """What the child answers, and a watch that asks once every period of a clock moved by hand."""

    def __init__(self, child: Child) -> None:
        self.clock = ManualClock()
        self.says = True
        self.asked = 0
        self._task = asyncio.create_task(HangWatch(child, self._answer, hung_after_s, self.clock).run())

    async def _answer(self) -> bool:
        self.asked += 1
        return self.says

    async def questions(self, count: int) -> None:
        for _ in range(count):
            before = self.asked
            await self.clock.advance(question_period_s)
            await eventually(lambda before=before: self.asked > before, "a question")  # type: ignore[misc]

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


@pytest.fixture
async def answers(child: Child) -> AsyncIterator[Answers]:
    made = Answers(child)
    await eventually(lambda: made.asked == 1)
    yield made
    await made.end()


questions_max = int(hung_after_s / question_period_s)


async def test_a_process_that_hangs_is_killed(child: Child, answers: Answers) -> None:
    assert child.process is not None
    answers.says = False
    await answers.questions(questions_max - 1)
    assert child.process.returncode is None
    await answers.questions(1)
    assert await child.process.wait() == -9


async def test_an_answer_now_and_then_is_enough(child: Child, answers: Answers) -> None:
    assert child.process is not None
    for _ in range(3):
        answers.says = False
        await answers.questions(questions_max - 1)
        answers.says = True
        await answers.questions(1)
    assert child.process.returncode is None


async def test_a_start_may_take_longer(child: Child, answers: Answers) -> None:
    """A new process is not judged by the questions that the old one left unanswered."""
    answers.says = False
    await answers.questions(questions_max)
    assert child.process is not None
    await child.process.wait()
    await child.launch()
    starts_max = int(start_silence_max_s / question_period_s)
    await answers.questions(starts_max - 1)
    assert child.process.returncode is None
    await answers.questions(1)
    assert await child.process.wait() == -9


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False),
        (f"HTTP/1.1 503 {busy_reason}\r\n\r\n".encode(), True),
        (b"", True),
        (b"x" * 100_000, True),
        (None, False),
    ],
    ids=["lives", "says-that-it-is-stuck", "is-busy", "closes", "babbles", "silent"],
)
async def test_what_counts_as_an_answer(reply: bytes | None, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pravega_spark.standalone.liveness.answer_time_max_s", 0.2 if reply is None else 20.0)
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if reply is None:
            await ended.wait()
        else:
            writer.write(reply)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await LivenessProbe("127.0.0.1", port, "/health/live").is_alive() is expected
    ended.set()
    server.close()
    refused = LivenessProbe("127.0.0.1", port, "/health/live")
    assert await refused.is_alive()
