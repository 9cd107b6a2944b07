"""A store with keys of its cluster: what a stranger may not do, and what clients of Pravega still may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pravega_common.resources import Permission
from pravega_common.services.security.cluster_keys import ClusterKeys
from pravega_common.wire import codec
from pravega_common.wire import commands as c
from segment_service.host.listener import WireServer
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore
from tests.support.security import tokens_of
from tests.support.wire_client import WireClient

SCOPES = "_system/_tables/scopes"
REQUESTS = "_system/_requeststream/0.#epoch.0"
SEGMENT = "scope/stream/0.#epoch.0"
SOURCE = "scope/stream/0.#epoch.0#transaction.000000000000000000000000000000aa"
WRITER = b"w" * 16
KEY = c.WireTableKey(b"key", c.NO_VERSION)
ENTRY = c.WireTableEntry(KEY, b"value")

ON_SYSTEM: list[Any] = [
    c.SetupAppend(1, WRITER, REQUESTS),
    c.ReadSegment(REQUESTS, 0, 10, "", 1),
    c.GetStreamSegmentInfo(1, REQUESTS),
    c.GetSegmentLengths(1, (SEGMENT, REQUESTS)),
    c.GetSegmentAttribute(1, REQUESTS, WRITER),
    c.UpdateSegmentAttribute(1, REQUESTS, WRITER, 1, c.NULL_ATTRIBUTE_VALUE),
    c.LocateOffset(1, REQUESTS, 0),
    c.SealSegment(1, REQUESTS),
    c.TruncateSegment(1, REQUESTS, 0),
    c.CreateTransientSegment(1, WRITER, REQUESTS),
    c.GetTableSegmentInfo(1, SCOPES),
    c.CreateTableSegment(1, "_system/_tables/more"),
    c.UpdateTableEntries(1, SCOPES, "", (ENTRY,)),
    c.RemoveTableKeys(1, SCOPES, "", (KEY,)),
    c.ReadTable(1, SCOPES, "", (KEY,)),
    c.ReadTableKeys(1, SCOPES, "", 10),
    c.ReadTableEntries(1, SCOPES, "", 10),
    c.ReadTableEntriesDelta(1, SCOPES, "", 0, 10),
    c.MergeSegments(1, REQUESTS, f"{REQUESTS}#transient.{'a' * 32}.{'b' * 32}"),
]
ANYWHERE: list[Any] = [
    c.CreateSegment(1, "scope/stream/9.#epoch.0", 0, 0),
    c.UpdateSegmentPolicy(1, SEGMENT, 0, 0),
    c.MergeSegments(1, SEGMENT, SOURCE),
    c.MergeSegments(1, SEGMENT, f"scope/stream/1.#epoch.0#transient.{'a' * 32}.{'b' * 32}"),
    c.MergeSegmentsBatch(1, SEGMENT, (SOURCE,)),
    c.DeleteSegment(1, SEGMENT),
    c.DeleteSegment(1, REQUESTS),
    c.DeleteTableSegment(1, SCOPES, False),
]
REFUSED = ON_SYSTEM + ANYWHERE


def name_of(command: Any) -> str:
    return f"{type(command).__name__} {getattr(command, 'segment', '')}"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def server(store: InMemorySegmentStore, clock: ManualClock) -> AsyncIterator[WireServer]:
    tables = InMemoryTableStore(store)
    made = WireServer(store, tables, store, clock=clock, tokens=tokens_of(clock), connections_max=3)
    await made.start()
    for segment in (SEGMENT, SOURCE, REQUESTS):
        await store.create_segment(segment)
    await store.append(REQUESTS, [b"bytes"])
    for table in (SCOPES, "scope/t_kvtable/0.#epoch.0"):
        await tables.create_table(table, 0, 0)
    yield made
    store.open_gate()
    await made.stop()
    assert made.failure is None


def with_token(command: Any, token: str) -> c.Command:
    given: c.Command = command.with_fields(token=token)
    return given


async def test_a_stranger_neither_reads_nor_deletes_the_catalogue(client: WireClient) -> None:
    """The finding: without Hello or token a stranger read ``_system/_tables/scopes`` and deleted it."""
    assert await client.call(c.ReadTable(1, SCOPES, "", (KEY,)), c.AuthTokenCheckFailed) == c.AuthTokenCheckFailed(
        1, "", 0
    )
    await client.call(c.DeleteTableSegment(2, SCOPES, False), c.AuthTokenCheckFailed)
    await client.call(c.DeleteSegment(3, SEGMENT), c.AuthTokenCheckFailed)
    await client.call(c.GetStreamSegmentInfo(4, SEGMENT), c.StreamSegmentInfo)


@pytest.mark.parametrize("command", REFUSED, ids=name_of)
async def test_what_is_the_controllers_needs_their_token(
    client: WireClient, store: InMemorySegmentStore, clock: ManualClock, command: Any
) -> None:
    tokens = tokens_of(clock)
    foreign = tokens_of(clock, ClusterKeys({"test": b"f" * 64})).internal()
    of_client = tokens.sign("alice", {"prn::/scope:_system": Permission.READ_UPDATE})
    before = await store.get_info(SEGMENT)
    for token in ("", "a.b.c", foreign, of_client):
        refusal = await client.call(with_token(command, token), c.AuthTokenCheckFailed)
        assert (refusal.request_id, refusal.error_code) == (1, c.TOKEN_CHECK_FAILED)
    assert await store.get_info(SEGMENT) == before
    client.send(with_token(command, tokens.internal()))
    assert not isinstance(await client.reply(), c.AuthTokenCheckFailed)


async def test_clients_of_pravega_do_what_they_do_on_the_wire(client: WireClient, store: InMemorySegmentStore) -> None:
    made = await client.call(c.CreateTransientSegment(1, WRITER, SEGMENT), c.SegmentCreated)
    await client.call(c.SetupAppend(2, WRITER, made.segment), c.AppendSetup)
    await client.call(c.AppendBlockEnd(WRITER, 3, b"abc", 1, 1, 3), c.DataAppended)
    await client.call(c.MergeSegments(4, SEGMENT, made.segment), c.SegmentsMerged)
    assert (await client.call(c.ReadSegment(SEGMENT, 0, 10, "", 5), c.SegmentRead)).data == b"abc"
    await client.call(c.TruncateSegment(6, SEGMENT, 1), c.SegmentTruncated)
    await client.call(c.SealSegment(7, SEGMENT), c.SegmentSealed)
    await client.call(c.CreateTableSegment(8, "scope/group_kvtable/0.#epoch.0"), c.SegmentCreated)
    await client.call(c.DeleteTableSegment(9, "scope/group_kvtable/0.#epoch.0", False), c.SegmentDeleted)


async def test_each_request_of_a_batch_is_checked(client: WireClient, clock: ManualClock) -> None:
    token = tokens_of(clock).internal()
    requests = (
        c.GetStreamSegmentInfo(0, SEGMENT),
        c.GetStreamSegmentInfo(1, REQUESTS),
        c.DeleteSegment(2, SEGMENT),
        c.DeleteSegment(3, SOURCE, token),
    )
    answer = await client.call(c.RequestBatch(9, tuple(map(codec.encode, requests))), c.RequestBatchAnswered)
    replies = [type(codec.decode_frame(frame)) for frame in answer.replies]
    assert replies == [c.StreamSegmentInfo, c.AuthTokenCheckFailed, c.AuthTokenCheckFailed, c.SegmentDeleted]


async def test_each_read_of_a_batch_is_checked(client: WireClient, clock: ManualClock) -> None:
    token = tokens_of(clock).internal()
    reads = (c.ReadSegment(REQUESTS, 0, 8, "", 0), c.ReadSegment(REQUESTS, 0, 8, token, 1))
    answer = await client.call(c.RequestBatch(9, tuple(map(codec.encode, reads))), c.RequestBatchAnswered)
    replies = [type(codec.decode_frame(frame)) for frame in answer.replies]
    assert replies == [c.AuthTokenCheckFailed, c.SegmentRead]


async def test_a_batch_that_comes_again_is_checked_again(client: WireClient, clock: ManualClock) -> None:
    """The store remembers the batch and its replies, and not that it might give them."""
    question = codec.encode(c.GetStreamSegmentInfo(0, REQUESTS, tokens_of(clock).internal()))
    for passed_s, kind in (*[(0, c.StreamSegmentInfo)] * 3, (700, c.AuthTokenCheckFailed)):
        clock._now_s += passed_s
        answer = await client.call(c.RequestBatch(9, (question,)), c.RequestBatchAnswered)
        assert [type(codec.decode_frame(frame)) for frame in answer.replies] == [kind]


async def test_a_token_that_has_ended_says_so(client: WireClient, clock: ManualClock) -> None:
    token = tokens_of(clock).internal()
    await client.call(c.ReadTable(1, SCOPES, token, (KEY,)), c.TableRead)
    clock._now_s += 700
    refusal = await client.call(c.ReadTable(2, SCOPES, token, (KEY,)), c.AuthTokenCheckFailed)
    assert refusal.error_code == c.TOKEN_EXPIRED


async def test_only_a_controllers_updates_pass_the_closed_gate(
    client: WireClient, server: WireServer, store: InMemorySegmentStore, clock: ManualClock
) -> None:
    """By identity: the name of the table opens no reserve to a stranger."""
    store.close_gate()
    other = await WireClient.connect(server.port)
    other.send(c.UpdateTableEntries(1, SCOPES, "", (ENTRY,)))
    await eventually(lambda: any(one.reading_is_paused for one in server._connections), "the stranger's pause")
    await client.call(c.UpdateTableEntries(2, SCOPES, tokens_of(clock).internal(), (ENTRY,)), c.TableEntriesUpdated)
    store.open_gate()
    await other.expect(c.AuthTokenCheckFailed)
    await other.close()


async def test_a_cut_off_update_is_no_controllers(
    client: WireClient, server: WireServer, store: InMemorySegmentStore
) -> None:
    store.close_gate()
    whole = codec.encode(c.UpdateTableEntries(1, SCOPES, "x" * 40, (ENTRY,)))
    body = whole[8 : 8 + 8 + 2 + len(SCOPES) + 1]
    client.send_raw(whole[:4] + len(body).to_bytes(4, "big") + body)
    await eventually(lambda: any(one.reading_is_paused for one in server._connections), "the pause")
    store.open_gate()
    assert await client.closed_by_server() == []


async def test_a_full_store_takes_controllers_by_their_token(server: WireServer, clock: ManualClock) -> None:
    clients = [await WireClient.connect(server.port) for _ in range(3)]
    await eventually(lambda: server.connection_count == 3)
    token = tokens_of(clock).internal()
    info = c.GetStreamSegmentInfo(1, SEGMENT, token)
    for first in (info, c.RequestBatch(1, (codec.encode(info),))):
        controller = await WireClient.connect(server.port)
        controller.send(first)
        assert not isinstance(await controller.reply(), c.ErrorMessage)
        clients.append(controller)
    for stranger_says in (c.CreateSegment(1, SEGMENT, 0, 0), c.ReadTable(1, SCOPES, "", (KEY,)), c.RequestBatch(1, ())):
        stranger = await WireClient.connect(server.port)
        assert (await stranger.call(stranger_says, c.ErrorMessage)).error_code == c.THROTTLED
        clients.append(stranger)
    await asyncio.gather(*(client.close() for client in clients))


# ---- with authentication ---------------------------------------------------------------------------------------------


@pytest.fixture
async def closed_server(store: InMemorySegmentStore, clock: ManualClock) -> AsyncIterator[WireServer]:
    tables = InMemoryTableStore(store)
    made = WireServer(store, tables, store, clock=clock, tokens=tokens_of(clock), authenticates=True)
    await made.start()
    await store.create_segment(SEGMENT)
    await store.append(SEGMENT, [b"bytes"])
    await tables.create_table(TABLE, 0, 0)
    yield made
    await made.stop()
    assert made.failure is None


@pytest.fixture
async def guest(closed_server: WireServer) -> AsyncIterator[WireClient]:
    made = await WireClient.connect(closed_server.port)
    yield made
    await made.close()


TABLE = "scope/t_kvtable/0.#epoch.0"
READS: list[Any] = [
    c.ReadSegment(SEGMENT, 0, 10, "", 1),
    c.GetStreamSegmentInfo(1, SEGMENT),
    c.GetSegmentLengths(1, (SEGMENT,)),
    c.GetSegmentAttribute(1, SEGMENT, WRITER),
    c.LocateOffset(1, SEGMENT, 0),
    c.GetTableSegmentInfo(1, TABLE),
    c.ReadTable(1, TABLE, "", (KEY,)),
    c.ReadTableKeys(1, TABLE, "", 10),
    c.ReadTableEntries(1, TABLE, "", 10),
    c.ReadTableEntriesDelta(1, TABLE, "", 0, 10),
]
UPDATES: list[Any] = [
    c.SetupAppend(1, WRITER, SEGMENT),
    c.UpdateSegmentAttribute(1, SEGMENT, WRITER, 1, c.NULL_ATTRIBUTE_VALUE),
    c.TruncateSegment(1, SEGMENT, 0),
    c.CreateTransientSegment(1, WRITER, SEGMENT),
    c.SealSegment(1, SEGMENT),
    c.CreateTableSegment(1, "scope/t_kvtable/1.#epoch.0"),
    c.UpdateTableEntries(1, TABLE, "", (ENTRY,)),
    c.RemoveTableKeys(1, TABLE, "", (KEY,)),
    c.DeleteTableSegment(1, TABLE, False),
]


def test_every_request_that_a_client_makes_is_in_a_list() -> None:
    """A new request with a token is added to one of the lists above, and so tried."""
    tried = {type(command) for command in (*READS, *UPDATES, *ANYWHERE)}
    # Pravega's administration port only: this port closes the connection.
    unserved = {c.FlushToStorage, c.ListStorageChunks}
    assert tried | unserved == {kind for kind in c.COMMANDS.values() if "token" in dict(kind.layout)}


@pytest.mark.parametrize("command", READS + UPDATES, ids=name_of)
async def test_clients_need_a_token_that_permits_it(guest: WireClient, clock: ManualClock, command: Any) -> None:
    tokens = tokens_of(clock)
    is_update = command in UPDATES
    resources = ("prn::/scope:scope/stream:stream", "prn::/scope:scope/key-value-table:t")

    def granted(permission: Permission, *names: str) -> str:
        return tokens.sign("alice", dict.fromkeys(names, permission))

    update = granted(Permission.READ_UPDATE, *resources)
    others = granted(
        Permission.READ_UPDATE, "prn::/scope:scope", "prn::/scope:scope/stream:strea", "prn::/scope:scope/*"
    )
    for token in ("", others, *([granted(Permission.READ, *resources)] if is_update else [])):
        refusal = await guest.call(with_token(command, token), c.AuthTokenCheckFailed)
        assert refusal.error_code == c.TOKEN_CHECK_FAILED
    for token in [update] if is_update else [granted(Permission.READ, *resources), update]:
        guest.send(with_token(command, token))
        assert not isinstance(await guest.reply(), c.AuthTokenCheckFailed | c.ErrorMessage)


async def test_what_is_the_controllers_stays_theirs(guest: WireClient, clock: ManualClock) -> None:
    token = tokens_of(clock).sign("root", {"prn::/scope:scope/stream:stream": Permission.READ_UPDATE})
    for command in ANYWHERE:
        await guest.call(with_token(command, token), c.AuthTokenCheckFailed)


async def test_a_writer_is_cut_off_when_its_token_has_ended(
    guest: WireClient, closed_server: WireServer, clock: ManualClock
) -> None:
    """Appends carry no token and cost nothing: the connection ends, and the client comes with a new one."""
    tokens = tokens_of(clock)
    resource = "prn::/scope:scope/stream:stream"
    await guest.call(
        c.SetupAppend(1, WRITER, SEGMENT, tokens.sign("alice", {resource: Permission.READ_UPDATE})), c.AppendSetup
    )
    await clock.advance(500)
    await guest.call(c.AppendBlockEnd(WRITER, 3, b"abc", 1, 1, 2), c.DataAppended)
    renewed = tokens.sign("alice", {resource: Permission.READ_UPDATE})
    await guest.call(c.SetupAppend(3, WRITER, SEGMENT, renewed), c.AppendSetup)
    await clock.advance(200)
    await guest.call(c.AppendBlockEnd(WRITER, 3, b"abc", 1, 2, 4), c.DataAppended)
    await clock.advance(500)
    assert await guest.closed_by_server() == []
    await eventually(lambda: closed_server.connection_count == 0)
    assert closed_server.recent_closes[-1][1] == "the token of a writer has ended"


async def test_the_first_token_that_ends_cuts_the_writers_off(
    guest: WireClient, closed_server: WireServer, clock: ManualClock
) -> None:
    """A client shows a token for a part of its life: that of a later writer may end before those of the others."""
    tokens = tokens_of(clock)
    resource = "prn::/scope:scope/stream:stream"
    shown_before = tokens.sign("alice", {resource: Permission.READ_UPDATE})
    await clock.advance(500)
    fresh = tokens.sign("alice", {resource: Permission.READ_UPDATE})
    for number, token in enumerate((fresh, shown_before, fresh)):
        await guest.call(c.SetupAppend(number, bytes([number] * 16), SEGMENT, token), c.AppendSetup)
    await clock.advance(90)
    await guest.call(c.AppendBlockEnd(bytes([1] * 16), 3, b"abc", 1, 1, 2), c.DataAppended)
    await clock.advance(50)
    assert await guest.closed_by_server() == []
    await eventually(lambda: closed_server.connection_count == 0)
    assert closed_server.recent_closes[-1][1] == "the token of a writer has ended"
