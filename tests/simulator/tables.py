"""Counters in a table that several clients raise by conditional puts: no raise is lost, none counts twice."""

from __future__ import annotations

from dataclasses import dataclass

from pravega_common.errors import BadKeyVersion, Outcome, SegmentExists
from segment_service.contracts.table_store import TableEntry, TableInfo
from tests.simulator.clients import Client, World
from tests.simulator.history import Progress, SegmentHistory

keys_per_table = 4


@dataclass(slots=True)
class Counter:
    done: int = 0
    unknown: int = 0
    seen: int = 0
    """Highest count that anybody saw or was acknowledged, in ``epoch``."""
    epoch: int = 0


class TableHistory:
    """The history of one table."""

    def __init__(self, segment: SegmentHistory) -> None:
        self.segment = segment
        self.counters = {b"counter-%d" % number: Counter() for number in range(keys_per_table)}

    def floor(self, key: bytes) -> tuple[int, int]:
        """The count that a call sent now must find, and the epoch from which on it must."""
        return self.counters[key].seen, self.counters[key].epoch

    def saw(self, key: bytes, count: int, epoch: int, floor: tuple[int, int] = (0, 0)) -> None:
        counter = self.counters[key]
        if count < floor[0] and epoch >= floor[1]:
            self.segment.violated("lost", f"{key!r} was {floor[0]}, and is {count} in epoch {epoch}")
        if count > counter.done + counter.unknown:
            text = f"{key!r} is {count}; {counter.done} raises were done and {counter.unknown} are unknown"
            self.segment.violated("duplicated", text)
        if count > counter.seen:
            counter.seen, counter.epoch = count, epoch


class TableClient(Client):
    """One of several clients of a table; the first one creates it."""

    def __init__(self, world: World, table: TableHistory, number: int) -> None:
        super().__init__(world, f"table {table.segment} {number}")
        self.table = table
        self._filler = self.rng.choice((0, 200, min(40_000, world.settings.block_bytes_max)))

    async def create(self) -> None:
        segment, name = self.table.segment, self.table.segment.name
        segment.created = Progress.ASKED
        answer = await self.insist(name, lambda store: store.tables.create_table(name), SegmentExists)
        if answer.error is not None:
            segment.violated("broken", f"a new table cannot be created: {answer.error}")
        segment.created, segment.created_epoch = Progress.DONE, answer.epoch
        await self.learn_id(segment)

    async def run(self) -> None:
        while not self.world.is_ending:
            if not self.world.is_busy:
                await self._raise()
            await self.pause(self.world.settings.pause_max_s * 2)

    async def _raise(self) -> None:
        found = await self._get(self.rng.choice(list(self.table.counters)))
        if found is None:
            return
        entry, count = found
        name, counter = self.table.segment.name, self.table.counters[entry.key]
        value = b"%d " % (count + 1) + bytes(self.rng.randrange(self._filler + 1))
        counter.unknown += 1  # from here on it may be done
        self.world.made(len(value))
        put = TableEntry(entry.key, value, entry.version)
        answer = await self.call(name, lambda store: store.tables.put(name, [put]), counts_late=lambda: True)
        error = answer.error
        if error is not None and error.outcome is Outcome.UNKNOWN:
            return
        counter.unknown -= 1
        if error is None:
            counter.done += 1
            self.table.saw(entry.key, count + 1, answer.epoch)
            self.world.event_acked(name, answer.epoch)
        elif error.outcome is Outcome.REJECTED and not isinstance(error, BadKeyVersion):
            self.missing(self.table.segment, answer)

    async def _get(self, key: bytes) -> tuple[TableEntry, int] | None:
        segment, name = self.table.segment, self.table.segment.name
        floor = self.table.floor(key)
        answer = await self.call(name, lambda store: store.tables.get(name, [key]))
        if self.missing(segment, answer) or answer.error is not None or answer.epoch < segment.created_epoch:
            return None
        entry: TableEntry = answer.value[0]
        count = int(entry.value.split(b" ")[0] or b"0")
        self.table.saw(key, count, answer.epoch, floor)
        return entry, count

    async def check(self) -> None:
        """At the end, when nothing fails any more: every counter is there, and its table counts them right."""
        for key in self.table.counters:
            for _ in range(50):
                found = await self._get(key)
                if found is not None:
                    counter = self.table.counters[key]
                    if found[1] < counter.done:
                        self.table.segment.violated("lost", f"{key!r} is {found[1]}, {counter.done} raises were done")
                    break
                await self.pause()
        name = self.table.segment.name
        answer = await self.insist(name, lambda store: store.tables.table_info(name))
        expected = sum(counter.seen > 0 for counter in self.table.counters.values())
        if isinstance(answer.value, TableInfo) and answer.value.entry_count != expected:
            text = f"{expected} keys were put, the table has {answer.value.entry_count}"
            self.table.segment.violated("broken", text)
