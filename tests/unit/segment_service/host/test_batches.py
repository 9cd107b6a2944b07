"""Batches of requests: each request is answered as if it had come alone, and the limits hold."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

import pytest

from pravega_common.errors import ContainerNotHosted, ContainerOffline
from pravega_common.wire import codec
from pravega_common.wire import commands as c
from pravega_common.wire.versions import BATCHES, EXTENSIONS, batch_bytes_max, batch_requests_max
from segment_service.contracts.segment_store import SegmentProperties, SegmentState
from segment_service.host.admission import is_of_controller
from segment_service.host.listener import WireServer
from segment_service.host.request_batches import requests_at_work_max
from tests.support.eventually import eventually
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.wire_client import WireClient

NAMES = [f"scope/stream/{number}.#epoch.0" for number in range(batch_requests_max)]


def sources_of(target: str) -> tuple[str, ...]:
    return tuple(f"{target}#transaction.{number:032x}" for number in range(3))


async def batch(client: WireClient, *requests: c.Command) -> list[c.Command]:
    """The replies to a batch."""
    command = c.RequestBatch(7, tuple(map(codec.encode, requests)))
    answered = await client.call(command, c.RequestBatchAnswered)
    assert answered.request_id == 7
    return [codec.decode_frame(reply) for reply in answered.replies]


async def test_extensions_are_told_only_to_those_who_ask(server: WireServer) -> None:
    """A peer that says Hello as Pravega's clients do gets the Hello of a Pravega, to the byte."""
    client = await WireClient.connect(server.port, greet=False)
    assert await client.call(c.Hello(17, 5), c.Hello) == c.Hello(17, 5)
    assert await client.call(c.Hello(17, 5, 1 << 40 | EXTENSIONS), c.Hello) == c.Hello(17, 5, EXTENSIONS)
    assert await client.call(c.Hello(17, 5, 1 << 40 | BATCHES), c.Hello) == c.Hello(17, 5, BATCHES)
    assert codec.encode(c.Hello(17, 5)).hex() == "ffffff81000000080000001100000005"
    await client.close()


async def test_every_request_is_answered_as_if_it_came_alone(any_server: WireServer) -> None:
    one, two = await WireClient.connect(any_server.port), await WireClient.connect(any_server.port)
    target, other, missing = NAMES[0], NAMES[1], NAMES[2]
    sources = sources_of(target)

    def requests(rename: str) -> list[list[c.Command]]:
        def name(segment: str) -> str:
            return segment.replace("scope/", f"scope{rename}/")

        merged = tuple(map(name, sources))
        made = (target, other, *sources)
        return [
            [c.CreateSegment(index, name(segment), 0, 0) for index, segment in enumerate(made)],
            [c.CreateSegment(1, name(target), 0, 0), c.CreateSegment(2, "", 0, 0), c.CreateSegment(3, name("x"), 0, 9)],
            [c.GetStreamSegmentInfo(4, name(target)), c.GetStreamSegmentInfo(5, name(missing))],
            [c.SealSegment(6, name(source)) for source in sources],
            [c.MergeSegmentsBatch(7, name(target), merged), c.MergeSegmentsBatch(8, name(other), (name(missing),))],
            [c.MergeSegmentsBatch(7, name(target), merged), c.SealSegment(9, name(other))],
            [
                c.SealSegment(10, name(other)),
                c.DeleteSegment(11, name(missing)),
                c.TruncateSegment(12, name(target), 9),
            ],
            [c.UpdateSegmentPolicy(13, name(target), 5, 1), c.DeleteSegment(14, name(target))],
            [],
        ]

    for together, alone in zip(requests("a"), requests("b"), strict=True):
        expected = []
        for request in alone:
            two.send(request)
            expected.append(await two.reply())
        answers = [codec.encode(reply).hex() for reply in await batch(one, *together)]
        renamed = [codec.encode(reply).replace(b"scopeb/", b"scopea/").hex() for reply in expected]
        assert _without_time(answers) == _without_time(renamed)
    await one.close()
    await two.close()


def _without_time(replies: list[str]) -> list[str]:
    """Frames of info with the time of the last change left out."""
    found = []
    for reply in replies:
        command = codec.decode_frame(bytes.fromhex(reply))
        if isinstance(command, c.StreamSegmentInfo):
            command = c.StreamSegmentInfo(
                command.request_id, command.segment, True, command.is_sealed, False, 0, command.write_offset, 0
            )
        found.append(repr(command))
    return found


@pytest.mark.parametrize(("failure", "kind"), [(ContainerNotHosted, c.WrongHost), (ContainerOffline, c.NoReply)])
async def test_a_failure_is_one_requests_own(
    client: WireClient,
    store: InMemorySegmentStore,
    failure: Callable[[int, str], Exception],
    kind: type[c.Command],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also one without a true reply: by itself it would close the connection."""
    create = store.create_segment

    async def failing(segment: str, *args: object) -> None:
        if segment == NAMES[1]:
            # Made here: one that outlives the test keeps the frames that raised it, and the connections in them.
            raise failure(3, "elsewhere, or stops")
        await create(segment, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "create_segment", failing)
    replies = await batch(client, *(c.CreateSegment(index, NAMES[index], 0, 0) for index in range(3)))
    assert [type(reply) for reply in replies] == [c.SegmentCreated, kind, c.SegmentCreated]
    assert [getattr(reply, "request_id", None) for reply in replies] == [0, 1, 2]
    await client.call(c.KeepAlive(), c.KeepAlive)


async def test_only_a_segment_that_is_not_in_memory_is_looked_up(
    client: WireClient, store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are answered without a task, each in its place."""
    for name in NAMES[:4]:
        await store.create_segment(name)
    known, properties, looked_up = store.state_in_memory, store.get_info, []

    async def get_info(segment: str) -> SegmentProperties:
        looked_up.append(segment)
        return await properties(segment)

    monkeypatch.setattr(store, "state_in_memory", lambda segment: None if segment == NAMES[1] else known(segment))
    monkeypatch.setattr(store, "get_info", get_info)
    replies = await batch(client, *(c.GetStreamSegmentInfo(index, NAMES[index]) for index in range(5)))
    assert [type(reply) for reply in replies] == [*[c.StreamSegmentInfo] * 4, c.NoSuchSegment]
    assert [getattr(reply, "segment", "") for reply in replies] == NAMES[:5]
    assert looked_up == [NAMES[1], NAMES[4]], "and the one that does not exist"


async def test_an_info_without_a_true_reply_is_one_requests_own(
    client: WireClient, store: InMemorySegmentStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.create_segment(NAMES[0])
    known, properties = store.state_in_memory, store.get_info

    def stopping(segment: str) -> SegmentState:
        if segment == NAMES[1]:
            raise ContainerOffline(3, "stops")
        return known(segment)

    async def get_info(segment: str) -> SegmentProperties:
        stopping(segment)
        return await properties(segment)

    monkeypatch.setattr(store, "state_in_memory", stopping)
    monkeypatch.setattr(store, "get_info", get_info)
    replies = await batch(client, *(c.GetStreamSegmentInfo(index, NAMES[index]) for index in (1, 0)))
    assert [type(reply) for reply in replies] == [c.NoReply, c.StreamSegmentInfo]


async def test_a_batch_above_a_limit_is_refused_whole(client: WireClient, store: InMemorySegmentStore) -> None:
    create = codec.encode(c.CreateSegment(1, NAMES[0], 0, 0))
    padded = codec.encode(c.CreateSegment(1, NAMES[0], 0, 0, "t" * 60_000))
    for requests in ((create,) * (batch_requests_max + 1), (padded,) * (batch_bytes_max // len(padded) + 1)):
        reply = await client.call(c.RequestBatch(5, requests), c.ErrorMessage)
        assert (reply.request_id, reply.error_code) == (5, c.ILLEGAL_ARGUMENT)
        assert str(batch_requests_max) in reply.message
    [missing] = await batch(client, c.GetStreamSegmentInfo(1, NAMES[0]))
    assert isinstance(missing, c.NoSuchSegment)
    [refused] = await batch(client, c.MergeSegmentsBatch(3, NAMES[0], ("s",) * (batch_requests_max + 1)))
    assert isinstance(refused, c.ErrorMessage)
    assert refused.request_id == 3


@pytest.mark.parametrize(
    "frame",
    [
        codec.encode(c.KeepAlive()),
        codec.encode(c.RequestBatch(1, ())),
        codec.encode(c.SetupAppend(1, b"w" * 16, "s")),
        struct.pack(">ii", 4_711, 0),
        struct.pack(">iiq", c.SealSegment.type_code, 8, 1),
    ],
    ids=["no request", "a batch", "a set-up", "unknown", "short"],
)
async def test_what_no_batch_may_hold_closes_the_connection(client: WireClient, frame: bytes) -> None:
    client.send(c.RequestBatch(5, (frame,)))
    assert await client.closed_by_server() == []


async def test_others_have_their_turn_while_a_batch_is_served(
    server: WireServer, client: WireClient, store: InMemorySegmentStore
) -> None:
    """The store gets a group of requests at a time; other connections, and this one, are served meanwhile."""
    store.hold()
    client.send(c.RequestBatch(7, tuple(codec.encode(c.CreateSegment(1, name, 0, 0)) for name in NAMES)))
    await eventually(lambda: store.queued_operations == requests_at_work_max, "the first group")
    other = await WireClient.connect(server.port)
    assert await other.call(c.KeepAlive(), c.KeepAlive) == c.KeepAlive()
    assert await client.call(c.GetStreamSegmentInfo(9, "scope/other"), c.NoSuchSegment)
    assert store.queued_operations == requests_at_work_max
    store.release()
    assert len((await client.expect(c.RequestBatchAnswered)).replies) == len(NAMES)
    await other.close()


async def test_a_merge_counts_as_many_as_it_has_sources(client: WireClient, store: InMemorySegmentStore) -> None:
    targets = NAMES[: 2 * requests_at_work_max // 3]
    for target in targets:
        await store.create_segment(target)
        for source in sources_of(target):
            await store.create_segment(source)
    store.hold()
    merges = [c.MergeSegmentsBatch(1, target, sources_of(target)) for target in targets]
    served = asyncio.ensure_future(batch(client, *merges))
    await eventually(lambda: store.queued_operations >= requests_at_work_max, "the first group")
    assert store.queued_operations < requests_at_work_max + 3
    store.release()
    assert all(isinstance(reply, c.SegmentsBatchMerged) for reply in await served)


def test_a_batch_of_what_controllers_send_is_a_controllers() -> None:
    def is_controllers(*requests: c.Command) -> bool:
        return is_of_controller(c.RequestBatch(1, tuple(map(codec.encode, requests))))

    create, info = c.CreateSegment(1, NAMES[0], 0, 0), c.GetStreamSegmentInfo(1, NAMES[0])
    assert is_controllers(create, c.SealSegment(2, NAMES[1]))
    assert not is_controllers(create, info)
    assert not is_controllers()
