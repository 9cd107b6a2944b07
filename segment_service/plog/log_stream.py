"""Writes a log stream: an endless log over a list of plogs, of which only the last one is open.

Appends are sent at once and acknowledged in order. Everything slow happens in one control task:

* a full plog is followed by the pre-allocated spare; frames go there while the switch is being recorded, and are
  acknowledged only after it is;
* when an append was refused or its answer lost, the plog is *handed over*: fenced, read back, sealed at the last
  contiguous frame, which is recorded; then frames found are acknowledged, and the missing suffix goes first into a new
  plog, at the same epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import Final

from pravega_common.errors import DataCorruption, Outcome, PravegaError, Unavailable, UnknownOutcome
from pravega_common.invariants import check
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.base import Service
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.checksums import checksum_of
from segment_service.contracts.data_log import LogAddress
from segment_service.plog.append_quorum import means_full
from segment_service.plog.appends import frame_bytes, frame_refusal
from segment_service.plog.chain import Chain, PlogEnd, find_end, offset_max
from segment_service.plog.entry import PlogEntryHeader, PlogEntryKind, encode_envelope, envelope_bytes
from segment_service.plog.frame_window import FrameWindow, PendingFrame
from segment_service.plog.group_contract import FencedPlog, OpenPlog
from segment_service.plog.metadata_manager import MetadataManager
from segment_service.plog.metadata_records import PlogRecord, SwitchRecord
from segment_service.plog.patience import Patience
from segment_service.plog.persistence_group import PersistenceClient
from segment_service.plog.plog_client import AppendRefused
from segment_service.plog.plog_supply import PlogSupply, WritePlog
from segment_service.plog.redis_connection import ReplyError
from segment_service.plog.truncation import PlogTruncation

room_look_s: Final = 0.1
"""Pause between two looks at the memory of a server that is full."""
rejoin_pause_s: Final = 5.0
"""How long a plog that a server is out of is kept before the next one is tried, which would have it again."""

SWITCH_SEALED = register("plog.stream.switch_sealed")
HAND_OVER_FENCED = register("plog.stream.hand_over_fenced")
HAND_OVER_SEALED = register("plog.stream.hand_over_sealed")
HAND_OVER_RECORDED = register("plog.stream.hand_over_recorded")


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
        self._supply = PlogSupply(stream, container_id, manager.epoch, client, first)
        self._truncation = PlogTruncation(stream, container_id, manager, client, self._supply)
        self._patience = Patience(container_id, clock, client.settings.heal_time_max_s)
        self._window = FrameWindow(chain.next_sequence or 0)
        self._active = self._recorded = first
        self._sent_last = self._acked_last = chain.last
        self._acked_offset = 0  # end of the last acknowledged frame in the recorded plog
        self.acked_frames = chain.next_sequence or 0
        """The number of the first frame that was not acknowledged."""
        self._generation = 0
        self._broken = False
        self._error: PravegaError | None = None
        self._wake = asyncio.Event()
        self._full = asyncio.Event()
        self._rejoin: asyncio.Task[None] | None = None
        self._rejoin_due = False
        self.failures_total = 0
        """See ``DurableDataLog.failures_total``."""
        self._urgent_below = 0
        """Frames with a lower sequence may exceed the memory that the servers allow."""

    async def on_start(self) -> None:
        await self._supply.group_of(self._recorded).open_for_appends()
        self._recorded.first_sequence = self._window.next_sequence
        self.spawn(self._control(), "control")

    async def on_stop(self) -> None:
        if self._error is None:
            self._end(UnknownOutcome(f"container {self._container_id}: log closed before the append was acknowledged"))
            self._error = Unavailable(f"container {self._container_id}: the log is closed")

    @property
    def acked_last(self) -> LogAddress | None:
        """The address of the last acknowledged frame, also of an earlier owner."""
        return self._acked_last

    @property
    def next_sequence(self) -> int:
        return self._window.next_sequence

    @property
    def acked_end(self) -> tuple[int, LogAddress]:
        """The number of the first frame that is not acknowledged, and where the last acknowledged one ends."""
        return self._window.first_waiting, LogAddress(self._recorded.number, self._acked_offset)

    def append(self, frame: Sequence[Buffer], checksum: int | None = None) -> asyncio.Future[LogAddress]:
        """See ``DurableDataLog.append``."""
        future: asyncio.Future[LogAddress] = asyncio.get_running_loop().create_future()
        size = frame_bytes(frame)
        refusal = self._error or frame_refusal(size)
        if refusal is not None:
            future.set_exception(refusal)
            return future
        self._window.add(frame, size, checksum_of(frame) if checksum is None else checksum, future)
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
        self._urgent_below = self._window.next_sequence

    async def truncate(self, up_to: LogAddress) -> None:
        """See ``DurableDataLog.truncate``."""
        if self._error is not None:
            raise self._error
        await self._patiently(lambda: self._truncation.record(up_to, self._acked_last))
        await self._truncation.delete_dropped()

    def _send(self) -> None:
        """Send what is queued, until the window's owner, a full plog or a broken connection stops it."""
        queue = self._window.queue
        while queue and not self._broken and self._error is None:
            frame = queue[0]
            size = envelope_bytes + frame.payload_bytes
            if self._active.offset + size > self._client.settings.block_bytes:
                spare = self._supply.take_spare() if self._active is self._recorded else None
                if spare is None:
                    return  # the control task makes room and calls again
                self._switch_to(spare)
            queue.popleft()
            self._send_one(frame, size)

    def _switch_to(self, plog: WritePlog) -> None:
        """Let the next frame go to ``plog``; the control task records that."""
        plog.first_sequence, plog.previous = self._window.first_queued, self._sent_last
        self._active = plog
        self._wake.set()

    def _send_one(self, frame: PendingFrame, size: int) -> None:
        plog, sent = self._active, self._window.sent
        acked = sent[0].sequence if sent else frame.sequence
        header = PlogEntryHeader(PlogEntryKind.DATA, self._epoch, frame.sequence, acked, self._sent_last)
        envelope = encode_envelope(header, frame.payload_bytes, frame.checksum)
        frame.address = self._sent_last = LogAddress(plog.number, plog.offset)
        frame.answered = frame.refused = False
        sent.append(frame)
        start, plog.offset = plog.offset, plog.offset + size
        generation = self._generation

        def done(error: BaseException | None) -> None:
            if generation == self._generation:
                self._on_answer(frame, error)

        group = self._supply.group_of(plog)
        append = group.append_urgent if frame.sequence < self._urgent_below else group.append
        append(plog.plog, start, (envelope, *frame.parts), size, done)

    def _on_answer(self, frame: PendingFrame, error: BaseException | None) -> None:
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
        sent = self._window.sent
        while sent and sent[0].answered and sent[0].address.plog_number == self._recorded.number:
            frame = sent.popleft()
            self._full.clear()
            self._acked_last = frame.address
            self.acked_frames = frame.sequence + 1
            self._acked_offset = frame.address.offset + envelope_bytes + frame.payload_bytes
            self._patience.acknowledged()
            if not frame.future.done():
                frame.future.set_result(frame.address)
        if self._switch_is_due:
            self._wake.set()

    @property
    def _switch_is_due(self) -> bool:
        """Whether a switch waits to be recorded and the old plog has no unanswered frame left."""
        if self._active is self._recorded:
            return False
        sent = self._window.sent
        return not sent or sent[0].address.plog_number != self._recorded.number

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
                elif self._supply.spare is None and self._active is self._recorded:
                    await self._patiently(lambda: self._supply.make_spare(self._active), unless_broken=True)
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
        if active.plog.is_whole or not await self._supply.group_of(active).may_rejoin(active.plog):
            return
        if self._active is not active:
            return  # the plog was full meanwhile: the next one is in use, and its switch must be recorded first
        spare = self._supply.take_spare()
        try:
            if spare is None or not self._supply.brings_more(spare, active):
                spare = await self._supply.another(spare, active)
        except PravegaError as error:
            if error.outcome is Outcome.FENCED:
                raise
            self.log.warning("no new plog for a server that is back", error=str(error))
            return
        if self._broken or self._active is not active or spare.plog.members <= active.plog.members:
            self._supply.spare = spare
            return
        self.log.info("a plog server is back; going on in a new plog", servers=spare.plog.members)
        self._switch_to(spare)

    async def _heal(self) -> None:
        """Hand the plog over; while appends make no progress, ever more slowly and for a limited time. A full server is
        waited for without a limit: it gets room once Tier 2 has what it holds."""
        self.failures_total += 1
        if self.is_full:
            await self._wait_room()
            await self._supply.give_up_full_spare()
            await self._patience.after_full()
        await self._patience.before_hand_over()
        await self._patiently(self._hand_over)

    async def _wait_room(self) -> None:
        """Wait until a group has memory for the next plog, or the first frame may do without. Whatever else is wrong
        with the servers is left to the hand-over that follows."""
        while self._error is None and self._window.first_waiting >= self._urgent_below:
            if await self._supply.may_have_room():
                return
            await self._clock.sleep(room_look_s)

    async def _patiently(self, action: Callable[[], Awaitable[None]], *, unless_broken: bool = False) -> None:
        """Repeat an action until it succeeds, for as long as the log may take to heal."""

        async def attempt() -> None:
            if not (unless_broken and self._broken):
                await self._explained(action)

        await self._patience.repeat(attempt, lambda: self._error is not None)

    async def _explained(self, action: Callable[[], Awaitable[None]]) -> None:
        """Do it; what is gone was freed by a later owner, or lost."""
        try:
            await action()
        except DataCorruption as error:
            await self._manager.explain_loss(error)

    async def _finish_switch(self) -> None:
        """Seal the full plog and record that the active one follows it; then the active one's frames may be acked."""
        old, new = self._recorded, self._active
        sealed = await self._supply.group_of(old).seal(old.plog, self._epoch, old.offset)
        check(sealed == old.offset, "a full plog was sealed early", sealed=sealed, offset=old.offset)
        failpoint(SWITCH_SEALED)
        record = PlogRecord(new.number, new.plog.plog_id, new.first_sequence, new.previous)
        await self._manager.record(SwitchRecord(self._stream, sealed, record))
        self._recorded, self._acked_offset = new, 0
        self._acknowledge()
        if sealed == 0:
            await self._supply.free(old.plog.plog_id)

    async def _hand_over(self) -> None:
        """Decide what became of every unanswered append, and go on in a new plog."""
        self._generation += 1
        self._client.close()
        old = self._recorded
        fenced = await self._supply.group_of(old).fence(old.plog.plog_id, self._epoch, old.plog)
        failpoint(HAND_OVER_FENCED)
        first_waiting = self._window.first_waiting
        chain = Chain(first_waiting, self._acked_last)
        end = await self._settled_end(old, fenced, chain)
        found = self._found(end.payload_sizes)
        sealed = await fenced.seal(end.offset)
        check(sealed == end.offset, "a plog was sealed below its acknowledged end", sealed=sealed, offset=end.offset)
        failpoint(HAND_OVER_SEALED)
        abandoned = None if self._active is old else self._active
        new = self._supply.take_spare()
        if new is None or not await self._supply.is_fit(new):
            new = await self._supply.another(new, self._active)
        await self._supply.group_of(new).open_for_appends()
        record = PlogRecord(new.number, new.plog.plog_id, first_waiting + len(found), chain.last)
        self._supply.propose(new)
        await self._manager.record(SwitchRecord(self._stream, sealed, record))
        failpoint(HAND_OVER_RECORDED)
        self._accept(found)
        self._active = self._recorded = new
        self._acked_offset, self._sent_last = 0, self._acked_last
        self._window.send_again()
        self._broken = False
        if not self._window.queue:
            self._patience.nothing_waits()
        if sealed == 0:
            await self._supply.free(old.plog.plog_id)
        if abandoned is not None:
            await self._supply.free(abandoned.plog.plog_id)
        await self._supply.free_proposed(self._manager.plogs())

    async def _settled_end(self, old: WritePlog, fenced: FencedPlog, chain: Chain) -> PlogEnd:
        """The end of a fenced plog, up to which a majority of servers has it now; ``chain`` is followed up to there."""
        try:
            end = await find_end(fenced.read(self._acked_offset, offset_max), old.number, self._acked_offset, chain)
        except DataCorruption as error:
            raise fenced.explained(error) from error
        await fenced.settle(end.offset, is_acked=True)
        return end

    def _found(self, payload_sizes: Sequence[int]) -> list[PendingFrame]:
        """The frames that were found in the fenced plog: a prefix of those sent to it."""
        sent = self._window.sent
        check(len(payload_sizes) <= len(sent), "a frame in the plog that was never sent", log=self.name)
        found = list(islice(sent, len(payload_sizes)))
        for frame, size in zip(found, payload_sizes, strict=True):
            check(
                frame.payload_bytes == size and frame.address.plog_number == self._recorded.number,
                "a frame in the plog differs from the one sent",
                sequence=frame.sequence,
                size=size,
            )
        behind = next(islice(sent, len(found), None), None)
        check(
            behind is None or not behind.answered or behind.address.plog_number != self._recorded.number,
            "an answered frame is not in its plog",
            log=self.name,
        )
        return found

    def _accept(self, found: Sequence[PendingFrame]) -> None:
        """Acknowledge the frames that a hand-over found, once it is recorded.

        Only the record proves that nobody took over: what was fenced and completed may be the copy of one server that a
        later owner did not reach when it fenced this plog on the others, read it, and perhaps freed it.
        """
        for frame in found:
            frame.answered = True
        self._acknowledge()

    def _end(self, error: PravegaError) -> None:
        """The log is over. What was sent and neither answered nor refused is unknown; the rest was not done."""
        if self._error is not None:
            return
        self._error = error
        self._generation += 1
        self._client.close()  # first, so that nothing more is sent of appends whose callers hear of the end
        unknown = UnknownOutcome(f"container {self._container_id}: {error}")
        unknown.__cause__ = error
        self._window.fail(error, unknown)
