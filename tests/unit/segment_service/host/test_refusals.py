"""Peers that are refused again and again: their host is read less, and others go on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pravega_common.resources import Permission
from pravega_common.wire import codec
from pravega_common.wire import commands as c
from segment_service.host.listener import WireServer
from segment_service.host.refusals import (
    HostRefusals,
    burst_s,
    connection_refusals,
    new_connection_pause_max_s,
    pause_max_s,
    refusals_per_peer_per_s_default,
    refused_in,
)
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore
from tests.support.security import tokens_of
from tests.support.wire_client import WireClient

HOST = "127.0.0.1"
PER_S = refusals_per_peer_per_s_default
BURST = int(PER_S * burst_s)
SEGMENT = "scope/stream/0.#epoch.0"
WRITER = b"w" * 16
REFUSED: list[Any] = [
    c.GetStreamSegmentInfo(1, SEGMENT),
    c.ReadSegment(SEGMENT, 0, 10, "", 1),
    c.SetupAppend(1, WRITER, SEGMENT),
    c.CreateTransientSegment(1, WRITER, SEGMENT),
    c.SealSegment(1, "scope/\x00"),
    c.SetupAppend(1, WRITER, "scope/\x00"),
    c.CreateTransientSegment(1, WRITER, ""),
    c.GetSegmentLengths(1, ("s",) * 20_000),
]
BATCH = c.RequestBatch(1, tuple(codec.encode(c.GetStreamSegmentInfo(number, SEGMENT)) for number in range(50)))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def server(store: InMemorySegmentStore, clock: ManualClock) -> AsyncIterator[WireServer]:
    tables = InMemoryTableStore(store)
    made = WireServer(store, tables, store, clock=clock, tokens=tokens_of(clock), authenticates=True)
    await made.start()
    await store.create_segment(SEGMENT)
    yield made
    await made.stop()
    assert made.failure is None


def question(number: int, clock: ManualClock) -> c.Command:
    """A question that is answered."""
    token = tokens_of(clock).sign("alice", {"prn::/scope:scope/stream:stream": Permission.READ})
    return c.GetStreamSegmentInfo(number, SEGMENT, token)


def use_up(server: WireServer) -> None:
    server.budgets.refusals.note(HOST, BURST)


async def is_held_back(client: WireClient, clock: ManualClock) -> bool:
    """Whether a good request on the same connection has no answer before the time goes on, and one after it."""
    answer = asyncio.ensure_future(client.call(question(9, clock), c.StreamSegmentInfo))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(answer), 0.1)
    await clock.advance(pause_max_s)
    return (await answer).request_id == 9


def test_a_share_is_free_and_comes_back_with_time() -> None:
    clock = ManualClock()
    refusals = HostRefusals(clock)
    assert refusals.note(HOST, BURST) == 0
    assert refusals.note(HOST, 10) == pytest.approx(10 / PER_S)
    assert refusals.note("other") == 0
    clock._now_s += 5 / PER_S
    assert refusals.pause_s(HOST) == pytest.approx(5 / PER_S)
    clock._now_s += pause_max_s
    assert refusals.note(HOST, BURST) == 0


def test_the_share_is_as_it_is_set() -> None:
    refusals = HostRefusals(ManualClock(), per_peer_per_s=20)
    assert refusals.note(HOST, int(20 * burst_s)) == 0
    assert refusals.note(HOST, 10) == pytest.approx(0.5)


def test_no_pause_is_longer_than_the_limit() -> None:
    refusals = HostRefusals(ManualClock())
    assert refusals.note(HOST, 1_000_000_000) == pytest.approx(pause_max_s)


@pytest.mark.parametrize("request_", REFUSED, ids=lambda one: type(one).__name__)
async def test_who_is_refused_beyond_the_share_is_not_read_for_a_while(
    server: WireServer, client: WireClient, clock: ManualClock, request_: Any
) -> None:
    client.send(request_)
    assert refused_in(await client.reply())
    await client.call(question(2, clock), c.StreamSegmentInfo)
    use_up(server)
    client.send(request_)
    assert refused_in(await client.reply())
    assert await is_held_back(client, clock)
    assert server.budgets.refusals.held_back_total == 1


async def test_a_controller_is_read_whatever_its_callers_ask_for(
    server: WireServer, client: WireClient, clock: ManualClock
) -> None:
    """It hands on tokens of pages that its callers made up: all others wait for its connection, too."""
    table, token = "_system/_tables/scopes", tokens_of(clock).internal()
    await client.call(c.CreateTableSegment(1, table, token), c.SegmentCreated)
    use_up(server)
    for number in range(3):
        made_up = c.ReadTableEntries(number, table, token, 10, b"", b"", b"from")
        assert (await client.call(made_up, c.ErrorMessage)).error_code == c.ILLEGAL_ARGUMENT
    assert (await client.call(question(9, clock), c.StreamSegmentInfo)).request_id == 9
    assert server.budgets.refusals.pause_s(HOST) == 0


async def test_a_refused_batch_counts_as_its_requests(server: WireServer, client: WireClient) -> None:
    server.budgets.refusals.note(HOST, BURST - 10)
    await client.call(BATCH, c.RequestBatchAnswered)
    assert server.budgets.refusals.pause_s(HOST) == pytest.approx(40 / PER_S)


async def test_others_of_the_host_are_served_meanwhile(
    server: WireServer, client: WireClient, clock: ManualClock
) -> None:
    good = await WireClient.connect(server.port)
    use_up(server)
    await client.call(c.GetStreamSegmentInfo(1, SEGMENT), c.AuthTokenCheckFailed)
    for number in range(100):
        await good.call(question(number, clock), c.StreamSegmentInfo)
    await good.close()
    assert await is_held_back(client, clock)


async def test_a_missing_segment_is_no_refusal(
    server: WireServer, client: WireClient, clock: ManualClock, store: InMemorySegmentStore
) -> None:
    await store.delete(SEGMENT)
    use_up(server)
    for number in range(100):
        await client.call(question(number, clock), c.NoSuchSegment)
    assert server.budgets.refusals.pause_s(HOST) == 0


@pytest.mark.parametrize(
    "fault",
    [
        codec.encode(c.AppendBlockEnd(WRITER, 3, b"abc", 1, 1, 3)),
        b"\x7f\xff\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x00\x01\x7f\xff\xff\xff",
    ],
    ids=["an append without set-up", "an unknown type", "a frame without end"],
)
async def test_a_new_connection_of_a_host_that_lost_many_waits_a_second_at_most(
    server: WireServer, clock: ManualClock, fault: bytes
) -> None:
    use_up(server)
    server.budgets.refusals.note(HOST, int(PER_S * new_connection_pause_max_s))
    peer = await WireClient.connect(server.port, greet=False)
    peer.send(c.Hello(17, 5))
    greeting = asyncio.ensure_future(peer.expect(c.Hello))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(greeting), 0.1)
    await clock.advance(new_connection_pause_max_s)
    await greeting
    before_s = server.budgets.refusals.pause_s(HOST)
    peer.send_raw(fault)
    await peer.closed_by_server()
    assert server.budgets.refusals.pause_s(HOST) == pytest.approx(before_s + connection_refusals / PER_S)


async def test_a_connection_that_ends_before_it_says_hello_counts(server: WireServer, clock: ManualClock) -> None:
    use_up(server)
    peer = await WireClient.connect(server.port, greet=False)
    await eventually(lambda: server.connection_count == 1)
    await peer.close()
    await eventually(lambda: server.connection_count == 0)
    assert server.budgets.refusals.pause_s(HOST) == pytest.approx(connection_refusals / PER_S)
