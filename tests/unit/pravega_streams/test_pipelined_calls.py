"""Asks a store in memory about many segments over a real socket, with faults."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from pravega_common.wire import commands as c
from pravega_common.wire.versions import BATCHES, EXTENSIONS, READ_BATCHES, batch_read_bytes_max, batch_requests_max
from pravega_streams.batch.pipelined_calls import PipelinedCalls, questions_per_round_max
from pravega_streams.batch.range_reader import RangeReader, ReadSockets
from pravega_streams.connection.endpoints import Endpoint
from tests.support.fakes.wire_store import FakeSegment, FakeStore

COUNT = 3 * questions_per_round_max // 2
NAMES = [f"s/t/{number}.#epoch.0" for number in range(COUNT)]


@pytest.fixture(params=[EXTENSIONS, BATCHES, 0], ids=["read batches", "batches", "plain"])
def store(request: pytest.FixtureRequest) -> Iterator[FakeStore]:
    """As a store of ours is, as an older one was, and as a plain Pravega is."""
    made = FakeStore()
    made.extensions = request.param
    for number, name in enumerate(NAMES):
        made.segments[name] = FakeSegment(bytearray(random.Random(number).randbytes(1000)))
    yield made
    made.close()


@pytest.fixture
def sockets() -> Iterator[ReadSockets]:
    made = ReadSockets()
    yield made
    made.close()


@pytest.mark.parametrize("reply_bytes", [1 << 30, 400])
def test_ranges_of_many_segments(store: FakeStore, sockets: ReadSockets, reply_bytes: int) -> None:
    """A store may give less than was asked for; the rest is asked for, together again."""
    store.read_bytes_max = reply_bytes
    found = PipelinedCalls(store, sockets).read(dict.fromkeys(NAMES, (10, 910)))
    assert {name: bytes(data) for name, data in found.items()} == {
        name: bytes(store.segments[name].data[10:910]) for name in NAMES
    }
    assert store.connection_count == 1


def test_what_a_store_refuses_is_left_out(store: FakeStore, sockets: ReadSockets) -> None:
    del store.segments[NAMES[3]]
    store.segments[NAMES[5]].start = 500
    found = PipelinedCalls(store, sockets).read(dict.fromkeys(NAMES[:8], (0, 10)))
    assert sorted(found) == sorted(set(NAMES[:8]) - {NAMES[3], NAMES[5]})


def test_a_lost_connection_is_not_used_again(store: FakeStore, sockets: ReadSockets) -> None:
    """What was answered before counts, and nobody finds the answers that were still to come."""

    def closes(command: c.Command) -> str | None:
        return "close" if isinstance(command, c.ReadSegment) and command.segment == NAMES[4] else None

    store.before = closes
    found = PipelinedCalls(store, sockets).read(dict.fromkeys(NAMES[:8], (0, 10)))
    assert set(found) <= set(NAMES[:4])
    buffer = bytearray(10)
    assert RangeReader(NAMES[6], 0, 10, store, sockets).read_into(memoryview(buffer)) == 10
    assert buffer == store.segments[NAMES[6]].data[:10]


def test_a_store_that_cannot_be_reached_answers_nothing(store: FakeStore, sockets: ReadSockets) -> None:
    store.endpoint = Endpoint("127.0.0.1", 1)
    assert PipelinedCalls(store, sockets).read(dict.fromkeys(NAMES, (0, 10))) == {}
    assert PipelinedCalls(store, sockets).locate(dict.fromkeys(NAMES, 5)) == {}


def test_a_plain_pravega_that_refuses_the_tokens_of_reads(store: FakeStore, sockets: ReadSockets) -> None:
    """It answers with the offset in the place of the request id: several reads at one offset cannot be told apart."""
    if store.extensions:
        return
    store.before = lambda command: c.AuthTokenCheckFailed(getattr(command, "offset", 0), "", c.TOKEN_CHECK_FAILED)
    calls = PipelinedCalls(store, sockets)
    assert calls.read({NAMES[0]: (1, 10), NAMES[1]: (2, 10)}) == {}
    assert calls.read({NAMES[0]: (1, 10), NAMES[1]: (1, 10)}) == {}
    store.before = lambda _: None
    assert set(calls.read(dict.fromkeys(NAMES[:2], (1, 10)))) == set(NAMES[:2])
    assert store.connection_count == 2, "the first one served until it could not be trusted"


def test_reads_travel_together(store: FakeStore, sockets: ReadSockets) -> None:
    """A frame for all of them, where the store knows that; others never see one."""
    PipelinedCalls(store, sockets).read(dict.fromkeys(NAMES, (10, 910)))
    assert store.batch_sizes == ([COUNT] if store.extensions & READ_BATCHES else [])


def test_a_batch_asks_for_no_more_than_a_store_answers(store: FakeStore, sockets: ReadSockets) -> None:
    share = batch_read_bytes_max // 4
    found = PipelinedCalls(store, sockets).read(dict.fromkeys(NAMES[:10], (0, share)))
    assert {name: bytes(data) for name, data in found.items()} == {
        name: bytes(store.segments[name].data) for name in NAMES[:10]
    }
    if store.extensions & READ_BATCHES:
        assert store.batch_sizes[:3] == [4, 4, 2]
    for number in range(batch_requests_max + 1):
        store.segments[f"s/u/{number}.#epoch.0"] = FakeSegment(bytearray(b"x"))
    many = {f"s/u/{number}.#epoch.0": (0, 1) for number in range(batch_requests_max + 1)}
    assert len(PipelinedCalls(store, sockets).read(many)) == len(many)
