"""Keeps the epoch marks of one container: what its owners knew of their log, in Tier 2.

No manifest that shows the effect of an operation is put before a mark whose high water covers the operation is stored,
so that a log without it is refused at the start. One put serves all changes that wait.

A mark is a small object below ``e/``, put once; the one with the highest (epoch, attempt) counts, the others are
garbage. Layout, big-endian, 52 bytes::

    magic "PVEM" | version u16 | flags u16 | identity 16 bytes | epoch u64 | high_water u64 | next_segment_id u64
    | crc32c u32 over everything before

Version 2 has the same fields, and says that the container has, or may get, objects in its map ``shared``: a program
that does not know of them must not start.

Flag 1: the journals of changes (change_journal.py) name all segments of which owners up to this one may have left
garbage. Programs that keep no journals neither read nor write it: after one of them all segments are swept again.

Marks that programs before version 1 left hold the bytes ``open``: of their log only the epoch is known.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol, TypeVar

from crc32c import crc32c

from pravega_common.errors import DataCorruption, Fenced, SegmentNotFound, Unavailable
from pravega_common.invariants import check, unreachable
from pravega_common.runtime.failpoints import failpoint, register
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.contracts.log_identity import identity_bytes
from segment_service.contracts.segment_storage import EpochMark, LogState, LogStateNow
from segment_service.storage.chunk_names import Layout
from segment_service.storage.garbage import GarbageCollector
from segment_service.storage.shared_put import SharedPut

MARK_STORED = register("storage.mark.stored")

newest_attempts_max: Final = 5
"""How often the marks are listed again when the newest one is gone (a later owner replaced it)."""

_MAGIC: Final = b"PVEM"
_VERSION: Final = 1
_SHARED_VERSION: Final = 2
_FIELDS: Final = struct.Struct(f">4sHH{identity_bytes}sQQQ")
_CHECKSUM: Final = struct.Struct(">I")
_HAS_JOURNALS: Final = 1
_OPEN: Final = b"open"

T = TypeVar("T")
Fresh = Callable[[], tuple[T, str, Sequence[Buffer]]]


class PutFresh(Protocol):
    """As ``ManifestStore.put_fresh``."""

    def __call__(self, fresh: Fresh[T], unanswered: list[str]) -> Awaitable[T]: ...


class PutFor(Protocol):
    """As ``ManifestStore.put_for``."""

    def __call__(self, segment_id: int, fresh: Fresh[T]) -> Awaitable[T]: ...


def encode_mark(mark: EpochMark, *, shares_objects: bool = False) -> bytes:
    log = mark.log
    check(log is not None, "a mark without the state of the log is written", epoch=mark.epoch)
    if log is None:
        return _OPEN
    check(len(log.identity) == identity_bytes, "not the identity of a log", identity=log.identity)
    check(log.high_water >= 0 and log.next_segment_id >= 1, "not a state of a log", state=log)
    version = _SHARED_VERSION if shares_objects else _VERSION
    flags = _HAS_JOURNALS if mark.has_journals else 0
    fields = _FIELDS.pack(_MAGIC, version, flags, log.identity, mark.epoch, log.high_water, log.next_segment_id)
    return fields + _CHECKSUM.pack(crc32c(fields))


def decode_mark(data: bytes, name: str, epoch: int) -> EpochMark:
    """The mark in the object ``name``, whose name carries ``epoch``. ``DataCorruption`` for anything else."""
    if data == _OPEN:
        return EpochMark(epoch, None)
    if data[: len(_MAGIC)] != _MAGIC or len(data) < len(_MAGIC) + 2:
        raise DataCorruption(f"{name} in Tier 2 is no epoch mark: it begins with {data[:8]!r}")
    version = int.from_bytes(data[4:6], "big")
    if version not in (_VERSION, _SHARED_VERSION):
        raise DataCorruption(
            f"epoch mark {name} has version {version}; this program reads {_VERSION} and {_SHARED_VERSION}: if a newer "
            "one wrote it, run that"
        )
    if len(data) != _FIELDS.size + _CHECKSUM.size:
        raise DataCorruption(f"epoch mark {name} has {len(data)} bytes, not {_FIELDS.size + _CHECKSUM.size}")
    (expected,) = _CHECKSUM.unpack_from(data, _FIELDS.size)
    if crc32c(data[: _FIELDS.size]) != expected:
        raise DataCorruption(f"epoch mark {name} fails its checksum")
    _, _, flags, identity, written_epoch, high_water, next_segment_id = _FIELDS.unpack_from(data)
    if written_epoch != epoch:
        raise DataCorruption(f"epoch mark {name} says that it is of epoch {written_epoch}")
    return EpochMark(epoch, LogState(identity, high_water, next_segment_id), bool(flags & _HAS_JOURNALS))


class EpochMarks:
    """Reads the newest mark, and leaves marks of the own epoch."""

    def __init__(
        self,
        chunks: ChunkStorage,
        layout: Layout,
        garbage: GarbageCollector,
        put_fresh: PutFresh,
        new_number: Callable[[], int],
    ) -> None:
        self.epoch = 0
        self.shares_objects = False
        """Whether marks say so; set before the first one."""
        self.has_journals = False
        """Whether marks say so; set before the first one, and by a sweep of all segments."""
        self._chunks = chunks
        self._layout = layout
        self._garbage = garbage
        self._put_fresh = put_fresh
        self._new_number = new_number
        self._log_state: LogStateNow | None = None
        self._last: LogState | None = None
        self._is_tried = False
        self._replaced: list[str] = []
        self._puts = SharedPut()

    async def newest(self) -> EpochMark | None:
        for _ in range(newest_attempts_max):
            newest, length = "", 0
            async for info in self._chunks.list(self._layout.epochs):
                newest, length = max((newest, length), (info.name, info.length))
            if not newest:
                return None
            try:
                data = await self._chunks.get(newest, 0, length)
            except SegmentNotFound:
                continue
            return decode_mark(data, newest, self._layout.parse_epoch(newest))
        raise Unavailable(f"the marks below {self._layout.epochs} keep vanishing while they are read")

    async def open(self, epoch: int, log_state: LogStateNow) -> None:
        """Leave the first mark of the epoch. ``Fenced`` if there is one as high: an epoch is opened once."""
        check(epoch >= 1, "epochs begin at 1", epoch=epoch)
        self.epoch, self._log_state = epoch, log_state
        earlier: list[str] = []
        async for info in self._chunks.list(self._layout.epochs):
            found = self._layout.parse_epoch(info.name)
            if found > epoch or (found == epoch and not self._is_tried):
                raise Fenced(f"Tier 2 was opened at epoch {found}, this owner has epoch {epoch}")
            earlier.append(info.name)
        self._is_tried = True  # a mark of this epoch may be ours from here on: an attempt without an answer is repeated
        self._replaced = earlier
        await self.cover(log_state().high_water)

    def covers(self, high_water: int) -> bool:
        """Whether a mark with at least this high water is stored."""
        return self._last is not None and self._last.high_water >= high_water

    async def cover(self, high_water: int | None) -> None:
        """Return once a mark with at least this high water is stored; ``None``: that of the log now.

        A put says what is durable when it begins and serves all that wait for no more than that. If it fails, the
        call fails for all that wait for it.
        """
        wanted = self._now().high_water if high_water is None else high_water
        while not self.covers(wanted):
            await self._puts.join(lambda: self._put(wanted))

    async def _put(self, wanted: int) -> None:
        """Store what is known of the log now; the marks before become garbage."""
        log = self._now()
        check(log.high_water >= wanted, "Tier 2 gets an operation that is not durable", operation=wanted, log=log)
        check(
            self._last is None or (self._last.identity, self._last.high_water) <= (log.identity, log.high_water),
            "a mark says less than the one before",
            last=self._last,
            now=log,
        )
        data = encode_mark(EpochMark(self.epoch, log, self.has_journals), shares_objects=self.shares_objects)

        def fresh() -> tuple[str, str, Sequence[Buffer]]:
            name = self._layout.epoch(self.epoch, self._new_number())
            return name, name, [data]

        unanswered: list[str] = []
        try:
            stored = await self._put_fresh(fresh, unanswered)
        finally:
            self._replaced += unanswered
        failpoint(MARK_STORED)
        self._last = log
        self._garbage.discard(self._replaced)
        self._replaced = [stored]

    async def renew(self) -> None:
        """Store a mark that says what is known now, whether or not the log moved."""
        await self._puts.ended()
        await self._puts.make(lambda: self._put(0))

    def marked(self) -> LogState:
        """The state of the log as of the last mark that is stored."""
        if self._last is None:
            unreachable("Tier 2 is used before it has a mark of this epoch", epoch=self.epoch)
        return self._last

    def _now(self) -> LogState:
        if self._log_state is None:
            unreachable("a change of Tier 2 before the container opened it", epoch=self.epoch)
        return self._log_state()
