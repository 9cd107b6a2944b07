"""Decides which appends of one plog are done, from the answers of several servers. Pure: no I/O, no clock.

Every server that is *in* is sent every append, and answers in order. An append is done once a majority of the servers
has it and everything before it; what a server had when it went *out* still counts. A server goes out with the first
append that it refused, or of which it lost track, and comes back only with another plog.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from pravega_common.errors import UnknownOutcome
from pravega_common.invariants import check
from segment_service.plog.redis_connection import ReplyError

behind_bytes_max: Final = 8 * 1024 * 1024
"""Bytes that a server may be behind the majority; twice what a log has in flight."""
behind_appends_max: Final = 1024
"""Appends that a server may be behind the majority; far below what a connection takes."""
behind_s_max: Final = 2.0
"""Age of an append that a majority has and a server has not."""

OnAppended = Callable[[BaseException | None], None]


class MajorityLost(UnknownOutcome):
    """Fewer servers than a majority still take appends of a plog; the append is on some of them, or on none."""

    def __init__(self, message: str, causes: Iterable[BaseException] = ()) -> None:
        self.causes = tuple(causes)
        super().__init__(message)


def majority_of(servers: int) -> int:
    """The number of servers of which any two sets share one."""
    return servers // 2 + 1


def means_full(error: BaseException) -> bool:
    """Whether an append failed because servers have no memory for it."""
    if isinstance(error, MajorityLost):
        return any(means_full(cause) for cause in error.causes)
    return isinstance(error, ReplyError) and error.code == "OOM"


class _Append:
    __slots__ = ("done", "end", "refusals", "sent_s", "sent_to")

    def __init__(self, end: int, sent_s: float, sent_to: int, done: OnAppended) -> None:
        self.end = end
        self.sent_s = sent_s
        self.sent_to = sent_to
        self.done = done
        self.refusals = 0


class AppendQuorum:
    """The appends of one plog. ``is_refusal`` says whether an error means that the server did not do the append."""

    def __init__(self, servers: int, members: Iterable[int], is_refusal: Callable[[BaseException], bool]) -> None:
        self.members = tuple(sorted(set(members)))
        """The servers that are in."""
        self.committed_end = 0
        """Bytes of the plog that a majority has."""
        self._servers = servers
        self._majority = majority_of(servers)
        self._is_refusal = is_refusal
        self._appends: deque[_Append] = deque()
        """Those that are not done, or that a server which is in has not answered; the first one has number
        ``_first``."""
        self._first = 0
        self._committed = 0
        self._answered = [0] * servers
        """Number of appends that each server has."""
        self._ends = [0] * servers
        self._causes: list[BaseException] = []

    @property
    def is_whole(self) -> bool:
        """Whether every server of the group is in."""
        return len(self.members) == self._servers

    @property
    def is_lost(self) -> bool:
        """Whether fewer than a majority are in; then nothing more may be sent."""
        return len(self.members) < self._majority

    def prefix(self, server: int) -> int:
        """Bytes of the plog that the server is known to have, without a gap."""
        return self._ends[server]

    def holders(self) -> set[int]:
        """The servers that are in and have all that is done."""
        return {member for member in self.members if self._ends[member] >= self.committed_end}

    def has_all(self, server: int) -> bool:
        """Whether the server has every append that was sent."""
        return self._answered[server] == self._first + len(self._appends)

    def sent(self, end: int, now_s: float, done: OnAppended) -> int:
        """Register the append that ends at ``end`` before it is sent to all ``members``; returns its number."""
        check(not self.is_lost, "an append without a majority of servers", members=self.members)
        self._appends.append(_Append(end, now_s, len(self.members), done))
        return self._first + len(self._appends) - 1

    def answered(self, server: int, number: int, error: BaseException | None) -> None:
        """Take a server's answer to an append. Any but the next one, and any after it went out, does not count."""
        if server not in self.members:
            return
        is_next = number == self._answered[server] < self._first + len(self._appends)
        if error is None and is_next:
            self._ends[server] = self._append(number).end
            self._answered[server] += 1
            self._commit()
            return
        if error is not None and is_next and self._is_refusal(error):
            self._append(number).refusals += 1
        self.drop(server, error or UnknownOutcome(f"an answer to append {number} came out of its turn"))

    def drop(self, server: int, cause: BaseException) -> None:
        """The server is out: it takes no further append of this plog."""
        if server not in self.members:
            return
        self.members = tuple(member for member in self.members if member != server)
        self._causes.append(cause)
        if self.is_lost:
            self._end()
        else:
            self._forget()

    def late(self, now_s: float) -> list[int]:
        """The servers that are further behind the majority than the limits allow; to be dropped."""
        behind = (member for member in self.members if self._answered[member] < self._committed)
        return [member for member in behind if self._is_late(member, now_s)]

    def _is_late(self, server: int, now_s: float) -> bool:
        answered = self._answered[server]
        return (
            self.committed_end - self._ends[server] > behind_bytes_max
            or self._committed - answered > behind_appends_max
            or now_s - self._append(answered).sent_s > behind_s_max
        )

    def _append(self, number: int) -> _Append:
        return self._appends[number - self._first]

    def _commit(self) -> None:
        reached = sorted(self._answered)[-self._majority]
        done = []
        while self._committed < reached:
            append = self._append(self._committed)
            self._committed += 1
            self.committed_end = append.end
            done.append(append.done)
        if self.is_lost:
            self._end()
        else:
            self._forget()
        for call in done:
            call(None)

    def _forget(self) -> None:
        """Drop what is done and answered by all."""
        least = min(self._committed, *(self._answered[member] for member in self.members))
        while self._first < least:
            self._appends.popleft()
            self._first += 1

    def _end(self) -> None:
        """End what is not done, once nobody's answer can tell any more whether the first of it was refused."""
        start = self._committed - self._first
        if start == len(self._appends):
            return
        first = self._appends[start]
        open_ = sum(self._answered[member] <= self._committed for member in self.members)
        if open_ and first.refusals + open_ == first.sent_to:
            return
        ended = [self._appends.pop() for _ in range(len(self._appends) - start)]
        text = f"only {len(self.members)} of {self._servers} servers take the plog's appends"
        unknown = MajorityLost(text, self._causes)
        for append in reversed(ended):
            append.done(self._causes[-1] if append.refusals == append.sent_to else unknown)
