"""Readers: at the tail, and anywhere in the history of a segment."""

from __future__ import annotations

from pravega_common.errors import BadOffset, SegmentSealed, SegmentTruncated
from tests.simulator.clients import Client, World
from tests.simulator.history import Floor, Progress, SegmentHistory
from tests.simulator.sessions import Answer

tail_wait_max_s = 4.0


class Reader(Client):
    """Reads one segment until it is cancelled; every byte is compared with all that is known."""

    def __init__(self, world: World, segment: SegmentHistory, number: int) -> None:
        super().__init__(world, f"reader {segment} {number}")
        self.segment = segment
        self._tail = 0

    async def run(self) -> None:
        while not (self.segment.may_be_gone and self.segment.deleted is Progress.DONE):
            if self.rng.random() < 0.1:
                await self._look()
            else:
                await self._read()
            await self.pause(self.world.settings.pause_max_s * 2)

    async def _look(self) -> None:
        segment, name = self.segment, self.segment.name
        floor = segment.floor()
        answer = await self.call(name, lambda store: store.segments.get_info(name))
        if self.missing(segment, answer) or answer.error is not None or answer.epoch < segment.created_epoch:
            return
        segment.length_seen(answer.value.length, answer.epoch, floor)
        segment.start_seen(answer.value.start_offset)
        self._sealed_seen(answer.value.is_sealed)

    async def _read(self) -> None:
        segment, name = self.segment, self.segment.name
        at_tail = self.rng.random() < 0.5
        first = segment.truncation_done
        offset = self._tail if at_tail else self.rng.randint(first, max(first, segment.length_acked))
        floor = segment.floor()
        wanted = min(self.rng.choice((1, 100, 5_000, 200_000, 2_000_000)), self.world.settings.read_bytes_max)
        answer = await self.call(
            name, lambda store: store.segments.read(name, offset, wanted), time_max_s=tail_wait_max_s
        )
        if self.missing(segment, answer) or answer.epoch < segment.created_epoch:
            return
        if answer.error is not None:
            self._refused(offset, answer, floor)
            return
        result = answer.value
        data = b"".join(bytes(view) for view in result.data)
        segment.learn(offset, data, f"a read in epoch {answer.epoch}")
        segment.length_at_least(offset + len(data), answer.epoch)
        self._sealed_seen(result.end_of_segment)
        if at_tail:
            self._tail = offset + len(data)

    def _refused(self, offset: int, answer: Answer, floor: Floor) -> None:
        segment, error = self.segment, answer.error
        if isinstance(error, SegmentTruncated):
            segment.start_seen(error.start_offset)
            self._tail = max(self._tail, error.start_offset)
        elif isinstance(error, SegmentSealed):  # of this incarnation: answers of earlier owners came no further
            self._sealed_seen(True)
        elif isinstance(error, BadOffset) and offset <= floor.length and answer.epoch >= floor.epoch:
            segment.violated("lost", f"its length was {floor.length}; reading at {offset}: {error}")

    def _sealed_seen(self, is_sealed: bool) -> None:
        if is_sealed and self.segment.sealed is Progress.NOT_ASKED and self.segment.merged is Progress.NOT_ASKED:
            self.segment.violated("broken", "it is sealed, and nobody sealed it")
