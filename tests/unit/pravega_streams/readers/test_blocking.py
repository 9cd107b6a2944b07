"""Reads through the loop of a thread, as programs without one do, and interrupts them."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from asyncio import tasks
from collections.abc import Iterator
from concurrent.futures import Future, _base
from typing import Any

import pytest

from pravega_common.errors import InvalidArgument, UnknownOutcome
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.readers import blocking, slices
from pravega_streams.readers.blocking import BlockingEventReader, BlockingReaderGroup, LoopThread
from pravega_streams.readers.cluster import ReaderCluster
from pravega_streams.readers.event_reader import EventReader
from pravega_streams.readers.group_state import HEAD, GroupConfiguration
from pravega_streams.readers.reader_group import ReaderGroup
from pravega_streams.segment.raw_client import RawClient
from pravega_streams.table.table_client import TableClient
from segment_service.host.listener import WireServer
from tests.support.eventually import eventually_blocking
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore
from tests.support.interrupts import Interrupt
from tests.unit.pravega_streams.conftest import ScriptedResolver
from tests.unit.pravega_streams.readers.test_event_reader import S0, SCOPE, STREAM, FakeStream, framed

test_time_max_s = 30.0


class World:
    """A stream of one segment, and a reader of it; all of it runs in the loop of the thread."""

    def __init__(self) -> None:
        self.loop = LoopThread()
        self.segments = InMemorySegmentStore()
        self.reader = BlockingEventReader(self.loop.run(self._reader()), self.loop)

    async def _reader(self) -> EventReader:
        self.server = WireServer(self.segments, InMemoryTableStore(self.segments), self.segments)
        await self.server.start()
        await self.segments.create_segment(S0)
        resolver = ScriptedResolver(Endpoint("127.0.0.1", self.server.port))
        self.requests = RawClient(resolver)
        cluster = ReaderCluster(FakeStream(), self.requests, TableClient(self.requests), resolver)
        group = await ReaderGroup(cluster, SCOPE, "g").create(GroupConfiguration({(SCOPE, STREAM): HEAD}))
        self.group = BlockingReaderGroup(group, self.loop)
        return await group.create_reader("r")

    def append(self, *events: bytes) -> None:
        async def append() -> None:
            await self.segments.append(S0, [framed(*events)])

        self.loop.run(append())

    def close(self) -> None:
        self.reader.reader_offline()
        self.requests.close()
        self.loop.run(self.server.stop())
        self.loop.close()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_an_interrupt_anywhere_loses_and_repeats_no_event(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that goes on after Ctrl-C, as a notebook does, has the events that follow those that it got."""
    deadline_s = time.monotonic() + test_time_max_s
    monkeypatch.setattr(BlockingEventReader, "is_finished", property(lambda _: time.monotonic() > deadline_s))
    for place in itertools.count():
        interrupt = Interrupt(place, blocking, slices, tasks, _base)
        events = [f"{place}/{number}".encode() for number in range(3)]
        world.append(*events[:2])
        world.append(*events[2:])
        found: list[bytes] = []
        while len(found) < len(events):
            with interrupt.active():
                for event in world.reader:
                    found.append(bytes(event.data))
                    if len(found) == len(events):
                        break
            assert time.monotonic() < deadline_s, place
        assert found == events, place
        if not interrupt.has_come:
            break


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_reader_that_an_interrupt_keeps_from_its_caller_is_not_in_the_group(world: World) -> None:
    deadline_s = time.monotonic() + test_time_max_s
    for place in itertools.count():
        interrupt, made = Interrupt(place, blocking, tasks, _base), None
        with interrupt.active():
            made = world.group.create_reader("late")
        assert world.group.readers_online() == (["r"] if made is None else ["late", "r"]), place
        if made is not None:
            made.reader_offline()
        assert time.monotonic() < deadline_s, place
        if not interrupt.has_come:
            break


@pytest.mark.timeout(10)
def test_a_lock_that_an_interrupt_left_held_does_not_stop_its_thread(world: World) -> None:
    """Python 3.14 looks for signals between the entry of a ``with`` and its body."""
    world.loop._lock.acquire()
    world.reader.refresh()


def test_a_second_thread_is_refused_while_the_first_waits_for_events(world: World) -> None:
    """It would give back what the first is about to get: both would have it."""
    found: list[object] = []
    waiting = threading.Thread(target=lambda: found.append(world.reader.get_segment_slice(test_time_max_s)))
    waiting.start()
    eventually_blocking(lambda: world.reader._turn.locked(), "the wait of the first thread")
    with pytest.raises(InvalidArgument, match="another thread waits for events of reader r; give each thread"):
        next(world.reader.events())
    world.append(b"event")
    waiting.join()
    (piece,) = found
    assert isinstance(piece, slices.SegmentSlice)
    world.reader.release_segment_at(piece, piece.start)
    assert bytes(next(world.reader.events()).data) == b"event"


def test_a_process_that_is_forked_does_not_wait_for_a_loop_that_it_has_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: 1)
        with pytest.raises(InvalidArgument, match="is used in process 1; make one in each"):
            world.reader.get_segment_slice()
    world.reader.refresh()


def test_a_reader_of_a_closed_manager_does_not_wait_for_events_that_nobody_fetches() -> None:
    world = World()
    world.append(b"event")
    world.loop.run(world.server.stop())
    for _ in range(2):
        world.loop.close()
        with pytest.raises(InvalidArgument, match="is closed; make another one"):
            world.reader.get_segment_slice()


def test_a_reader_whose_manager_is_closed_by_another_thread_does_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also one that calls again at once, as a loop with retries does: nobody runs what comes after the others ended."""
    world = World()
    world.loop.run(world.server.stop())
    cancel_others, found = blocking._cancel_others, list[BaseException]()
    is_cancelled = threading.Event()

    async def cancel_then_wait() -> None:
        await cancel_others()
        await asyncio.to_thread(is_cancelled.wait, test_time_max_s)
        await asyncio.sleep(0.1)  # The second call comes to the loop now, before that stops.

    def read() -> None:
        for _ in range(2):
            try:
                world.reader.get_segment_slice(test_time_max_s)
            except Exception as error:
                found.append(error)
                is_cancelled.set()

    monkeypatch.setattr(blocking, "_cancel_others", cancel_then_wait)
    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    eventually_blocking(world.reader._turn.locked)
    world.loop.close()
    reading.join(5)
    assert not reading.is_alive()
    assert [type(error) for error in found] == [InvalidArgument, InvalidArgument]


def test_a_call_that_closing_ends_is_refused_however_soon_its_thread_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.loop.run(world.server.stop())
    found, real = list[BaseException](), asyncio.run_coroutine_threadsafe

    def read() -> None:
        try:
            world.reader.get_segment_slice(test_time_max_s)
        except BaseException as error:
            found.append(error)

    def begun_and_done(work: Any, loop: asyncio.AbstractEventLoop) -> Future[Any]:
        begun = real(work, loop)
        if work.__name__ == "_end":
            reading.join(test_time_max_s)
        return begun

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    eventually_blocking(world.reader._turn.locked)
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", begun_and_done)
    world.loop.close()
    assert [type(error) for error in found] == [InvalidArgument]


def test_a_change_that_closing_ends_may_have_been_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """As that of a reader group whose answer is awaited, or which is looked at as it was lost."""
    world, sent, found = World(), threading.Event(), list[BaseException]()
    world.loop.run(world.server.stop())

    async def unanswered(*_: object) -> None:
        sent.set()
        await asyncio.Event().wait()

    def begin() -> None:
        try:
            world.group.initiate_checkpoint("c")
        except BaseException as error:
            found.append(error)

    monkeypatch.setattr(TableClient, "put", unanswered)
    beginning = threading.Thread(target=begin, daemon=True)
    beginning.start()
    assert sent.wait(test_time_max_s)
    world.loop.close()
    beginning.join(test_time_max_s)
    assert [type(error) for error in found] == [UnknownOutcome]
    with pytest.raises(InvalidArgument, match="is closed"):
        world.group.initiate_checkpoint("c")
