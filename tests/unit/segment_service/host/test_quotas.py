"""Limits of bytes a second: who waits, who does not, and that nothing is lost by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from pravega_common.services.cluster.byte_limits import ByteLimits
from pravega_common.wire import codec
from pravega_common.wire import commands as c
from segment_service.host import connection_reads
from segment_service.host.in_flight import InFlightBudget
from segment_service.host.listener import WireServer
from tests.support.eventually import eventually
from tests.support.fakes.clock import ManualClock
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.table_store import InMemoryTableStore
from tests.support.security import tokens_of
from tests.support.wire_client import WireClient

LIMITED, FREE = "scope/stream/0.#epoch.0", "other/stream/0.#epoch.0"
TABLE = "scope/_kvtable_t/0.#epoch.0"
MARK = "scope/_MARKmine/0.#epoch.0"
WRITER = b"w" * 16
EVENT = bytes(10_000)
FRAME = len(codec.encode(c.AppendBlockEnd(WRITER, len(EVENT), EVENT, 1, 1, 1))) - codec.frame_header_bytes


class Scene:
    """A server whose clock the test moves, with a segment of a limited scope and one of another."""

    def __init__(self, *, with_keys: bool = False, budget: InFlightBudget | None = None) -> None:
        self.clock = ManualClock()
        self.store = InMemorySegmentStore()
        self.tables = InMemoryTableStore(self.store)
        tokens = tokens_of(self.clock) if with_keys else None
        self.server = WireServer(self.store, self.tables, self.store, clock=self.clock, tokens=tokens, budget=budget)

    def limit(self, bytes_in: int | None = None, bytes_out: int | None = None) -> None:
        self.server.quotas.share({"scope": ByteLimits(bytes_in, bytes_out)}, 1)

    async def client(self, segment: str = "") -> WireClient:
        """Set up as a writer, if it is to write."""
        client = await WireClient.connect(self.server.port)
        if segment:
            await client.call(c.SetupAppend(1, WRITER, segment), c.AppendSetup)
        return client

    def length(self, segment: str) -> int:
        state = self.store.state_in_memory(segment)
        assert state is not None
        return state.length

    async def fill(self, segment: str, count: int) -> None:
        for _ in range(count):
            await self.store.append(segment, [EVENT])


async def _started(made: Scene) -> AsyncIterator[Scene]:
    await made.server.start()
    for segment in (LIMITED, FREE):
        await made.store.create_segment(segment)
    yield made
    stop = asyncio.ensure_future(made.server.stop())
    while not stop.done():
        await made.clock.advance(1)
        await asyncio.sleep(0.01)  # real sockets
    assert made.server.failure is None


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async for one in _started(Scene()):
        yield one


@pytest.fixture
async def scene_with_keys() -> AsyncIterator[Scene]:
    async for one in _started(Scene(with_keys=True)):
        yield one


@pytest.fixture
async def scene_with_a_small_budget() -> AsyncIterator[Scene]:
    async for one in _started(Scene(budget=InFlightBudget(bytes_max=FRAME))):
        yield one


def appends(first: int, last: int) -> list[c.Command]:
    return [c.AppendBlockEnd(WRITER, len(EVENT), EVENT, 1, number, number) for number in range(first, last + 1)]


async def settle(scene: Scene, steps: float, count: int) -> None:
    """Let real sockets move between short steps of time."""
    for _ in range(count):
        await scene.clock.advance(steps)
        await asyncio.sleep(0.005)  # real sockets


async def test_appends_beyond_the_limit_are_not_read_and_none_is_lost(scene: Scene) -> None:
    scene.limit(bytes_in=10 * FRAME)
    client = await scene.client(LIMITED)
    client.send(*appends(1, 60))
    await eventually(lambda: scene.length(LIMITED) == 11 * len(EVENT))
    (connection,) = scene.server._connections
    assert connection.reading_is_paused
    await settle(scene, 0.1, 30)
    assert 38 * len(EVENT) <= scene.length(LIMITED) <= 42 * len(EVENT)
    await settle(scene, 0.1, 25)
    assert [(await client.expect(c.DataAppended)).event_number for _ in range(60)] == list(range(1, 61))
    assert not connection.reading_is_paused
    assert scene.server.quotas.inward.throttled_s == pytest.approx(5, abs=0.5)
    await client.close()


async def test_others_are_not_held_up(scene: Scene) -> None:
    scene.limit(bytes_in=FRAME, bytes_out=1)
    client, other = await scene.client(LIMITED), await scene.client(FREE)
    client.send(*appends(1, 60))
    other.send(*appends(1, 60))
    assert [(await other.expect(c.DataAppended)).event_number for _ in range(60)] == list(range(1, 61))
    assert len((await other.call(c.ReadSegment(FREE, 0, 100, "", 1), c.SegmentRead)).data) == 100
    assert scene.length(LIMITED) == 2 * len(EVENT)
    await client.close()
    await other.close()


async def test_connections_of_one_scope_share_its_limit_in_turns(scene: Scene) -> None:
    segments = [f"scope/stream/{number}.#epoch.0" for number in range(1, 5)]
    for segment in segments:
        await scene.store.create_segment(segment)
    scene.limit(bytes_in=4 * FRAME)
    clients = [await scene.client(segment) for segment in segments]
    for client in clients:
        client.send(*appends(1, 50))
    await settle(scene, 0.05, 200)
    lengths = [scene.length(segment) // len(EVENT) for segment in segments]
    assert 40 <= sum(lengths) <= 48
    assert min(lengths) >= 8
    for client in clients:
        await client.close()


async def test_a_lost_connection_leaves_the_line(scene: Scene) -> None:
    scene.limit(bytes_in=FRAME)
    first, second = await scene.client(LIMITED), await scene.client()
    bucket = scene.server.quotas.inward.of(LIMITED)
    assert bucket is not None
    first.send(*appends(1, 60))
    await eventually(lambda: bucket.waiting == 1)
    (waiting,) = (one for one in scene.server._connections if one.reading_is_paused)
    second.send(c.SetupAppend(2, b"x" * 16, LIMITED), c.AppendBlockEnd(b"x" * 16, len(EVENT), EVENT, 1, 1, 1))
    await eventually(lambda: bucket.waiting == 2)
    waiting.abort()
    await eventually(lambda: bucket.waiting == 1)
    await first.close()
    await second.expect(c.AppendSetup)
    await settle(scene, 0.5, 6)
    await second.expect(c.DataAppended)
    await second.close()


async def test_a_change_and_the_end_of_a_limit_take_effect_on_who_waits(scene: Scene) -> None:
    scene.limit(bytes_in=FRAME // 2)
    client = await scene.client(LIMITED)
    client.send(*appends(1, 200))
    await eventually(lambda: scene.length(LIMITED) == len(EVENT))
    scene.limit(bytes_in=20 * FRAME)
    await settle(scene, 0.1, 30)
    assert 40 * len(EVENT) <= scene.length(LIMITED) <= 80 * len(EVENT)
    scene.limit()
    await settle(scene, 0.5, 2)
    await eventually(lambda: scene.length(LIMITED) == 200 * len(EVENT))
    await client.close()


async def test_updates_of_tables_count(scene: Scene) -> None:
    client = await scene.client()
    await client.call(c.CreateTableSegment(1, TABLE), c.SegmentCreated)
    scene.limit(bytes_in=10_000)
    entry = c.WireTableEntry(c.WireTableKey(b"k", -(2**63)), bytes(10_000))
    update = c.UpdateTableEntries(2, TABLE, "", (entry,))
    client.send(update, update)
    await client.expect(c.TableEntriesUpdated)
    bucket = scene.server.quotas.inward.of(TABLE)
    assert bucket is not None
    await eventually(lambda: bucket.waiting == 1)
    await settle(scene, 0.5, 5)
    await client.expect(c.TableEntriesUpdated)
    scene.limit(bytes_out=10_000)
    read = c.ReadTable(3, TABLE, "", (c.WireTableKey(b"k", -(2**63)),))
    client.send(read, read, read)
    await client.expect(c.TableRead)
    out = scene.server.quotas.outward.of(TABLE)
    assert out is not None
    await eventually(lambda: out.waiting == 2)
    await settle(scene, 0.5, 5)
    await client.expect(c.TableRead)
    await client.expect(c.TableRead)
    await client.close()


async def test_reads_beyond_the_limit_wait_and_are_made_again(scene: Scene) -> None:
    await scene.fill(LIMITED, 50)
    scene.limit(bytes_out=5 * len(EVENT))
    client = await scene.client()
    client.send(*(c.ReadSegment(LIMITED, number * len(EVENT), len(EVENT), "", number) for number in range(50)))
    bucket = scene.server.quotas.outward.of(LIMITED)
    assert bucket is not None
    await eventually(lambda: bucket.waiting >= 44)
    # Another segment can be read on the same connection.
    await scene.fill(FREE, 1)
    client.send(c.ReadSegment(FREE, 0, 100, "", 99))
    replies = [await client.expect(c.SegmentRead) for _ in range(7)]
    assert {reply.segment for reply in replies} == {LIMITED, FREE}
    await settle(scene, 0.1, 50)
    assert 16 <= bucket.waiting <= 22
    await settle(scene, 0.1, 50)
    rest = [await client.expect(c.SegmentRead) for _ in range(44)]
    offsets = [reply.offset for reply in (*replies, *rest) if reply.segment == LIMITED]
    assert sorted(offsets) == [number * len(EVENT) for number in range(50)]
    assert all(bytes(reply.data) == EVENT for reply in rest)
    await client.close()


async def test_a_read_that_waits_at_the_tail_owes_nothing(scene: Scene) -> None:
    scene.limit(bytes_out=5 * len(EVENT))
    clients = [await scene.client() for _ in range(20)]
    for client in clients:
        client.send(c.ReadSegment(LIMITED, 0, 1 << 20, "", 1))
    await eventually(lambda: scene.server.budgets.reads == 20)
    bucket = scene.server.quotas.outward.of(LIMITED)
    assert bucket is not None and bucket.is_open
    for client in clients:
        await client.close()


async def test_batches_of_reads_are_limited_by_scope(scene: Scene) -> None:
    await scene.fill(LIMITED, 10)
    await scene.fill(FREE, 10)
    scene.limit(bytes_out=2 * len(EVENT))
    client, other = await scene.client(), await scene.client()

    def batch(segment: str) -> c.RequestBatch:
        reads = (c.ReadSegment(segment, number * len(EVENT), len(EVENT), "", number) for number in range(4))
        return c.RequestBatch(7, tuple(map(codec.encode, reads)))

    client.send(batch(LIMITED), batch(LIMITED))
    await client.expect(c.RequestBatchAnswered)
    bucket = scene.server.quotas.outward.of(LIMITED)
    assert bucket is not None
    await eventually(lambda: bucket.waiting == 1)
    for _ in range(5):
        await other.call(batch(FREE), c.RequestBatchAnswered)
    await settle(scene, 0.2, 4)
    assert bucket.waiting == 1
    await settle(scene, 0.2, 4)
    answered = await client.expect(c.RequestBatchAnswered)
    assert [bytes(codec.decode_frame(one).data) for one in answered.replies] == [EVENT] * 4  # type: ignore[attr-defined]
    await client.close()
    await other.close()


async def test_reads_of_tables_that_wait_for_a_quota_hold_nobody_up(scene_with_a_small_budget: Scene) -> None:
    scene = scene_with_a_small_budget
    client, other = await scene.client(), await scene.client(FREE)
    await client.call(c.CreateTableSegment(1, TABLE), c.SegmentCreated)
    scene.limit(bytes_out=1)
    out = scene.server.quotas.outward.of(TABLE)
    assert out is not None
    keys = tuple(c.WireTableKey(b"%0100d" % number, -(2**63)) for number in range(10))
    client.send(*(c.ReadTable(number, TABLE, "", keys) for number in range(20)))
    await client.expect(c.TableRead)
    await eventually(lambda: out.waiting == 19)
    other.send(*appends(1, 3))
    assert [(await other.expect(c.DataAppended)).event_number for _ in range(3)] == [1, 2, 3]
    await client.close()
    await other.close()


async def test_reads_of_a_lost_connection_leave_the_line_and_pay_nothing(scene: Scene) -> None:
    await scene.fill(LIMITED, 1)
    client = await scene.client()
    await client.call(c.CreateTableSegment(1, TABLE), c.SegmentCreated)
    scene.limit(bytes_out=1)
    out = scene.server.quotas.outward.of(TABLE)
    assert out is not None
    batch = c.RequestBatch(7, (codec.encode(c.ReadSegment(LIMITED, 0, 1_000, "", 1)),))
    client.send(batch, batch, *(c.ReadTable(number, TABLE, "", (c.WireTableKey(b"k", 0),)) for number in range(20)))
    await client.expect(c.RequestBatchAnswered)
    await eventually(lambda: out.waiting == 21)
    await client.close()
    await eventually(lambda: out.waiting == 0)
    await settle(scene, 1, 62)
    assert out.is_open
    assert scene.server.budgets.in_flight.bytes == 0


async def test_reads_that_wait_for_a_quota_are_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_reads, "quota_reads_max", 3)
    await scene.fill(LIMITED, 10)
    scene.limit(bytes_out=100)
    client = await scene.client()
    client.send(*(c.ReadSegment(LIMITED, 0, len(EVENT), "", number) for number in range(6)))
    await client.expect(c.SegmentRead)
    refusals = [await client.expect(c.ErrorMessage) for _ in range(2)]
    assert all("quota of scope scope" in one.message and one.error_code == c.THROTTLED for one in refusals)
    await client.close()


async def test_a_client_that_names_a_stream_as_a_mark_stream_is_limited(scene_with_keys: Scene) -> None:
    """The finding: names decided what counts, so that a stream ``_MARKmine`` had no limits."""
    scene = scene_with_keys
    await scene.store.create_segment(MARK)
    scene.limit(bytes_in=10 * FRAME, bytes_out=10 * len(EVENT))
    client = await scene.client(MARK)
    client.send(*appends(1, 20))
    await eventually(lambda: scene.length(MARK) == 11 * len(EVENT))
    reader = await scene.client()
    reader.send(*(c.ReadSegment(MARK, number * len(EVENT), len(EVENT), "", number) for number in range(11)))
    reader.send(c.ReadSegment(MARK, 0, 10, "", 99))
    assert [(await reader.expect(c.SegmentRead)).request_id for _ in range(11)] == list(range(11))
    (bucket,) = [scene.server.quotas.outward.of(MARK)]
    assert bucket is not None
    await eventually(lambda: bucket.waiting == 1)
    assert scene.length(MARK) == 11 * len(EVENT)
    await client.close()
    await reader.close()


async def test_marks_that_controllers_write_and_read_are_not_limited(scene_with_keys: Scene) -> None:
    scene = scene_with_keys
    await scene.store.create_segment(MARK)
    scene.limit(bytes_in=FRAME, bytes_out=1)
    controller = await scene.client()
    token = tokens_of(scene.clock).internal()
    await controller.call(c.SetupAppend(1, WRITER, MARK, token), c.AppendSetup)
    controller.send(*appends(1, 20))
    assert [(await controller.expect(c.DataAppended)).event_number for _ in range(20)] == list(range(1, 21))
    for number in range(20):
        controller.send(c.ReadSegment(MARK, number * len(EVENT), len(EVENT), token, number))
        assert len((await controller.expect(c.SegmentRead)).data) == len(EVENT)
    await controller.close()
