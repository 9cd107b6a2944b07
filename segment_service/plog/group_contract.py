"""Defines the contract of a persistence group: the plog operations on the servers that hold the same plogs.

A group has n servers, 1 or 3; a majority is n // 2 + 1 of them.

**Every copy is a prefix.** One writer appends to a plog under one fence token, and a server that missed, refused or
lost track of one append takes no further one of that plog: it is *out* until the plog is sealed and repaired. So what
a server holds without a gap is a prefix of one byte sequence (entries behind a gap may follow, which were on their way
when it went out), and the longest such prefix in any majority contains everything acknowledged.

**Errors.** Fewer than a majority reachable is ``Unavailable``, or unknown for what was sent. A server that shows
another identity than on record is *lost, not empty*: it counts for no majority. What is missing is ``DataCorruption``
only once no server that may still have it is out of reach.

**The end of a plog.** After a fence, what a majority does not have was never acknowledged: that holds as long as none
of these servers lost its last writes in a restart, which it would not notice. So the end counts only if a majority of
servers ran through since the plog was made, or if every server was read or is known to be lost (one loss is what a
group of three survives), or if the caller knows what was acknowledged.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pravega_common.errors import DataCorruption, PravegaError
from pravega_common.invariants import unreachable
from segment_service.contracts.buffer import Buffer
from segment_service.plog.append_quorum import AppendQuorum, OnAppended
from segment_service.plog.append_turns import AppendTurns
from segment_service.plog.plog import PlogHeader, PlogId, PlogStatus
from segment_service.plog.plog_client import ServerPlog, StoredEntry


@dataclass(slots=True, eq=False)
class OpenPlog:
    """A plog that its owner appends to."""

    plog_id: PlogId
    copies: Mapping[int, ServerPlog]
    """The copy on each server that made one, by the server's place in the group."""
    quorum: AppendQuorum | None = None
    """What became of the appends, and which servers are in; ``None`` in a group of one."""
    turns: AppendTurns = field(default_factory=AppendTurns)
    """The order of the appends, by their offsets."""
    data_numbers: dict[int, int] = field(default_factory=dict)
    """The data connection of each server through which the plog's appends go."""

    @property
    def members(self) -> int:
        """The number of servers that are in."""
        return len(self.copies) if self.quorum is None else len(self.quorum.members)

    @property
    def required_quorum(self) -> AppendQuorum:
        return self.quorum or unreachable("a plog of a group of one", plog_id=str(self.plog_id))

    @property
    def is_whole(self) -> bool:
        """Whether every server of the group is in."""
        return self.quorum is None or self.quorum.is_whole


class FencedPlog(Protocol):
    """A plog that only the caller may change, as the servers that were reached have it."""

    @property
    def sealed(self) -> int | None:
        """The length at which it was sealed for good."""
        ...

    def read(self, start: int, end: int) -> AsyncIterator[StoredEntry]:
        """The entries with ``start`` < entry end ≤ ``end`` in order, gaps included, each from a copy that is intact."""
        ...

    def explained(self, error: DataCorruption) -> PravegaError:
        """The error to raise for damage, or for a gap, in what was read: another one while some server that was not
        reached may have what is missing."""
        ...

    async def settle(self, end: int, *, is_acked: bool = False) -> None:
        """Return once a majority holds every byte below ``end``, where the entries read end.

        ``is_acked``: the caller knows that nothing beyond ``end`` was acknowledged. Else ``Unavailable`` if that is not
        certain.
        """
        ...

    async def seal(self, offset: int) -> int:
        """Seal at ``offset``, up to which the plog was settled; returns where it is sealed."""
        ...


class PersistenceGroupClient(Protocol):
    """The plog operations on one group, for one log. Not shared: appends keep the order of their calls."""

    @property
    def name(self) -> str: ...

    def reset(self) -> None:
        """Drop all connections; unanswered appends become unknown."""
        ...

    async def move_server(self, index: int, address: str) -> None:
        """Speak to another address in the place of one server. That server is out of every open plog, and counts for
        no majority until it shows the identity on record."""
        ...

    async def open_for_appends(self) -> None:
        """Connect to a majority."""
        ...

    async def create(self, header: PlogHeader) -> OpenPlog:
        """Make an empty plog under a new id, on a majority; the servers that missed it are out."""
        ...

    def append(self, plog: OpenPlog, start: int, frame: Sequence[Buffer], size: int, done: OnAppended) -> None:
        """Append in call order, without waiting; ``done`` is called on the loop, also in call order.

        One that begins behind the end of the plog is held until those before it were sent, within the bounds of
        ``AppendTurns``; one that begins before the end is refused with that end. Neither counts as lost track of.

        It hears ``None`` as soon as a majority has the entry and everything before it. Once fewer than a majority are
        in, every unanswered append ends with an error: a refusal if every server that it was sent to refused it, else
        unknown. The buffers must never change while somebody holds a view on them: a server that is slower than the
        majority may be sent them after ``done``.
        """
        ...

    def append_urgent(self, plog: OpenPlog, start: int, frame: Sequence[Buffer], size: int, done: OnAppended) -> None:
        """As ``append``, also on servers that are full; much slower."""
        ...

    async def append_small(self, plog: OpenPlog, start: int, frame: bytes) -> None:
        """Append a metadata entry, also on servers that are full; one at a time. ``Unavailable`` if no server was
        reached, ``AppendRefused`` if none took it."""
        ...

    async def has_room(self) -> bool:
        """Whether appends find memory, on a majority."""
        ...

    def is_current(self, plog: OpenPlog) -> bool:
        """Whether no server that has a copy was restarted since, as far as is known; a group of one does not mind."""
        ...

    async def may_rejoin(self, plog: OpenPlog) -> bool:
        """Whether a server that is out of the plog could be in a new one."""
        ...

    async def status(self, plog_id: PlogId) -> PlogStatus | None:
        """The highest token that a majority shows; ``None`` if the plog does not exist."""
        ...

    async def check_not_fenced(self, plog: OpenPlog) -> None:
        """Return if nobody fenced the plog before the call: a majority still has it as its owner made it, so that no
        majority can have been fenced. ``Fenced`` if a server shows a higher epoch."""
        ...

    async def fence(self, plog_id: PlogId, epoch: int, known: OpenPlog | None = None) -> FencedPlog:
        """Give a majority one token above all that they have; ``Fenced`` if one shows a higher epoch.

        ``known``: the plog as its owner knows it, who fences it at its own epoch.
        """
        ...

    async def seal(self, plog: OpenPlog, epoch: int, offset: int) -> int:
        """Seal at ``offset`` a plog whose every append up to there is done."""
        ...

    async def delete(self, plog_id: PlogId, container_id: int, epoch: int) -> bool:
        """Delete the copies on all servers that are reached, a majority; false if a higher epoch has one. The servers
        that did not do it are remembered for ``delete_left``."""
        ...

    async def delete_left(self, index: int) -> None:
        """Delete what one server, which was just reached, was to delete before and has not. Without any of it nobody
        is asked."""
        ...

    def damaged(self, index: int) -> set[PlogId]:
        """Returns the sealed plogs whose copy on one server a reader found damaged; the repair takes them out."""
        ...

    async def list_plogs(self, container_id: int) -> list[PlogId]:
        """Every plog of a container that a server of a majority has, in no order."""
        ...

    async def header(self, plog_id: PlogId) -> PlogHeader: ...

    async def has_entries(self, plog_id: PlogId) -> bool: ...

    async def has_entry_at(self, plog_id: PlogId, offset: int) -> bool:
        """Whether an entry of the plog ends at ``offset``, so that another one may begin there."""
        ...

    async def entry_over(self, plog_id: PlogId, epoch: int, byte: int, end: int) -> StoredEntry:
        """The entry that holds a byte of a plog, from any server that has it intact. Bytes before ``end`` are sealed,
        or acknowledged. Errors as of ``read_sealed``."""
        ...

    def read_sealed(self, plog_id: PlogId, epoch: int, start: int, end: int) -> AsyncIterator[StoredEntry]:
        """The intact entries of a plog from ``start`` to ``end``, without a gap, from any server that has them. It is
        sealed, or all before ``end`` is acknowledged.

        ``Fenced`` if a server shows an epoch above ``epoch``; ``PlogMissing`` if the plog is gone.
        """
        ...
