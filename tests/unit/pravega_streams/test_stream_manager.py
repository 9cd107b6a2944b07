"""Asks one manager from several threads, and closes it under them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pravega_common.errors import InvalidArgument, NotFound
from pravega_streams import stream_manager
from pravega_streams.async_client import AsyncStreamClient
from pravega_streams.readers.reader_group import ReaderGroup
from pravega_streams.stream_manager import StreamManager
from tests.support.servers import free_port

threads_at_once = 2
made: list[GroupsMissing] = []


class GroupsMissing(AsyncStreamClient):
    """Knows no group, and is made so slowly that a second thread comes meanwhile."""

    together = threading.Barrier(threads_at_once)
    opening = threading.Event()

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(f"tcp://127.0.0.1:{free_port()}")
        self.is_closed = False
        made.append(self)
        with contextlib.suppress(threading.BrokenBarrierError):
            self.together.wait(0.5)

    async def open_reader_group(self, scope: str, group: str) -> ReaderGroup:
        if group == "slow":
            self.opening.set()
            await asyncio.sleep(60)  # Until it is cancelled.
        raise NotFound(group)

    def close(self) -> None:
        self.is_closed = True
        super().close()


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> StreamManager:
    made.clear()
    GroupsMissing.together.reset()
    GroupsMissing.opening.clear()
    monkeypatch.setattr(stream_manager, "AsyncStreamClient", GroupsMissing)
    return StreamManager(f"tcp://127.0.0.1:{free_port()}")


def test_threads_that_ask_first_share_one_client(manager: StreamManager) -> None:
    def ask(_number: int) -> None:
        with pytest.raises(NotFound):
            manager.open_reader_group("s", "g")

    with ThreadPoolExecutor(threads_at_once) as threads:
        list(threads.map(ask, range(threads_at_once)))
    assert len(made) == 1
    manager.close()
    assert made[0].is_closed


def test_a_closed_manager_refuses_its_calls(manager: StreamManager) -> None:
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(manager.open_reader_group, "s", "slow")
        assert GroupsMissing.opening.wait(10)
        for _ in range(2):
            manager.close()
        with pytest.raises(InvalidArgument, match="is closed; make another one"):
            running.result(timeout=5)
    assert made[0].is_closed
    for call in (manager.open_reader_group, manager.delete_reader_group, manager.delete_stream):
        with pytest.raises(InvalidArgument, match="is closed; make another one"):
            call("s", "g")
    assert len(made) == 1


def test_a_manager_that_is_closed_unused_refuses_its_calls_too(manager: StreamManager) -> None:
    manager.close()
    with pytest.raises(InvalidArgument, match="is closed; make another one"):
        manager.open_reader_group("s", "g")
