"""Writes a log stream: an endless log over a list of plogs, of which only the last one is open.

Appends are sent at once and acknowledged in order. Everything slow happens in one control task:

* a full plog is followed by the pre-allocated spare; frames go there while the switch is being recorded, and are
  acknowledged only after it is;
* when an append was refused or its answer lost, the plog is *handed over*: fenced, read back, sealed at the last
  contiguous frame; frames found are acknowledged, the missing suffix goes first into a new plog, at the same epoch.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tenacity import wait_exponential

from pravega_common.errors import (
    DataCorruption,
    InvalidArgument,
    Outcome,
    PravegaError,
    Unavailable,
    UnknownOutcome,
)
from pravega_common.invariants import check
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.deadline import Deadline
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.base import Service
from pravega_common.services.retrying import retrying
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.data_log import LogAddress
from segment_service.plog.append_quorum import means_full
from segment_service.plog.appends import fail_append, frame_bytes, frame_refusal, frames_pending_max
from segment_service.plog.chain import Chain, PlogEnd, find_end, offset_max
from segment_service.plog.entry import PlogEntryHeader, PlogEntryKind, encode_envelope, envelope_bytes
from segment_service.plog.group_contract import FencedPlog, OpenPlog, PersistenceGroupClient
from segment_service.plog.metadata_manager import MetadataManager
from segment_service.plog.metadata_records import PlogRecord, SwitchRecord, TruncateRecord
from segment_service.plog.persistence_group import PersistenceClient
from segment_service.plog.plog import PlogHeader, PlogId
from segment_service.plog.plog_client import AppendRefused
from segment_service.plog.redis_connection import ReplyError

retry_delay_first_s: Final = 0.02
retry_delay_max_s: Final = 1.0
room_look_s: Final = 0.1
"""Pause between two looks at the memory of a server that is full."""
rejoin_pause_s: Final = 5.0
"""How long a plog that a server is out of is kept before the next one is tried, which would have it again."""

SPARE_CREATED = register("plog.stream.spare_created")
SWITCH_SEALED = register("plog.stream.switch_sealed")
HAND_OVER_FENCED = register("plog.stream.hand_over_fenced")
HAND_OVER_SEALED = register("plog.stream.hand_over_sealed")
HAND_OVER_RECORDED = register("plog.stream.hand_over_recorded")
TRUNCATE_RECORDED = register("plog.stream.truncate_recorded")
TRUNCATE_DELETED = register("plog.stream.truncate_deleted")


@dataclass(slots=True)
class WritePlog:
    """A plog that this owner appends to, or will."""

    number: int
    plog: OpenPlog
    offset: int = 0
    """Where the next frame goes."""
    first_sequence: int = -1
    previous: LogAddress | None = None
    """The frame before its first one."""


@dataclass(slots=True)
class _Pending:
    sequence: int
    parts: Sequence[Buffer]
    payload_bytes: int
    future: asyncio.Future[LogAddress]
    address: LogAddress = LogAddress(0, 0)  # noqa: RUF009
    answered: bool = False
    refused: bool = False


class LogStream(Service):
    """The writing end of one log stream at one epoch; starts with an empty plog that is recorded already."""

    def __init__(
        self,
        stream: str,
        container_id: int,
        manager: MetadataManager,
        client: PersistenceClient,
        clock: Clock,
        first: WritePlog,
        chain: Chain,
    ) -> None:
        super().__init__(f"log-{container_id}")
        self._stream = stream
        self._container_id = container_id
        self._epoch = manager.epoch
        self._manager = manager
        self._client = client
        self._clock = clock
        self._next_number = first.number + 1
        self._active = self._recorded = first
        self._spare: WritePlog | None = None
        self._next_sequence = chain.next_sequence or 0
        self._sent_last = self._acked_last = chain.last
        self._acked_offset = 0  # end of the last acknowledged frame in the recorded plog
        self._queue: deque[_Pending] = deque()
        self._sent: deque[_Pending] = deque()
        self._dropped: list[PlogId] = []  # truncated away by record, not yet deleted
        self._generation = 0
        self._broken = False
        self._stuck_since: Deadline | None = None
        self._stuck_delay_s = retry_delay_first_s
        self._full_delay_s = retry_delay_first_s
        self._error: PravegaError | None = None
        self._wake = asyncio.Event()
        self._full = asyncio.Event()
        self._rejoin: asyncio.Task[None] | None = None
        self._rejoin_due = False
        self._urgent_below = 0
        """Frames with a lower sequence may exceed the memory that the servers allow."""

    async def on_start(self) -> None:
        await self._group_of(self._recorded).open_for_appends()
        self._recorded.first_sequence = self._next_sequence
        self.spawn(self._control(), "control")

    async def on_stop(self) -> None:
        if self._error is None:
            self._end(UnknownOutcome(f"container {self._container_id}: log closed before the append was acknowledged"))
            self._error = Unavailable(f"container {self._container_id}: the log is closed")

    @property
    def acked_last(self) -> LogAddress | None:
        """The address of the last acknowledged frame, also of an earlier owner."""
        return self._acked_last

    async def check_owner(self) -> None:
        """See ``DurableDataLog.check_owner``."""
        await self._manager.check_owner()

    def append(self, frame: Sequence[Buffer]) -> asyncio.Future[LogAddress]:
        """See ``DurableDataLog.append``."""
        future: asyncio.Future[LogAddress] = asyncio.get_running_loop().create_future()
        size = frame_bytes(frame)
        refusal = self._error or frame_refusal(size)
        if refusal is not None:
            future.set_exception(refusal)
            return future
        check(len(self._queue) + len(self._sent) < frames_pending_max, "too many frames in flight", log=self.name)
        self._queue.append(_Pending(self._next_sequence, frame, size, future))
        self._next_sequence += 1
        self._send()
        return future

    @property
    def is_full(self) -> bool:
        """See ``DurableDataLog.is_full``."""
        return self._full.is_set()

    async def wait_full(self) -> None:
        await self._full.wait()

    def relieve(self) -> None:
        """See ``DurableDataLog.relieve``."""
        self._urgent_below = self._next_sequence

    async def truncate(self, up_to: LogAddress) -> None:
        """See ``DurableDataLog.truncate``."""
        if self._error is not None:
            raise self._error
        await self._patiently(lambda: self._record_truncation(up_to))
        failpoint(TRUNCATE_RECORDED)
        dropped, self._dropped = self._dropped, []
        for plog_id in dropped:
            await self._free(plog_id)
        failpoint(TRUNCATE_DELETED)

    async def _record_truncation(self, up_to: LogAddress) -> None:
        state = self._manager.state.streams[self._stream]
        record = next((plog for plog in state.plogs if plog.number == up_to.plog_number), None)
        below = state.truncated_at is not None and up_to < state.truncated_at
        found = record is not None and not below and self._acked_last is not None and up_to <= self._acked_last
        if found and record is not None and up_to.offset > 0:
            found = await self._client.group_of(record.plog_id).has_entry_at(record.plog_id, up_to.offset)
        if not found:
            raise InvalidArgument(f"container {self._container_id}: no frame begins at {up_to}; cannot truncate there")
        await self._manager.record(TruncateRecord(self._stream, up_to))
        self._dropped += [plog.plog_id for plog in state.plogs if plog.number < up_to.plog_number]

    def _send(self) -> None:
        """Send what is queued, until the window's owner, a full plog or a broken connection stops it."""
        while self._queue and not self._broken and self._error is None:
            frame = self._queue[0]
            size = envelope_bytes + frame.payload_bytes
            if self._active.offset + size > self._client.settings.block_bytes:
                if self._active is not self._recorded or self._spare is None:
                    return  # the control task makes room and calls again
                self._switch_to(self._spare)
                self._spare = None
            self._queue.popleft()
            self._send_one(frame, size)

    def _switch_to(self, plog: WritePlog) -> None:
        """Let the next frame go to ``plog``; the control task records that."""
        plog.first_sequence, plog.previous = self._first_queued, self._sent_last
        self._active = plog
        self._wake.set()

    def _send_one(self, frame: _Pending, size: int) -> None:
        plog = self._active
        acked = self._sent[0].sequence if self._sent else frame.sequence
        header = PlogEntryHeader(PlogEntryKind.DATA, self._epoch, frame.sequence, acked, self._sent_last)
        envelope = encode_envelope(header, frame.parts, frame.payload_bytes)
        frame.address = self._sent_last = LogAddress(plog.number, plog.offset)
        frame.answered = frame.refused = False
        self._sent.append(frame)
        start, plog.offset = plog.offset, plog.offset + size
        generation = self._generation

        def done(error: BaseException | None) -> None:
            if generation == self._generation:
                self._on_answer(frame, error)

        group = self._group_of(plog)
        append = group.append_urgent if frame.sequence < self._urgent_below else group.append
        append(plog.plog, start, (envelope, *frame.parts), size, done)

    def _on_answer(self, frame: _Pending, error: BaseException | None) -> None:
        if error is None:
            frame.answered = True
            self._acknowledge()
            if self._active.plog.quorum is not None:
                self._watch_copies()
            return
        frame.refused = isinstance(error, AppendRefused | ReplyError)
        if means_full(error):
            self._full.set()
        if not self._broken:
            self.log.warning("append not confirmed; handing the plog over", error=str(error), at=str(frame.address))
            self._broken = True
            self._wake.set()

    def _acknowledge(self) -> None:
        """Answer the frames at the head that are durable in a plog that the metadata log knows."""
        while self._sent and self._sent[0].answered and self._sent[0].address.plog_number == self._recorded.number:
            frame = self._sent.popleft()
            self._full.clear()
            self._acked_last = frame.address
            self._acked_offset = frame.address.offset + envelope_bytes + frame.payload_bytes
            self._stuck_since = None
            self._full_delay_s = retry_delay_first_s
            if not frame.future.done():
                frame.future.set_result(frame.address)
        if self._switch_is_due:
            self._wake.set()

    @property
    def _switch_is_due(self) -> bool:
        """Whether a switch waits to be recorded and the old plog has no unanswered frame left."""
        if self._active is self._recorded:
            return False
        return not self._sent or self._sent[0].address.plog_number != self._recorded.number

    async def _control(self) -> None:
        try:
            while True:
                self._wake.clear()
                if self._broken:
                    await self._heal()
                elif self._switch_is_due:
                    await self._patiently(self._finish_switch, unless_broken=True)
                elif self._rejoin_due and self._active is self._recorded:
                    await self._try_rejoin()
                elif self._spare is None and self._active is self._recorded:
                    await self._patiently(self._make_spare, unless_broken=True)
                else:
                    await self._wake.wait()
                    continue
                self._send()
        except PravegaError as error:
            self.log.error("the log is over", error=str(error))
            self._end(error)
            self.fail(error)

    def _watch_copies(self) -> None:
        """Have a new plog tried in a while if a server is out of the active one."""
        if self._rejoin is None and not self._active.plog.is_whole:
            self._rejoin = self.spawn(self._rejoin_later(), "rejoin")

    @property
    def open_plogs(self) -> list[OpenPlog]:
        """The plogs that hold frames and are not recorded as sealed."""
        return [self._recorded.plog] if self._active is self._recorded else [self._recorded.plog, self._active.plog]

    def include_all(self) -> None:
        """Go on in a new plog soon if a server that is out of the active one can be in that."""
        self._rejoin_due = not self._active.plog.is_whole
        self._wake.set()

    async def _rejoin_later(self) -> None:
        await self._clock.sleep(rejoin_pause_s)
        self._rejoin_due = True
        self._wake.set()

    async def _try_rejoin(self) -> None:
        """Go on in a new plog if a server that is out of the active one can be in that."""
        self._rejoin, self._rejoin_due = None, False
        active = self._active
        if active.plog.is_whole or not await self._group_of(active).may_rejoin(active.plog):
            return
        if self._active is not active:
            return  # the plog was full meanwhile: the next one is in use, and its switch must be recorded first
        spare, self._spare = self._spare, None
        try:
            if spare is None or not self._brings_more(spare, active):
                spare = await self._another(spare)
        except PravegaError as error:
            if error.outcome is Outcome.FENCED:
                raise
            self.log.warning("no new plog for a server that is back", error=str(error))
            return
        if self._broken or self._active is not active or spare.plog.members <= active.plog.members:
            self._spare = spare
            return
        self.log.info("a plog server is back; going on in a new plog", servers=spare.plog.members)
        self._switch_to(spare)

    def _brings_more(self, plog: WritePlog, active: WritePlog) -> bool:
        """Whether more servers are in ``plog``, none of which was restarted since."""
        return plog.plog.members > active.plog.members and self._group_of(plog).is_current(plog.plog)

    async def _heal(self) -> None:
        """Hand the plog over; while appends make no progress, ever more slowly and for a limited time. A full server is
        waited for without a limit: it gets room once Tier 2 has what it holds."""
        if self.is_full:
            await self._wait_room()
            await self._give_up_full_spare()
            # A server at its very limit has room and refuses in turns; each hand-over leaves a record.
            await self._clock.sleep(self._full_delay_s)
            self._full_delay_s = min(self._full_delay_s * 2, retry_delay_max_s)
            self._stuck_since = None
        if self._stuck_since is None:
            self._stuck_since = Deadline.after(self._clock, self._client.settings.heal_time_max_s)
            self._stuck_delay_s = retry_delay_first_s
        elif self._stuck_since.expired:
            raise Unavailable(f"container {self._container_id}: appends made no progress; the log gave up")
        else:
            await self._clock.sleep(self._stuck_delay_s)
            self._stuck_delay_s = min(self._stuck_delay_s * 2, retry_delay_max_s)
        await self._patiently(self._hand_over)

    async def _wait_room(self) -> None:
        """Wait until a group has memory for the next plog, or the first frame may do without. Whatever else is wrong
        with the servers is left to the hand-over that follows."""
        while self._error is None and self._first_waiting >= self._urgent_below:
            looks = [await self._has_room(group) for group in self._client.groups_for_new_plogs]
            if True in looks or set(looks) == {None}:
                return
            await self._clock.sleep(room_look_s)

    async def _has_room(self, group: PersistenceGroupClient) -> bool | None:
        """``None`` if nobody can tell."""
        try:
            return await group.has_room()
        except PravegaError as error:
            self.log.warning("the memory of a group is not known", group=group.name, error=str(error))
            return None

    async def _give_up_full_spare(self) -> None:
        """Let the next plog be made in a group that has room, if the spare's has none."""
        spare = self._spare
        if spare is None or len(self._client.groups_for_new_plogs) == 1 or await self._has_room(self._group_of(spare)):
            return
        self._spare = None
        await self._free(spare.plog.plog_id)

    async def _patiently(self, action: Callable[[], Awaitable[None]], *, unless_broken: bool = False) -> None:
        """Repeat an action until it succeeds, for as long as the log may take to heal."""
        deadline = Deadline.after(self._clock, self._client.settings.heal_time_max_s)
        back_off = wait_exponential(multiplier=retry_delay_first_s, max=retry_delay_max_s)
        attempts = retrying(
            self._clock,
            wait=lambda state: min(back_off(state), deadline.remaining_s),
            stop=lambda: deadline.expired or self._error is not None,
            on_error=lambda error: self.log.warning("healing the log", error=str(error), left_s=deadline.remaining_s),
        )
        async for attempt in attempts:
            with attempt:
                if not (unless_broken and self._broken):
                    await self._explained(action)

    async def _explained(self, action: Callable[[], Awaitable[None]]) -> None:
        """Do it; what is gone was freed by a later owner, or lost."""
        try:
            await action()
        except DataCorruption as error:
            await self._manager.explain_loss(error)

    async def _create(self) -> WritePlog:
        """An empty plog of this owner, under a number of its own, in a group that takes appends."""
        number, self._next_number = self._next_number, self._next_number + 1
        group = self._client.choose_group(self._container_id)
        plog_id = PlogId(self._client.cluster_name, group.name, secrets.token_hex(16))
        block_bytes = self._client.settings.block_bytes
        header = PlogHeader(plog_id, self._container_id, self._stream, number, self._epoch, block_bytes)
        plog = WritePlog(number, await group.create(header))
        if group is not self._group_of(self._active):
            await group.open_for_appends()
        return plog

    def _group_of(self, plog: WritePlog) -> PersistenceGroupClient:
        return self._client.group_of(plog.plog.plog_id)

    async def _another(self, unfit: WritePlog | None) -> WritePlog:
        """A new plog in the place of one that was made before."""
        if unfit is not None:
            await self._free(unfit.plog.plog_id)
        return await self._create()

    async def _make_spare(self) -> None:
        self._spare = await self._create()
        failpoint(SPARE_CREATED)

    async def _finish_switch(self) -> None:
        """Seal the full plog and record that the active one follows it; then the active one's frames may be acked."""
        old, new = self._recorded, self._active
        sealed = await self._group_of(old).seal(old.plog, self._epoch, old.offset)
        check(sealed == old.offset, "a full plog was sealed early", sealed=sealed, offset=old.offset)
        failpoint(SWITCH_SEALED)
        record = PlogRecord(new.number, new.plog.plog_id, new.first_sequence, new.previous)
        await self._manager.record(SwitchRecord(self._stream, sealed, record))
        self._recorded, self._acked_offset = new, 0
        self._acknowledge()
        if sealed == 0:
            await self._free(old.plog.plog_id)

    async def _hand_over(self) -> None:
        """Decide what became of every unanswered append, and go on in a new plog."""
        self._generation += 1
        self._client.close()
        old = self._recorded
        fenced = await self._group_of(old).fence(old.plog.plog_id, self._epoch, old.plog)
        failpoint(HAND_OVER_FENCED)
        end = await self._settled_end(old, fenced)
        self._accept_found(end.payload_sizes)
        sealed = await fenced.seal(end.offset)
        check(sealed == end.offset, "a plog was sealed below its acknowledged end", sealed=sealed, offset=end.offset)
        failpoint(HAND_OVER_SEALED)
        abandoned = None if self._active is old else self._active
        if self._spare is not None:
            await self._group_of(self._spare).open_for_appends()
        new, self._spare = self._spare, None
        if new is None or not self._group_of(new).is_current(new.plog):
            new = await self._another(new)
        await self._group_of(new).open_for_appends()
        first_sequence = self._first_waiting
        record = PlogRecord(new.number, new.plog.plog_id, first_sequence, self._acked_last)
        await self._manager.record(SwitchRecord(self._stream, sealed, record))
        failpoint(HAND_OVER_RECORDED)
        self._active = self._recorded = new
        self._acked_offset, self._sent_last = 0, self._acked_last
        while self._sent:
            self._queue.appendleft(self._sent.pop())
        self._broken = False
        if not self._queue:
            self._stuck_since = None
        if sealed == 0:
            await self._free(old.plog.plog_id)
        if abandoned is not None:
            await self._free(abandoned.plog.plog_id)

    async def _settled_end(self, old: WritePlog, fenced: FencedPlog) -> PlogEnd:
        """The end of a fenced plog, up to which a majority of servers has it now."""
        chain = Chain(self._first_waiting, self._acked_last)
        try:
            end = await find_end(fenced.read(self._acked_offset, offset_max), old.number, self._acked_offset, chain)
        except DataCorruption as error:
            raise fenced.explained(error) from error
        await fenced.settle(end.offset, is_acked=True)
        return end

    @property
    def _first_waiting(self) -> int:
        return self._sent[0].sequence if self._sent else self._first_queued

    @property
    def _first_queued(self) -> int:
        return self._queue[0].sequence if self._queue else self._next_sequence

    def _accept_found(self, payload_sizes: list[int]) -> None:
        """Acknowledge the frames that were found in the fenced plog: a prefix of those sent to it."""
        for size in payload_sizes:
            check(bool(self._sent), "a frame in the plog that was never sent", log=self.name)
            frame = self._sent[0]
            check(
                frame.payload_bytes == size and frame.address.plog_number == self._recorded.number,
                "a frame in the plog differs from the one sent",
                sequence=frame.sequence,
                size=size,
            )
            frame.answered = True
            self._acknowledge()
        check(
            not self._sent or not self._sent[0].answered or self._sent[0].address.plog_number != self._recorded.number,
            "an answered frame is not in its plog",
            log=self.name,
        )

    async def _free(self, plog_id: PlogId) -> None:
        """Delete a plog that no record names; if that fails, the next owner's clean-up does it."""
        try:
            await self._client.group_of(plog_id).delete(plog_id, self._container_id, self._epoch)
        except PravegaError as error:
            if error.outcome is Outcome.REJECTED:
                raise
            self.log.warning("a plog was not deleted", plog_id=str(plog_id), error=str(error))

    def _end(self, error: PravegaError) -> None:
        """The log is over. What was sent and neither answered nor refused is unknown; the rest was not done."""
        if self._error is not None:
            return
        self._error = error
        self._generation += 1
        self._client.close()  # first, so that nothing more is sent of appends whose callers hear of the end
        unknown = UnknownOutcome(f"container {self._container_id}: {error}")
        refused = False
        for frame in self._sent:
            refused = refused or frame.refused
            fail_append(frame.future, error if refused else unknown)
        for frame in self._queue:
            fail_append(frame.future, error)
        self._sent.clear()
        self._queue.clear()
