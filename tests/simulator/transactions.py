"""Transactions: segments of their own that are written, and then merged into another one or dropped."""

from __future__ import annotations

import asyncio

from pravega_common.errors import Outcome, SegmentExists, SegmentNotFound, SegmentSealed
from tests.simulator.clients import Client, World
from tests.simulator.history import MergeHistory, Progress, SegmentHistory
from tests.simulator.writers import Writer


class Transactions(Client):
    """One transaction after the other into one target, until ``finish``."""

    def __init__(self, world: World, target: SegmentHistory) -> None:
        super().__init__(world, f"transactions {target}")
        self._target = target
        self._is_finishing = False

    def finish(self) -> None:
        self._is_finishing = True

    async def run(self) -> None:
        while not self._is_finishing:
            await self.pause(3.0)
            if self._target.may_be_gone:
                return
            await self._one()

    async def _one(self) -> None:
        source = self.world.history.new_segment("")
        source.name = name = f"{self._target.name}#transaction.{source.key:032x}"
        source.created = Progress.ASKED
        answer = await self.insist(name, lambda store: store.segments.create_segment(name), SegmentExists)
        if answer.error is not None:
            source.violated("broken", f"a new transaction cannot be created: {answer.error}")
        source.created, source.created_epoch = Progress.DONE, answer.epoch
        await self.learn_id(source)
        await Writer(self.world, source, 1, count=self.rng.choice((0, 1, 3, 10))).run()
        if self.rng.random() < 0.3:
            await asyncio.sleep(self.rng.uniform(0, 4))  # long enough to be flushed under its own id
        if self.rng.random() < 0.2 or not await self._merge(source):
            await self._drop(source)

    async def _merge(self, source: SegmentHistory) -> bool:
        """Whether it was merged; decided when this returns."""
        target, names = self._target, (self._target.name, source.name)
        merge = target.merges[source.key] = MergeHistory(source)
        source.merged = Progress.ASKED
        was_unknown = False
        while True:
            answer = await self.call(target.name, lambda store: store.segments.merge(*names))
            error = answer.error
            if error is not None and not self.is_fresh(target.name, answer):
                was_unknown = was_unknown or error.outcome is Outcome.UNKNOWN
                await self.pause()
                continue
            if error is None:
                self._merged(merge, answer.value.target_length, answer.value.merged_length, answer.epoch)
                return True
            if isinstance(error, SegmentNotFound) and error.segment == source.name and was_unknown:
                merge.progress = source.merged = Progress.DONE
                return True
            was_unknown = was_unknown or error.outcome is Outcome.UNKNOWN
            if isinstance(error, SegmentNotFound | SegmentSealed) and not await self._is_there(source):
                if not was_unknown:
                    source.violated("lost", f"it disappeared without a merge: {error}")
                merge.progress = source.merged = Progress.DONE
                return True
            if isinstance(error, SegmentNotFound | SegmentSealed):
                self._refused(source, error)
                return False
            await self.pause()

    def _merged(self, merge: MergeHistory, end: int, length: int, epoch: int) -> None:
        source, target = merge.source, self._target
        merge.progress = source.merged = Progress.DONE
        merge.end = end
        content = source.content
        if length != len(content):
            source.violated("lost", f"{len(content)} bytes were stored, {length} were merged")
        else:
            target.learn(end - length, content, f"the merge of {source}")
        target.length_at_least(end, epoch)
        self.world.event_acked(target.name, epoch)

    def _refused(self, source: SegmentHistory, error: Exception) -> None:
        """The target takes no more: it is sealed or gone, and somebody must have asked for that."""
        target = self._target
        if target.sealed is Progress.NOT_ASKED and not target.may_be_gone:
            target.violated("broken", f"a merge was refused without a reason: {error}")
        del target.merges[source.key]
        source.merged = Progress.NOT_ASKED

    async def _is_there(self, source: SegmentHistory) -> bool:
        return (await self.look(source.name)).error is None

    async def _drop(self, source: SegmentHistory) -> None:
        name, source.deleted = source.name, Progress.ASKED
        await self.insist(name, lambda store: store.segments.delete(name), SegmentNotFound)
        source.deleted = Progress.DONE
