"""Asks a store in memory about many segments at once, over a real socket."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import pytest

from pravega_common.errors import ContainerNotHosted, DataCorruption, InvalidArgument, Unavailable, UnknownOutcome
from pravega_common.model.segments import SegmentInfo
from pravega_common.wire import codec
from pravega_common.wire import commands as c
from pravega_common.wire.codec import decode_frame
from pravega_common.wire.versions import BATCHES
from pravega_streams.connection import batches, silence
from pravega_streams.connection.blocking import WireSocket
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.connection.idle_ends import idle_time_max_s
from pravega_streams.controller.client import ControllerClient
from pravega_streams.controller.stream_tokens import StreamTokens
from pravega_streams.segment import segment_client
from pravega_streams.segment.segment_client import EndpointCache, SegmentClient
from tests.support.fakes.wire_store import FakeStore
from tests.support.servers import free_port

COUNT = 600
NAMES = [f"s/t/{number}.#epoch.0" for number in range(COUNT)]


class Infos:
    """Answers for the even segments; ``faults`` come first, one a question."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.faults: dict[str, str | c.Command] = {}

    def __call__(self, command: c.Command) -> str | c.Command | None:
        if not isinstance(command, c.GetStreamSegmentInfo):
            return None
        name, rid = command.segment, command.request_id
        self.asked[name] += 1
        fault = self.faults.pop(name, None)
        if fault == "wrong host":
            return c.WrongHost(rid, name, "", "")
        if fault is not None:
            return fault
        number = NAMES.index(name)
        if number % 2:
            return c.NoSuchSegment(rid, name, "", -1)
        return c.StreamSegmentInfo(rid, name, True, False, False, 0, number * 10, number)


class Controller:
    """Knows that the segments below ``split`` belong to the first store, and the others to the last."""

    tokens = StreamTokens(lambda scope, stream: "", needed=False)

    def __init__(self, *endpoints: Endpoint, split: int = COUNT) -> None:
        self._endpoints = endpoints
        self._split = split
        self.asked = 0

    def endpoint(self, scope: str, stream: str, segment_id: int) -> Endpoint:
        self.asked += 1
        return self._endpoints[0 if segment_id < self._split else -1]

    def move(self, *endpoints: Endpoint) -> None:
        """The segments belong to these stores now."""
        self._endpoints = endpoints


@pytest.fixture(params=[0, BATCHES], ids=["plain", "batches"])
def store(request: pytest.FixtureRequest) -> Iterator[FakeStore]:
    made = FakeStore()
    made.extensions = request.param
    yield made
    made.close()


@pytest.fixture
def client(store: FakeStore) -> Iterator[SegmentClient]:
    made = SegmentClient(cast("ControllerClient", Controller(store.endpoint)), call_time_s=5)
    yield made
    made.close()


def extents(found: dict[str, SegmentInfo]) -> dict[str, tuple[int, int]]:
    return {name: (info.start_offset, info.length) for name, info in found.items()}


EVEN = {name: (number, number * 10) for number, name in enumerate(NAMES) if number % 2 == 0}


@pytest.mark.parametrize("fault", ["", "close", "close after", "wrong host"])
def test_many_segments_are_asked_together(
    store: FakeStore, client: SegmentClient, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the connection is lost in the middle, or a segment has moved meanwhile."""
    monkeypatch.setattr(segment_client, "infos_per_round_max", 100)
    monkeypatch.setattr(batches, "batch_requests_max", 100)
    answers = store.before = Infos()
    if fault:
        answers.faults[NAMES[250]] = fault
    assert extents(client.infos(NAMES)) == EVEN
    assert store.connection_count == (1 if fault in ("", "wrong host") else 2)
    # The client goes on, and finds no answer of another question.
    assert client.info(NAMES[10]).length == 100
    assert client.infos([]) == {}


def test_a_store_that_knows_batches_gets_one_request(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "silence_min_s", 60.0)  # A slow machine is no reason to ask for the owner again.
    answers = store.before = Infos()
    controller = Controller(store.endpoint)
    client = SegmentClient(cast("ControllerClient", controller))
    assert extents(client.infos([*NAMES, *NAMES])) == EVEN
    assert set(answers.asked.values()) == {1}
    if store.extensions:
        assert (store.batch_sizes, controller.asked) == ([COUNT], 1)
        # What answered is known: nothing is asked of the controller again.
        client.info(NAMES[2])
        assert controller.asked == 1
    else:
        assert (store.batch_sizes, controller.asked) == ([], COUNT)
    client.close()


def test_the_same_question_gets_the_answer_of_its_time(store: FakeStore, client: SegmentClient) -> None:
    """Questions are kept, answers are not."""
    store.before = Infos()
    assert extents(client.infos(NAMES)) == EVEN

    def grown(command: c.Command) -> str | c.Command | None:
        reply = Infos()(command)
        return reply.with_fields(write_offset=7_000) if isinstance(reply, c.StreamSegmentInfo) else reply

    store.before = grown
    assert {info.length for info in client.infos(NAMES).values()} == {7_000}
    assert len(client.infos(NAMES[:3])) == 2


def test_answers_that_did_not_change_are_not_decoded_again(
    store: FakeStore, client: SegmentClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store is asked each time; a reply with a refusal in it is always decoded."""
    decoded = 0
    decode = decode_frame

    def counting(frame: c.ByteView) -> c.Command:
        nonlocal decoded
        decoded += 1
        return decode(frame)

    monkeypatch.setattr(batches, "decode_frame", counting)
    answers = store.before = Infos()
    even, two = NAMES[::2], NAMES[:2]
    first = client.infos(even)
    assert (client.infos(even), set(answers.asked.values())) == (first, {2})
    assert decoded == (len(even) if store.extensions else 0)

    def grown(command: c.Command) -> str | c.Command | None:
        reply = answers(command)
        is_it = isinstance(reply, c.StreamSegmentInfo) and reply.segment == even[3]
        return reply.with_fields(write_offset=9_999) if is_it and isinstance(reply, c.StreamSegmentInfo) else reply

    store.before = grown
    assert client.infos(even)[even[3]].length == 9_999
    store.before = answers
    assert client.infos(even) == first
    assert decoded == (3 * len(even) if store.extensions else 0)
    assert [list(client.infos(two)) for _ in range(2)] == [NAMES[:1]] * 2
    assert decoded == (3 * len(even) + 4 if store.extensions else 0)


def test_a_batch_is_bounded_in_bytes(store: FakeStore, client: SegmentClient, monkeypatch: pytest.MonkeyPatch) -> None:
    store.before = Infos()
    monkeypatch.setattr(batches, "batch_bytes_max", 1_000)
    assert extents(client.infos(NAMES)) == EVEN
    if store.extensions:
        assert sum(store.batch_sizes) == COUNT
        assert max(store.batch_sizes) <= 1_000 // len(codec.encode(c.GetStreamSegmentInfo(1, NAMES[0])))


@pytest.mark.parametrize("split", [1, 300, COUNT - 1])
def test_every_store_is_asked_about_its_own(store: FakeStore, split: int) -> None:
    """The second store refuses what the first owns, and the other way round."""
    other = FakeStore()
    other.extensions = store.extensions
    store.before, other.before = _owner(NAMES[:split]), _owner(NAMES[split:])
    controller = Controller(store.endpoint, other.endpoint, split=split)
    client = SegmentClient(cast("ControllerClient", controller))
    assert extents(client.infos(NAMES)) == EVEN
    if store.extensions:
        assert controller.asked == 2
        assert store.batch_sizes == [COUNT]
        assert other.batch_sizes == [COUNT - split]
    client.close()
    other.close()


@pytest.mark.parametrize("answer", ["wrong host for ever", "no reply"])
def test_what_nobody_answers_is_an_error(store: FakeStore, answer: str) -> None:
    """And never a segment that is left out, as if it did not exist."""
    infos = Infos()

    def before(command: c.Command) -> str | c.Command | None:
        if not isinstance(command, c.GetStreamSegmentInfo) or command.segment != NAMES[10]:
            return infos(command)
        if answer == "no reply":
            return c.NoReply(command.request_id, "the container stopped")
        return c.WrongHost(command.request_id, command.segment, "", "")

    store.before = before
    client = SegmentClient(cast("ControllerClient", Controller(store.endpoint)), call_time_s=0.05)
    with pytest.raises(UnknownOutcome if answer == "no reply" else ContainerNotHosted):
        client.infos(NAMES)
    assert set(infos.asked.values()) == {1}, "what was answered is not asked again"
    client.close()


def test_damage_is_reported_at_once(store: FakeStore, client: SegmentClient) -> None:
    answers = store.before = Infos()
    answers.faults[NAMES[4]] = c.ErrorMessage(0, NAMES[4], "its chunk is missing", c.DATA_CORRUPTION)

    def before(command: c.Command) -> str | c.Command | None:
        reply = answers(command)
        rid = getattr(command, "request_id", 0)
        return reply.with_fields(request_id=rid) if isinstance(reply, c.ErrorMessage) else reply

    store.before = before
    with pytest.raises(DataCorruption):
        client.infos(NAMES)


def test_a_store_that_is_away_makes_no_other_address_forgotten() -> None:
    here, away, new = Endpoint("here", 1), Endpoint("away", 2), Endpoint("new", 3)
    controller = Controller(here, away, split=300)
    endpoints = EndpointCache(cast("ControllerClient", controller))
    assert [endpoints.resolve(name) for name in NAMES] == [here] * 300 + [away] * 300

    # Containers move together: those of a store that is gone are looked for again at the first sign of it.
    controller.move(here, new)
    endpoints.forget(NAMES[450])
    assert [endpoints.resolve(name) for name in NAMES] == [here] * 300 + [new] * 300
    assert controller.asked == COUNT + 300

    # A call that failed before knows nothing of what was found since, and one about an unknown segment of nothing.
    endpoints.forget("s/other/0.#epoch.0")
    assert [endpoints.resolve(name) for name in NAMES] == [here] * 300 + [new] * 300
    assert controller.asked == COUNT + 300


@pytest.mark.parametrize("is_away", [False, True])
def test_segments_that_moved_from_any_store_are_found(store: FakeStore, is_away: bool) -> None:
    """Not only those of the store of the first segment, which does not fail."""
    old, new = FakeStore(), FakeStore()
    old.extensions = new.extensions = store.extensions
    store.before, old.before, new.before = _owner(NAMES[:300]), _owner(NAMES[300:]), _owner(NAMES[300:])
    controller = Controller(store.endpoint, old.endpoint, split=300)
    client = SegmentClient(cast("ControllerClient", controller), call_time_s=5)
    assert extents(client.infos(NAMES)) == EVEN
    controller.move(store.endpoint, new.endpoint)
    controller.asked = 0
    if is_away:
        old.close()
    else:
        old.before = _owner([])
    assert extents(client.infos(NAMES)) == EVEN
    assert client.endpoints.known(NAMES[0]) == store.endpoint
    assert client.endpoints.known(NAMES[-2]) == new.endpoint
    assert controller.asked <= 300
    client.close()
    new.close()
    if not is_away:
        old.close()


def _owner(owned: Sequence[str]) -> Callable[[c.Command], str | c.Command | None]:
    """As ``FakeStore.before``, of a store that owns these segments only."""
    infos = Infos()

    def before(command: c.Command) -> str | c.Command | None:
        if isinstance(command, c.GetStreamSegmentInfo) and command.segment not in owned:
            return c.WrongHost(command.request_id, command.segment, "", "")
        return infos(command)

    return before


def test_a_closed_client_of_segments_ends_its_calls_at_once(store: FakeStore) -> None:
    """The one that waits for its store, the one that waits for its turn, and those that come later."""
    came, asked = threading.Event(), list[c.Command]()

    def silent(command: c.Command) -> str:
        asked.append(command)
        came.set()
        return "silent"

    store.before = silent
    client = SegmentClient(cast("ControllerClient", Controller(store.endpoint)))
    with ThreadPoolExecutor(2) as threads:
        running = threads.submit(client.info, NAMES[0])
        assert came.wait(10)
        waiting = threads.submit(client.seal, NAMES[2])
        client.close()
        with pytest.raises(UnknownOutcome, match="was closed before an answer came"):
            running.result(timeout=2)
        with pytest.raises(InvalidArgument, match="is closed; make another one"):
            waiting.result(timeout=2)
    with pytest.raises(InvalidArgument, match="is closed; make another one"):
        client.infos(NAMES)
    assert (len(asked), store.connection_count) == (1, 1)


def test_what_an_unanswered_attempt_did_stays_unknown_when_later_ones_are_not_done(store: FakeStore) -> None:
    """As of a put of a key-value table without a condition, whose store goes away behind it."""
    store.before = lambda command: "close" if isinstance(command, c.TruncateSegment) else None
    controller = Controller(store.endpoint)
    client = SegmentClient(cast("ControllerClient", controller), call_time_s=0.3)
    real = client.endpoints.forget

    def moved(segment: str) -> None:
        real(segment)
        controller.move(Endpoint("127.0.0.1", free_port()))

    client.endpoints.forget = moved  # type: ignore[method-assign]
    with pytest.raises(UnknownOutcome, match=r"no connection .*; an earlier attempt was sent and not answered"):
        client.truncate(NAMES[0], 5)
    with pytest.raises(Unavailable):
        client.truncate(NAMES[0], 5)
    client.close()


def test_a_forked_process_that_closes_its_copy_leaves_the_connection_alone(
    store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.before = Infos()
    client = SegmentClient(cast("ControllerClient", Controller(store.endpoint)))
    client.info(NAMES[0])
    [connection] = client._sockets.values()
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: 1)
        connection.hang_up()
    assert client.info(NAMES[0]).name == NAMES[0]
    assert store.connection_count == 1
    client.close()


def test_connections_to_stores_that_are_gone_end_with_a_later_call() -> None:
    """Not the one that is needed, however long nothing used it."""
    now_s = 0.0
    stores = [FakeStore() for _ in range(3)]
    controller = Controller(stores[0].endpoint)
    client = SegmentClient(cast("ControllerClient", controller), monotonic_s=lambda: now_s)
    opened: list[WireSocket] = []
    for store in stores:
        store.before = Infos()
        controller.move(store.endpoint)
        client.endpoints.forget(NAMES[0])
        assert client.info(NAMES[0]).name == NAMES[0]
        opened.append(client._sockets[store.endpoint])
    now_s = idle_time_max_s
    client.info(NAMES[0])
    assert [one.is_open for one in opened] == [True] * 3
    now_s += idle_time_max_s + 1
    client.info(NAMES[0])
    assert [one.is_open for one in opened] == [False, False, True]
    assert list(client._sockets.values()) == opened[2:]
    assert [store.connection_count for store in stores] == [1, 1, 1]
    client.close()
    for store in stores:
        store.close()
