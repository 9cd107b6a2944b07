"""Records the plogs of a container's log streams, in a log of its own.

Its own current plog is registered in the CPO. A metadata plog begins with a full record, so that one id is enough. It
ends where its owner was fenced or lost track of an append: the next one takes over with everything known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import islice
from typing import Final, NoReturn

import structlog

from pravega_common.errors import (
    ConfigurationError,
    DataCorruption,
    FailedError,
    Fenced,
    Outcome,
    PravegaError,
    Unavailable,
    UnknownOutcome,
    VersionConflict,
)
from pravega_common.invariants import check
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.cluster.cpo import ControlPlaneOracle
from segment_service.contracts.data_log import LogAddress
from segment_service.plog.chain import Chain, check_kind, offset_max
from segment_service.plog.entry import PlogEntryHeader, PlogEntryKind, encode_entry
from segment_service.plog.group_contract import FencedPlog, OpenPlog, PersistenceGroupClient
from segment_service.plog.metadata_records import FullRecord, MetadataRecord, apply, decode_record, encode_record
from segment_service.plog.persistence_group import PersistenceClient
from segment_service.plog.plog import PlogId
from segment_service.plog.plog_client import PlogMissing

register_attempts_max: Final = 5
register_delay_s: Final = 0.1
doubtful_plogs_max: Final = 64
"""Metadata plogs that were given to the CPO in a row without an answer that says what became of them. Each may be the
registered one. No further one is made until the newest of them is registered."""
candidates_max: Final = 2 * doubtful_plogs_max
"""Metadata plogs of this owner that the CPO may show: those in doubt, and the newest ones before, which a CPO that went
back shows."""
rejoin_pause_s: Final = 5.0
"""Pause between two attempts to get a server back that is out of the metadata plog."""
stream_name: Final = "metadata"

FENCED = register("plog.metadata.fenced")
PLOG_CREATED = register("plog.metadata.plog_created")
FULL_WRITTEN = register("plog.metadata.full_written")
REGISTERED = register("plog.metadata.registered")
RECORDED = register("plog.metadata.recorded")


class EpochTooLow(FailedError):
    """A plog shows an epoch that the CPO has not given out: the CPO went back. Take one above ``shown``."""

    def __init__(self, shown: int) -> None:
        self.shown = shown
        super().__init__(f"a metadata plog shows epoch {shown}")


class MetadataManager:
    """Owned by one log at one epoch; ``record`` may be called concurrently."""

    def __init__(self, container_id: int, client: PersistenceClient, cpo: ControlPlaneOracle, clock: Clock) -> None:
        self.state = FullRecord()
        self.epoch = 0
        self._container_id = container_id
        self._client = client
        self._cpo = cpo
        self._clock = clock
        self._registered: str | None = None
        self._candidates: dict[str, None] = {}
        """Metadata plogs that this owner gave to the CPO, the newest ones last."""
        self._doubtful = 0
        """Those of them, the newest ones, of which it is not known whether they were registered."""
        self._plog: OpenPlog | None = None
        self._offset = 0
        self._sequence = 0
        self._last: LogAddress | None = None
        self._rejoin_at_s = 0.0
        self._lock = asyncio.Lock()
        self._log = structlog.get_logger(container_id=container_id)

    async def load(self, epoch: int) -> bool:
        """Fence and read the container's metadata with ``epoch``; false if the container never had any.

        ``EpochTooLow`` if the metadata plog was fenced with a higher epoch. Nothing is changed but the fence.
        """
        self.epoch = epoch
        self._registered = await self._cpo.get_metadata_plog(self._container_id)
        if self._registered is None:
            await self._refuse_lost_registration()
            return False
        plog_id = PlogId.parse(self._registered)
        group = self._client.group_of(plog_id)
        try:
            fenced = await group.fence(plog_id, epoch)
        except PlogMissing as error:
            await self.explain_loss(error)
        except Fenced as error:
            shown = await group.status(plog_id)
            raise EpochTooLow(epoch if shown is None else shown.token.epoch) from error
        failpoint(FENCED)
        try:
            self.state, end = await self._replay(fenced, plog_id)
        except DataCorruption as error:
            raise fenced.explained(error) from error
        await fenced.settle(end)
        return True

    async def _replay(self, fenced: FencedPlog, plog_id: PlogId) -> tuple[FullRecord, int]:
        """The state at the end of a metadata plog, and that end."""
        state, chain, end = FullRecord(), Chain(next_sequence=0), 0
        async for stored in fenced.read(0, offset_max):
            where = f"metadata plog {plog_id}, offset {stored.start}"
            entry = stored.decode(where)
            check_kind(entry, PlogEntryKind.METADATA, where)
            chain.accept(entry, LogAddress(0, stored.start), where)
            if stored.start != end:
                raise DataCorruption(f"{where}: the record before it ends at {end}")
            end = stored.end
            state = apply(state, decode_record(entry.payload))
        if end == 0:
            raise DataCorruption(f"metadata plog {plog_id} of container {self._container_id} is empty")
        return state, end

    async def refuse_older_records(self, stream: str) -> None:
        """``DataCorruption`` if a plog shows that a stream went on behind the records that were read, as where the CPO
        came back older and names a metadata plog that was replaced since. Nothing is changed.

        Only a plog that is recorded as the last one of its stream is ever sealed, and numbers are given out once: one
        that is sealed and has a number that no record has given out was recorded elsewhere. A log that was begun again
        counts from 0; what it left behind is of an earlier epoch.
        """
        record = self.state.streams[stream]
        try:
            oldest = (await self._client.group_of(record.last.plog_id).header(record.last.plog_id)).epoch
        except PlogMissing:
            return  # the recovery says so
        for group in self._client.groups:
            try:
                later = await self._later_plog(group, stream, record.next_number, oldest)
            except PravegaError as error:  # the records name none there, or the recovery says what is wrong with it
                self._log.warning("a group does not say which plogs it has", group=group.name, error=str(error))
                continue
            if later is not None:
                raise DataCorruption(
                    f"container {self._container_id}: plog {later} was written to, but the metadata plog "
                    f"{self._registered} knows of none after number {record.next_number - 1}: an older copy of the CPO "
                    "came back. Nothing was written. Give its Redis the newest copy of its append-only file, or run "
                    "pravega-spark cluster rebuild-cpo --replace"
                )

    async def _later_plog(
        self, group: PersistenceGroupClient, stream: str, number_min: int, epoch_min: int
    ) -> PlogId | None:
        named = self.plogs()
        for plog_id in await group.list_plogs(self._container_id):
            if plog_id not in named and await self._is_later(group, plog_id, stream, number_min, epoch_min):
                return plog_id
        return None

    async def _is_later(
        self, group: PersistenceGroupClient, plog_id: PlogId, stream: str, number_min: int, epoch_min: int
    ) -> bool:
        if plog_id.cluster != self._client.cluster_name:
            return False
        try:
            header = await group.header(plog_id)
            if header.stream != stream or header.number < number_min or header.epoch < epoch_min:
                return False
            status = await group.status(plog_id)
        except PlogMissing:
            return False
        return status is not None and bool(status.sealed)

    async def start_plog(self, state: FullRecord) -> None:
        """Make ``state`` durable as the full record of a new metadata plog and register that in the CPO."""
        async with self._lock:
            await self._start_plog(state)

    async def start_over(self, epoch: int) -> None:
        """Register a metadata plog without streams, whatever was registered: no plog of before counts any more. They
        are freed by the next owner's ``clean_up``."""
        self.epoch = epoch
        self._registered = await self._cpo.get_metadata_plog(self._container_id)
        self._candidates[str(self._registered)] = None
        async with self._lock:
            await self._start_plog(FullRecord(), frees_old=False)

    async def record(self, record: MetadataRecord) -> None:
        """Durable on return. After an error the record counts as not made, and may be given again.

        ``Fenced`` if another owner came; ``Unavailable`` or ``UnknownOutcome`` if the servers do not answer.
        """
        async with self._lock:
            state = apply(self.state, record)
            frame = self._encode(encode_record(record))
            is_full = self._offset + len(frame) > self._client.settings.block_bytes
            if self._plog is None or is_full or await self._may_rejoin(self._plog):
                await self._start_plog(state)
            else:
                await self._append(self._plog, frame, state)

    def plogs(self) -> set[PlogId]:
        """The plogs that count: those that the records name, and the metadata plog in the CPO."""
        named = {plog.plog_id for stream in self.state.streams.values() for plog in stream.plogs}
        return named if self._registered is None else {*named, PlogId.parse(self._registered)}

    @property
    def open_plog(self) -> OpenPlog | None:
        """The plog that records go to; ``None`` while that is not certain."""
        return self._plog

    async def include_all(self) -> None:
        """Go on in a new plog if a server that is out of this one can be in that."""
        async with self._lock:
            if self._plog is not None and not self._plog.is_whole:
                self._rejoin_at_s = 0.0
                if await self._may_rejoin(self._plog):
                    await self._start_plog(self.state)

    async def check_owner(self) -> None:
        """``Fenced`` if a later owner came. One begins by fencing the metadata plog that the CPO names; as long as that
        may be another than this owner's, or too few of its servers answer, a new one is made and registered."""
        async with self._lock:
            if self._plog is not None:
                try:
                    if await self._check_not_fenced(self._plog, self.state):
                        return
                except Unavailable:
                    if self._plog.quorum is None:
                        raise
            await self._start_plog(self.state)

    async def _may_rejoin(self, plog: OpenPlog) -> bool:
        """Whether a new plog may have a server that is out of this one; asked once in a while."""
        now_s = self._clock.monotonic_s()
        if plog.is_whole or now_s < self._rejoin_at_s:
            return False
        self._rejoin_at_s = now_s + rejoin_pause_s
        return await self._client.group_of(plog.plog_id).may_rejoin(plog) and await self._can_register()

    async def _can_register(self) -> bool:
        """Whether the CPO answers. A plog that has its quorum is not given up for one that nobody could be told of."""
        try:
            await self._cpo.current_epoch(self._container_id)
        except PravegaError as error:
            self._log.warning("a server waits to be used again for the CPO", error=str(error))
            return False
        return True

    async def explain_loss(self, error: DataCorruption) -> NoReturn:
        """A plog is gone, or what it held: a later owner freed it (``Fenced``), or data was lost (``error`` itself)."""
        current = await self._cpo.current_epoch(self._container_id)
        if current > self.epoch:
            raise Fenced(f"container {self._container_id}: epoch {current} took over") from error
        raise error

    async def clean_up(self) -> list[PlogId]:
        """Delete the container's plogs that no record names: those of creations that failed. Returns them.

        Called before this owner creates further plogs; nothing of a higher epoch is touched. A group that does not
        answer is left to a later owner: the log needs nothing there, and the group may be gone for good.
        """
        known = self.plogs()
        deleted: list[PlogId] = []
        for group in self._client.groups:
            try:
                for plog_id in await group.list_plogs(self._container_id):
                    if plog_id.cluster != self._client.cluster_name or plog_id in known:
                        continue
                    if await group.delete(plog_id, self._container_id, self.epoch):
                        deleted.append(plog_id)
            except PravegaError as error:
                if error.outcome is Outcome.FENCED:
                    raise
                self._log.warning("a group was not cleaned up", group=group.name, error=str(error))
        return deleted

    async def _append(self, plog: OpenPlog, frame: bytes, state: FullRecord) -> None:
        group = self._client.group_of(plog.plog_id)
        try:
            await group.append_small(plog, self._offset, frame)
            failpoint(RECORDED)
        except Unavailable:
            raise
        except (UnknownOutcome, FailedError, DataCorruption) as error:
            self._plog = None
            try:
                await self._check_not_fenced(plog, state)
            except Fenced as fenced:
                raise fenced from error
            await self._start_plog(state)
            return
        except BaseException:  # cancelled: some servers may have the record, and no other one may come to its place
            self._plog = None
            raise
        self._advance(frame)
        self.state = state

    async def _check_not_fenced(self, plog: OpenPlog, state: FullRecord) -> bool:
        """Whether this owner's metadata plog is as it made it; ``Fenced`` if a later owner came.

        False if it is lost in a group that has no other plog of ``state``: this owner knows every record, and may make
        them again elsewhere.
        """
        group = self._client.group_of(plog.plog_id)
        try:
            await group.check_not_fenced(plog)
        except DataCorruption as error:
            holds_frames = any(
                one.plog_id.group == group.name for stream in state.streams.values() for one in stream.plogs
            )
            if holds_frames or await self._cpo.current_epoch(self._container_id) > self.epoch:
                await self.explain_loss(error)
            self._log.warning("a metadata plog is lost, and made again", plog_id=str(plog.plog_id), error=str(error))
            return False
        return True

    async def _start_plog(self, state: FullRecord, *, frees_old: bool = True) -> None:
        replaced: list[str] = []
        if self._doubtful >= doubtful_plogs_max:
            replaced = await self._register(next(reversed(self._candidates)))
        number = state.number + 1
        full = FullRecord(state.streams, number)
        self._plog = None
        plog = await self._client.create_plog(self._container_id, stream_name, number, self.epoch)
        plog_id, group = plog.plog_id, self._client.group_of(plog.plog_id)
        failpoint(PLOG_CREATED)
        self._offset, self._sequence, self._last = 0, 0, None
        frame = self._encode(encode_record(full))
        await group.append_small(plog, 0, frame)
        failpoint(FULL_WRITTEN)
        replaced += await self._register(str(plog_id))
        failpoint(REGISTERED)
        self._plog = plog
        self._advance(frame)
        self.state = full
        if frees_old:
            await self._delete_old(replaced)

    async def _register(self, plog_id: str) -> list[str]:
        """Register a metadata plog for certain; returns those that can never be the registered one again."""
        before = self._registered
        self._note_candidate(plog_id)
        for attempt in range(register_attempts_max):
            try:
                await self._cpo.put_metadata_plog(self._container_id, self.epoch, self._registered, plog_id)
                doubtful = islice(reversed(self._candidates), self._doubtful)
                replaced = [one for one in (before, *doubtful) if one is not None and one != plog_id]
                self._registered, self._doubtful = plog_id, 0
                return replaced
            except VersionConflict:
                current = await self._cpo.get_metadata_plog(self._container_id)
                check(current in self._candidates, "metadata plog changed at this epoch", current=current)
                self._registered = current
            except (Unavailable, UnknownOutcome) as error:
                if attempt == register_attempts_max - 1:
                    raise UnknownOutcome(f"metadata plog {plog_id} may not be registered: {error}") from error
                await self._clock.sleep(register_delay_s * 2**attempt)
        raise Unavailable(f"metadata plog {plog_id} was not registered in {register_attempts_max} attempts")

    def _note_candidate(self, plog_id: str) -> None:
        """Remember what the CPO may show from now on, and forget what it cannot show any more.

        What was registered is replaced only by a change that expects it, and no id is used twice: once one of them is
        known to be registered, no change that was sent before, and may still be under way, finds what it expects.
        """
        if plog_id in self._candidates:
            return
        self._candidates[plog_id] = None
        self._doubtful += 1
        check(self._doubtful <= doubtful_plogs_max, "too many metadata plogs in doubt", doubtful=self._doubtful)
        if len(self._candidates) > candidates_max:
            del self._candidates[next(iter(self._candidates))]

    async def _delete_old(self, plog_ids: Iterable[str]) -> None:
        """Free metadata plogs that were replaced, up to the first that cannot be now: records wait meanwhile. The next
        owner's ``clean_up`` frees the others."""
        for text in plog_ids:
            plog_id = PlogId.parse(text)
            try:
                await self._client.group_of(plog_id).delete(plog_id, self._container_id, self.epoch)
            except PravegaError as error:
                if error.outcome is Outcome.REJECTED and not isinstance(error, DataCorruption):
                    raise
                self._log.warning("an old metadata plog was not deleted", plog_id=text, error=str(error))
                return

    def _encode(self, payload: bytes) -> bytes:
        header = PlogEntryHeader(PlogEntryKind.METADATA, self.epoch, self._sequence, self._sequence, self._last)
        return encode_entry(header, payload)

    async def _is_data(self, group: PersistenceGroupClient, plog_id: PlogId) -> bool:
        """Whether a plog has frames; one that somebody deletes has none."""
        try:
            return (await group.header(plog_id)).stream != stream_name and await group.has_entries(plog_id)
        except PlogMissing:
            return False

    def _advance(self, frame: bytes) -> None:
        self._last = LogAddress(0, self._offset)
        self._offset += len(frame)
        self._sequence += 1

    def _refuse_other_cluster(self, plog_id: PlogId) -> None:
        if plog_id.cluster != self._client.cluster_name:
            raise ConfigurationError(
                f"the servers of group {plog_id.group} hold data of container {self._container_id} of cluster "
                f"{plog_id.cluster} (plog {plog_id}), not of cluster {self._client.cluster_name}: a Redis serves one "
                f"cluster; name other servers in tier1.servers, or the cluster that they belong to in cluster.name"
            )

    async def _refuse_lost_registration(self) -> None:
        """A container without a registered metadata plog must not have data frames: the CPO would have lost it."""
        for group in self._client.groups:
            for plog_id in await group.list_plogs(self._container_id):
                if await self._is_data(group, plog_id):
                    self._refuse_other_cluster(plog_id)
                    raise DataCorruption(
                        f"container {self._container_id} has data in plog {plog_id}, but the CPO knows no metadata "
                        f"plog of it: the CPO lost its data; run pravega-spark cluster rebuild-cpo"
                    )
