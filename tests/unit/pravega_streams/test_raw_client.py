"""Sends requests over real sockets: answers by request id, failures as errors, retries only where they are safe."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from pravega_common.errors import (
    AuthenticationFailed,
    InvalidArgument,
    Outcome,
    SegmentExists,
    SegmentNotFound,
    Unavailable,
    UnknownOutcome,
)
from pravega_common.wire import commands as c
from pravega_streams.connection.asynchronous import ConnectionPool, WireConnection
from pravega_streams.connection.batches import SegmentCall
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.connection.requests import MakeCommand
from pravega_streams.segment.raw_client import RawClient
from segment_service.host.listener import WireServer
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore
from tests.support.fakes.wire_store import FakeStore
from tests.support.held_errors import no_held_errors
from tests.support.security import tokens_of
from tests.support.servers import free_port
from tests.unit.pravega_streams.conftest import ScriptedResolver

SEGMENT = "scope/stream/0.#epoch.0"


def create(rid: int) -> c.Command:
    return c.CreateSegment(rid, SEGMENT, 0, 0, "", 0)


def info(rid: int) -> c.Command:
    return c.GetStreamSegmentInfo(rid, SEGMENT)


async def test_replies_find_their_requests(endpoint: Endpoint) -> None:
    connection = await WireConnection.open(endpoint)
    await connection.call(create)
    replies = await asyncio.gather(*(connection.call(info) for _ in range(50)))
    assert {type(reply) for reply in replies} == {c.StreamSegmentInfo}
    assert len({reply.request_id for reply in replies if isinstance(reply, c.StreamSegmentInfo)}) == 50
    connection.close()


async def test_failure_replies_are_errors(endpoint: Endpoint) -> None:
    client = RawClient(ScriptedResolver(endpoint))
    with no_held_errors(), pytest.raises(SegmentNotFound):
        await client.call(SEGMENT, info, c.StreamSegmentInfo, idempotent=True)
    await client.call(SEGMENT, create, c.SegmentCreated, idempotent=False)
    with pytest.raises(SegmentExists):
        await client.call(SEGMENT, create, c.SegmentCreated, idempotent=False)
    client.close()


async def test_a_store_that_does_not_answer_is_left_for_the_one_that_does(endpoint: Endpoint) -> None:
    resolver = ScriptedResolver(Endpoint("127.0.0.1", free_port()), None, endpoint)
    client = RawClient(resolver)
    await client.call(SEGMENT, create, c.SegmentCreated, idempotent=False)
    assert resolver.forgotten == 2
    client.close()


async def test_it_gives_up_when_its_time_is_over() -> None:
    client = RawClient(ScriptedResolver(None), call_time_s=0.05)
    with pytest.raises(Unavailable):
        await client.call(SEGMENT, info, c.StreamSegmentInfo, idempotent=True)


async def test_a_connection_lost_after_sending_is_unknown(
    endpoint: Endpoint, server: WireServer, segments: InMemorySegmentStore
) -> None:
    segments.hold()
    connection = await WireConnection.open(endpoint)
    waiting = asyncio.ensure_future(connection.call(create))
    await eventually(lambda: segments.queued_operations > 0, "the request")
    connection.close("cut by the test")
    with pytest.raises(UnknownOutcome) as failure:
        await waiting
    assert failure.value.outcome is Outcome.UNKNOWN
    segments.release()
    with pytest.raises(Unavailable):
        await connection.call(info)


async def test_a_call_that_runs_when_its_client_is_closed_ends_and_is_not_sent_again(
    endpoint: Endpoint, segments: InMemorySegmentStore
) -> None:
    resolver = ScriptedResolver(endpoint)
    client = RawClient(resolver)
    segments.hold()
    running = asyncio.ensure_future(client.call(SEGMENT, create, c.SegmentCreated, idempotent=True))
    together = asyncio.ensure_future(
        client.call_many([SegmentCall(SEGMENT, create, c.SegmentCreated)], idempotent=True)
    )
    await eventually(lambda: segments.queued_operations > 1, "the requests")
    client.close()
    with pytest.raises(UnknownOutcome, match="closed by this side"):
        await asyncio.wait_for(running, 2)
    (outcome,) = await asyncio.wait_for(together, 2)
    assert isinstance(outcome, UnknownOutcome)
    assert (resolver.forgotten, segments.queued_operations) == (0, 2)
    with pytest.raises(InvalidArgument, match="is closed; make another one"):
        await client.call(SEGMENT, info, c.StreamSegmentInfo, idempotent=True)
    segments.release()


@pytest.fixture
def plain() -> Iterator[FakeStore]:
    made = FakeStore()
    yield made
    made.close()


async def test_a_plain_pravega_that_refuses_the_token_of_a_read(plain: FakeStore) -> None:
    """It answers with the offset of the read in the place of the request id, and no other request is meant by it."""

    def refused(command: c.Command) -> c.Command | None:
        if isinstance(command, c.ReadSegment):
            return c.AuthTokenCheckFailed(command.offset, "", c.TOKEN_CHECK_FAILED)
        assert isinstance(command, c.GetSegmentAttribute)
        return c.SegmentAttribute(command.request_id, 7)

    plain.before = refused
    connection = await WireConnection.open(plain.endpoint)

    def read(offset: int) -> MakeCommand:
        return lambda rid: c.ReadSegment(SEGMENT, offset, 10, "", rid)

    others = [connection.call(lambda rid: c.GetSegmentAttribute(rid, SEGMENT, bytes(16))) for _ in range(3)]
    reads = [connection.call(read(offset)) for offset in (4, 5, 6)]
    replies = await asyncio.wait_for(asyncio.gather(*reads, *others), 5)
    assert [type(reply) for reply in replies] == [c.AuthTokenCheckFailed] * 3 + [c.SegmentAttribute] * 3
    connection.close()


async def test_reads_that_a_plain_pravega_refused_at_one_offset_are_asked_again(plain: FakeStore) -> None:
    """Nobody knows which of them it was."""
    first = threading.Event()

    def refused(command: c.Command) -> c.Command | None:
        first.wait(5)
        return c.AuthTokenCheckFailed(0, "", c.TOKEN_CHECK_FAILED)

    plain.before = refused
    connection = await WireConnection.open(plain.endpoint)
    calls = [connection.call(lambda rid: c.ReadSegment(SEGMENT, 0, 10, "", rid)) for _ in range(2)]
    reads = asyncio.gather(*calls, return_exceptions=True)
    await asyncio.sleep(0)  # both are sent
    first.set()
    assert {type(outcome) for outcome in await asyncio.wait_for(reads, 5)} == {UnknownOutcome}


async def test_requests_carry_the_token_of_their_segment(segments: InMemorySegmentStore) -> None:
    """One that has ended is dropped with the address, and the call made again with the next."""
    clock = ManualClock()
    tokens = tokens_of(clock)

    class Resolver(ScriptedResolver):
        async def token(self, segment: str) -> str:
            assert segment == SEGMENT
            return ended if self.forgotten < 1 else tokens.internal()

    ended = tokens.internal()
    clock._now_s += 700
    server = WireServer(segments, InMemoryTableStore(segments), segments, clock=clock, tokens=tokens_of(clock))
    await server.start()
    resolver = Resolver(Endpoint("127.0.0.1", server.port))
    client = RawClient(resolver)
    await client.call(SEGMENT, create, c.SegmentCreated, idempotent=False)
    assert resolver.forgotten == 1
    gone = SegmentCall(SEGMENT, lambda rid: c.DeleteSegment(rid, SEGMENT), c.SegmentDeleted)
    assert isinstance((await client.call_many([gone], idempotent=False))[0], c.SegmentDeleted)
    with pytest.raises(AuthenticationFailed):
        await RawClient(ScriptedResolver(resolver.endpoints[0])).call(
            SEGMENT, create, c.SegmentCreated, idempotent=False
        )
    client.close()
    await server.stop()


def is_lost(connection: WireConnection) -> bool:
    return not connection.is_open


async def test_a_pool_keeps_no_lost_connections(endpoint: Endpoint) -> None:
    """A store that comes back may have another address each time."""
    pool, store = ConnectionPool(), InMemorySegmentStore()
    for _ in range(3):
        gone = WireServer(store, InMemoryTableStore(store), store)
        await gone.start()
        lost = await pool.get(Endpoint("127.0.0.1", gone.port))
        await gone.stop()
        await eventually(partial(is_lost, lost), "the loss")
    here = await pool.get(endpoint)
    assert await pool.get(endpoint) is here
    assert list(pool._connections) == [endpoint]  # private, as what is kept shows nowhere else
    assert not pool._locks
    pool.close()


@pytest.mark.parametrize("close", [False, True])
async def test_what_an_unanswered_attempt_did_stays_unknown_when_later_ones_are_not_done(
    plain: FakeStore, close: bool
) -> None:
    plain.before = lambda command: "close"
    gone = Endpoint("127.0.0.1", free_port())
    resolver = ScriptedResolver(plain.endpoint, plain.endpoint, gone)
    client = RawClient(resolver, call_time_s=5 if close else 0.2)
    calls = [SegmentCall(SEGMENT, create, c.SegmentCreated)]
    running = asyncio.ensure_future(client.call(SEGMENT, create, c.SegmentCreated, idempotent=True))
    together = asyncio.ensure_future(client.call_many(calls, idempotent=True))
    if close:
        await eventually(lambda: resolver.forgotten >= 2, "the end of the first attempts")
        client.close()
    with pytest.raises(UnknownOutcome, match="an earlier attempt was sent and not answered"):
        await running
    (outcome,) = await together
    assert isinstance(outcome, UnknownOutcome)
    client.close()
