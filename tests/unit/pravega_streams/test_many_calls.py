"""Asks about many segments in one call, of stores with and without batches: every segment has an outcome of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from pravega_common.errors import (
    InvalidArgument,
    PravegaError,
    SegmentExists,
    SegmentNotFound,
    Unavailable,
    UnknownOutcome,
)
from pravega_common.wire import commands as c
from pravega_common.wire.versions import BATCHES, SEGMENT_LENGTHS, batch_requests_max
from pravega_streams.connection.batches import SegmentCall
from pravega_streams.connection.endpoints import Endpoint, WithoutTokens
from pravega_streams.segment.raw_client import RawClient, calls_together_max
from segment_service.host.listener import WireServer
from tests.support.eventually import eventually
from tests.support.fakes.segment_store import InMemorySegmentStore
from tests.support.fakes.wire_store import FakeStore
from tests.support.servers import free_port
from tests.unit.pravega_streams.conftest import ScriptedResolver

COUNT = batch_requests_max + 200
NAMES = [f"scope/stream/{number}.#epoch.0" for number in range(COUNT)]


def create(segment: str) -> SegmentCall[c.SegmentCreated]:
    return SegmentCall(segment, lambda rid: c.CreateSegment(rid, segment, 0, 0), c.SegmentCreated)


def info(segment: str) -> SegmentCall[c.StreamSegmentInfo]:
    return SegmentCall(segment, lambda rid: c.GetStreamSegmentInfo(rid, segment), c.StreamSegmentInfo)


def kinds(outcomes: list[c.SegmentCreated | PravegaError]) -> list[type[object]]:
    return [type(outcome) for outcome in outcomes]


class Stores(WithoutTokens):
    """Two stores; a segment belongs to the one that its number says."""

    def __init__(self, *stores: FakeStore) -> None:
        self._stores = stores
        self.forgotten = 0

    async def resolve(self, segment: str) -> Endpoint:
        return self._stores[NAMES.index(segment) % len(self._stores)].endpoint

    def forget(self, segment: str) -> None:
        self.forgotten += 1


class Creating:
    """Creates segments; ``faults`` come first, once each."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.faults: dict[str, str] = {}

    def __call__(self, command: c.Command) -> str | c.Command | None:
        if not isinstance(command, c.CreateSegment):
            return None
        fault = self.faults.pop(command.segment, None)
        if fault == "wrong host":
            return c.WrongHost(command.request_id, command.segment, "", "")
        if fault == "no reply":
            return c.NoReply(command.request_id, "the container stopped")
        if fault == "close":
            return fault
        if command.segment in self.created:
            return c.SegmentAlreadyExists(command.request_id, command.segment)
        self.created.append(command.segment)
        return fault or c.SegmentCreated(command.request_id, command.segment)


@pytest.fixture(params=[0, BATCHES], ids=["plain", "batches"])
def extensions(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def stores(extensions: int) -> Iterator[list[FakeStore]]:
    made = [FakeStore(), FakeStore()]
    for store in made:
        store.extensions = extensions
        store.before = Creating()
    yield made
    for store in made:
        store.close()


async def test_every_store_gets_its_own_in_batches(stores: list[FakeStore], extensions: int) -> None:
    resolver = Stores(*stores)
    client = RawClient(resolver)
    outcomes = await client.call_many([create(name) for name in NAMES], idempotent=False)
    assert [outcome.segment for outcome in outcomes if isinstance(outcome, c.SegmentCreated)] == NAMES
    full, rest = divmod(COUNT // 2, calls_together_max)
    sizes = [*[calls_together_max] * full, rest]
    assert [store.batch_sizes for store in stores] == ([sizes] * 2 if extensions else [[], []])
    again = await client.call_many([create(NAMES[0]), create(NAMES[3])], idempotent=False)
    assert kinds(again) == [SegmentExists, SegmentExists]
    assert await client.call_many(list[SegmentCall[c.SegmentCreated]](), idempotent=False) == []
    assert resolver.forgotten == 0
    client.close()


@pytest.mark.parametrize("fault", ["wrong host", "no reply", "close", "close after"])
async def test_one_that_failed_is_asked_again_by_itself(stores: list[FakeStore], fault: str) -> None:
    """What became of a request whose connection was lost is unknown; repeated, each finds its own state."""
    names = NAMES[:100]
    creating = stores[1].before
    assert isinstance(creating, Creating)
    creating.faults[NAMES[41]] = fault
    client = RawClient(Stores(*stores), call_time_s=5 if fault == "no reply" else 30)
    outcomes = await client.call_many([create(name) for name in names], idempotent=True)
    assert set(kinds(outcomes)) <= {c.SegmentCreated, SegmentExists}
    assert sorted(creating.created, key=NAMES.index) == names[1::2], "each once, none left out"
    if fault in ("wrong host", "no reply"):
        assert set(kinds(outcomes)) == {c.SegmentCreated}
        assert len(creating.created) == 50
    client.close()


@pytest.mark.parametrize("fault", ["no reply", "close", "close after"])
async def test_an_unknown_outcome_is_given_where_it_may_not_be_repeated(stores: list[FakeStore], fault: str) -> None:
    creating = stores[1].before
    assert isinstance(creating, Creating)
    creating.faults[NAMES[41]] = fault
    client = RawClient(Stores(*stores), call_time_s=5)
    outcomes = await client.call_many([create(name) for name in NAMES[:100]], idempotent=False)
    unknown = {number for number, kind in enumerate(kinds(outcomes)) if kind is UnknownOutcome}
    assert 41 in unknown
    assert all(number % 2 for number in unknown), "the other store is not concerned"
    created = set(creating.created)
    for number in range(1, 100, 2):
        assert number in unknown or NAMES[number] in created, "what is answered as created is"
    client.close()


class Moved(WithoutTokens):
    """Segments whose owner changed; knows the first store for each until that answer is forgotten."""

    def __init__(self, before: Endpoint, after: Endpoint) -> None:
        self._endpoints = (before, after)
        self._forgotten: set[str] = set()

    async def resolve(self, segment: str) -> Endpoint:
        return self._endpoints[segment in self._forgotten]

    def forget(self, segment: str) -> None:
        self._forgotten.add(segment)


async def test_the_owner_of_every_refused_segment_is_looked_for_again(stores: list[FakeStore]) -> None:
    """A resolver may remember each segment by itself."""
    asked: list[str] = []

    def refuse(command: c.Command) -> c.Command | None:
        if not isinstance(command, c.CreateSegment):
            return None
        asked.append(command.segment)
        return c.WrongHost(command.request_id, command.segment, "", "")

    stores[0].before = refuse
    client = RawClient(Moved(*(store.endpoint for store in stores)), call_time_s=5)
    outcomes = await client.call_many([create(name) for name in NAMES[:10]], idempotent=False)
    assert kinds(outcomes) == [c.SegmentCreated] * 10
    assert sorted(asked, key=NAMES.index) == NAMES[:10], "each asked once at the store that it left"
    client.close()


async def test_a_store_that_is_away_keeps_no_other_back(stores: list[FakeStore]) -> None:
    """Those of the store that answers are done, and the others certainly not."""
    gone = FakeStore()
    gone.close()
    client = RawClient(Stores(stores[0], gone), call_time_s=0.3)
    outcomes = await client.call_many([create(name) for name in NAMES[:10]], idempotent=True)
    assert kinds(outcomes) == [c.SegmentCreated, Unavailable] * 5
    client.close()


class WithoutAnswer(Stores):
    """Never gives a token."""

    async def token(self, segment: str) -> str:
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never


@pytest.mark.parametrize("extensions", [BATCHES], indirect=True)
async def test_nothing_is_sent_while_a_token_does_not_come(stores: list[FakeStore]) -> None:
    client = RawClient(WithoutAnswer(*stores), call_time_s=0.2)
    outcomes = await client.call_many([create(name) for name in NAMES], idempotent=True)
    assert set(kinds(outcomes)) == {Unavailable}
    assert [store.batch_sizes for store in stores] == [[], []]
    client.close()


async def test_a_real_server_answers_a_batch(server: WireServer, endpoint: Endpoint) -> None:
    client = RawClient(ScriptedResolver(Endpoint("127.0.0.1", free_port()), None, endpoint))
    outcomes = await client.call_many([create(name) for name in NAMES], idempotent=True)
    assert set(kinds(outcomes)) == {c.SegmentCreated}
    found = await client.call_many([info(NAMES[7]), info("scope/other/0.#epoch.0")], idempotent=True)
    assert [type(outcome) for outcome in found] == [c.StreamSegmentInfo, SegmentNotFound]
    client.close()


async def test_a_batch_is_given_up_with_the_connection(
    endpoint: Endpoint, server: WireServer, segments: InMemorySegmentStore
) -> None:
    """In the middle: all that was sent and not answered is unknown, and the rest is not sent any more."""
    segments.hold()
    client = RawClient(ScriptedResolver(endpoint), call_time_s=5)
    waiting = asyncio.ensure_future(client.call_many([create(name) for name in NAMES], idempotent=False))
    await eventually(lambda: segments.queued_operations > 0, "the first requests")
    client.close()
    found = kinds(await waiting)
    assert set(found) == {UnknownOutcome, InvalidArgument} and found[0] is UnknownOutcome
    assert found.count(UnknownOutcome) >= segments.queued_operations
    segments.release()


def length_of(segment: str) -> int:
    return c.NO_SEGMENT if segment == NAMES[8] else 10 * NAMES.index(segment)


def told(command: c.Command) -> c.Command | None:
    if isinstance(command, c.GetSegmentLengths):
        return c.SegmentLengths(command.request_id, tuple(map(length_of, command.segments)))
    return None


def refused(command: c.Command) -> c.Command | None:
    return c.WrongHost(command.request_id, "", "", "") if isinstance(command, c.GetSegmentLengths) else None


def silent(command: c.Command) -> str:
    return "close after"


def too_few(command: c.Command) -> c.Command | None:
    return c.SegmentLengths(command.request_id, (1,)) if isinstance(command, c.GetSegmentLengths) else None


async def test_lengths_of_many_come_from_all_stores(stores: list[FakeStore]) -> None:
    for store in stores:
        store.extensions |= SEGMENT_LENGTHS
        store.before = told
    client = RawClient(Stores(*stores))
    assert await client.lengths_of([*NAMES, *NAMES]) == {name: length_of(name) for name in NAMES}
    assert await client.lengths_of([]) == {}
    client.close()


@pytest.mark.parametrize(
    "answer", [refused, silent, too_few, None], ids=["wrong host", "no reply", "another number", "plain"]
)
async def test_lengths_that_a_store_does_not_tell_are_left_out(
    stores: list[FakeStore], answer: Callable[[c.Command], str | c.Command | None] | None
) -> None:
    stores[0].extensions |= SEGMENT_LENGTHS
    stores[0].before = told
    if answer is not None:
        stores[1].extensions |= SEGMENT_LENGTHS
        stores[1].before = answer
    client = RawClient(Stores(*stores), call_time_s=5)
    assert await client.lengths_of(NAMES) == {name: length_of(name) for name in NAMES[::2]}
    client.close()
