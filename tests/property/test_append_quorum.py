"""Acknowledged entries are in the longest copy of every majority, whatever three servers do and answer."""

from __future__ import annotations

import itertools
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from pravega_common.errors import FailedError, Unavailable
from segment_service.plog.append_quorum import AppendQuorum
from segment_service.plog.redis_connection import ConnectionLost

SERVERS = range(3)
SIZE = 10


class Server:
    """A plog server and the connection to it: appends arrive in order, and so do answers, unless they are lost."""

    def __init__(self) -> None:
        self.entries: list[int] = []
        """Numbers of the appends that it took, gaps included."""
        self.requests: deque[int] = deque()
        self.answers: deque[tuple[int, BaseException | None]] = deque()

    @property
    def prefix(self) -> int:
        return next((at for at, number in enumerate(self.entries) if at != number), len(self.entries))

    def take(self, error: BaseException | None) -> None:
        if self.requests:
            number = self.requests.popleft()
            if error is None:
                self.entries.append(number)
            self.answers.append((number, error))

    def lose(self) -> list[tuple[int, BaseException | None]]:
        """The connection breaks; some requests still arrive."""
        lost = [(number, ConnectionLost("broke")) for number in [*dict(self.answers), *self.requests]]
        self.entries += itertools.islice(self.requests, len(self.requests) // 2)
        self.requests.clear()
        self.answers.clear()
        return list(lost)


steps = st.lists(
    st.tuples(
        st.sampled_from(["send", "take", "take", "answer", "answer", "refuse", "lose", "twice"]),
        st.sampled_from(SERVERS),
    ),
    max_size=60,
)


@settings(deadline=None, max_examples=400)
@given(steps)
def test_acknowledged_is_in_every_majority(course: list[tuple[str, int]]) -> None:
    quorum = AppendQuorum(3, SERVERS, lambda error: isinstance(error, FailedError))
    servers = [Server() for _ in SERVERS]
    heard: list[tuple[int, BaseException | None]] = []
    sent = 0
    for step, index in course:
        server = servers[index]
        if step == "send" and not quorum.is_lost:
            number = quorum.sent((sent + 1) * SIZE, 0.0, lambda error, at=sent: heard.append((at, error)))  # type: ignore[misc]
            sent += 1
            for member in quorum.members:
                servers[member].requests.append(number)
        elif step in ("take", "refuse"):
            server.take(Unavailable("full") if step == "refuse" else None)
        elif step in ("answer", "twice") and server.answers:
            answer = server.answers.popleft()
            for _ in range(2 if step == "twice" else 1):
                quorum.answered(index, *answer)
        elif step == "lose":
            for answer in server.lose():
                quorum.answered(index, *answer)
        check(quorum, servers, heard)


def check(quorum: AppendQuorum, servers: list[Server], heard: list[tuple[int, BaseException | None]]) -> None:
    assert [at for at, _ in heard] == list(range(len(heard))), "heard out of order, or twice"
    acked = [at for at, error in heard if error is None]
    assert acked == list(range(len(acked))), "acknowledged behind one that failed"
    for majority in itertools.combinations(servers, 2):
        assert max(server.prefix for server in majority) >= len(acked)
    for at, error in heard:
        if isinstance(error, FailedError):
            assert not any(at in server.entries for server in servers), "refused, and there"
    for index, server in enumerate(servers):
        assert quorum.prefix(index) <= server.prefix * SIZE
