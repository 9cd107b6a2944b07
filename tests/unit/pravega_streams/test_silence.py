"""Stores that are silent: waited for while they are the owners, left once another store is."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from pravega_common.errors import Unavailable, UnknownOutcome
from pravega_common.wire import commands as c
from pravega_common.wire.codec import encode
from pravega_streams.connection import blocking, owned_answer, silence
from pravega_streams.connection.blocking import WireSocket
from pravega_streams.connection.endpoints import Endpoint, WithoutTokens

FIRST, SECOND = Endpoint("first", 1), Endpoint("second", 2)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silence, "silence_min_s", 0.01)
    monkeypatch.setattr(silence, "silence_max_s", 0.04)
    monkeypatch.setattr(blocking, "silence_min_s", 0.01)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """Takes connections and says nothing, as a frozen store."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def endpoint_of(listener: socket.socket) -> Endpoint:
    return Endpoint("127.0.0.1", listener.getsockname()[1])


class Owners:
    """A resolver that names one owner after the other, the last one for good; ``None``: nobody knows."""

    def __init__(self, *owners: Endpoint | None) -> None:
        self.owners = list(owners)
        self.asked = 0
        self.forgotten = 0

    def forget(self, segment: str) -> None:
        self.forgotten += 1

    def next(self) -> Endpoint:
        self.asked += 1
        owner = self.owners.pop(0) if len(self.owners) > 1 else self.owners[0]
        if owner is None:
            raise Unavailable("nobody knows")
        return owner


class BlockingOwners(Owners):
    def resolve(self, segment: str) -> Endpoint:
        return self.next()

    def token(self, segment: str) -> str:
        return ""


class AsyncOwners(Owners, WithoutTokens):
    async def resolve(self, segment: str) -> Endpoint:
        return self.next()


def test_pauses_double_up_to_a_limit() -> None:
    pauses = silence.silences_s()
    assert [next(pauses) for _ in range(5)] == [0.01, 0.02, 0.04, 0.04, 0.04]


def test_an_owner_is_unknown_while_the_controller_does_not_answer() -> None:
    owners = BlockingOwners(None, FIRST, SECOND)
    assert [silence.has_moved(owners, "a/b/0", FIRST) for _ in range(3)] == [False, False, True]
    assert owners.forgotten == 3, "the last answer does not count"


def test_a_silent_store_is_left_when_it_is_not_the_owner_any_more(listener: socket.socket) -> None:
    connection = WireSocket(endpoint_of(listener), reply_time_s=60.0)
    answers = iter([False, False, True])
    with pytest.raises(UnknownOutcome, match="another store has the segment"):
        connection.receive(lambda: next(answers))
    assert next(answers, None) is None
    assert not connection.is_open


def test_a_store_that_takes_no_bytes_is_left_too(listener: socket.socket) -> None:
    connection = WireSocket(endpoint_of(listener), reply_time_s=60.0)
    with pytest.raises(UnknownOutcome, match="another store has the segment"):
        connection.send_parts([bytes(1 << 26)], lambda: True)
    assert not connection.is_open


def test_a_silent_owner_is_waited_for(listener: socket.socket) -> None:
    """As long as a reply may take, and the reply is taken that comes late."""
    connection = WireSocket(endpoint_of(listener), reply_time_s=60.0)
    asked = threading.Event()

    def is_owner() -> bool:
        asked.set()
        return False

    def answer_late() -> None:
        peer, _ = listener.accept()
        asked.wait()
        peer.sendall(encode(c.KeepAlive()))
        peer.close()

    thread = threading.Thread(target=answer_late)
    thread.start()
    assert connection.receive(is_owner) == c.KeepAlive()
    thread.join()
    connection.close()


def test_the_time_of_a_reply_is_kept(listener: socket.socket) -> None:
    connection = WireSocket(endpoint_of(listener), reply_time_s=0.1)
    with pytest.raises(UnknownOutcome, match="timed out"):
        connection.receive(lambda: False)


def test_what_comes_in_pieces_is_waited_for_piece_by_piece(listener: socket.socket) -> None:
    """A wait that ends in silence keeps what has come, and the connection."""
    connection = WireSocket(endpoint_of(listener))
    peer, _ = listener.accept()
    assert connection.receive_within(0.01) is None
    message = c.ErrorMessage(1, "a/b/0", "m" * 100, c.THROTTLED)
    frames = encode(c.Hello(17, 5)) + encode(message)
    for at in range(0, len(frames) - 1, 20):
        peer.sendall(frames[at : min(at + 20, len(frames) - 1)])
        assert connection.receive_within(0.01) is None
    peer.sendall(frames[-1:] + encode(c.KeepAlive()))
    assert connection.receive_within(1.0) == message
    peer.close()
    assert connection.is_open
    assert connection.receive_within(1.0) == c.KeepAlive()
    with pytest.raises(UnknownOutcome):
        connection.receive_within(1.0)
    assert not connection.is_open


async def test_an_answer_is_not_waited_for_when_another_store_owns_the_segment() -> None:
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    owners = AsyncOwners(FIRST, None, SECOND)
    with pytest.raises(UnknownOutcome, match="another store owns the segment"):
        await owned_answer.answer_of_owner(answer, owners, "a/b/0", FIRST)
    assert owners.asked == 3
    assert answer.cancelled()


async def test_an_answer_that_comes_late_counts() -> None:
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    class Answering(AsyncOwners):
        async def resolve(self, segment: str) -> Endpoint:
            answer.set_result("late")
            return SECOND

    assert await owned_answer.answer_of_owner(answer, Answering(SECOND), "a/b/0", FIRST) == "late"
