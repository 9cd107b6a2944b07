"""Lets a transaction's flush land after its target took over the bytes and began to write them, and the owner died.

A transaction is flushed under its own id, and the puts of its manifests are stuck on their way. It is merged; Tier 2
has nothing of it, so its bytes join those of its target, which are written in pieces. The owner dies between two of
them, and only then do the puts land. The next owner finds a target that has a part of the merge, and a source that
nobody needs any more: it must write the rest, and delete the source.

Random faults do not come here: each of the four steps is rare, and none may come before the one before it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from segment_service.storage.chunk_names import Layout
from tests.simulator.cluster import Cluster
from tests.simulator.crash_points import CrashPoints
from tests.simulator.history import History, Progress, SegmentHistory
from tests.simulator.settings import Settings
from tests.simulator.tier2 import Tier2

SOURCE_DELETED: Final = "writer.source_deleted_before_metadata"
look_s: Final = 0.02
"""Virtual time between two looks for what is waited for: less than any transaction waits for its flush."""
step_time_max_s: Final = 15.0
"""Virtual time after which a step that has not come is given up."""
pieces_max: Final = 6
"""Manifests of the target after the merge, behind one of which its owner dies."""


class LateSources:
    """``run`` goes on until it is cancelled; ``heal`` lets everything through. Draws from a generator of its own."""

    def __init__(
        self,
        settings: Settings,
        cluster: Cluster,
        tier2: Tier2,
        history: History,
        crash_points: CrashPoints,
        note: Callable[[str], None],
    ) -> None:
        self._rng = random.Random(f"{settings.seed} late sources plan")
        self._cluster = cluster
        self._puts = tier2.faulty
        self._objects = tier2.store.objects
        self._history = history
        self._crash_points = crash_points
        self._note = note
        self._tried: set[int] = set()
        """Keys of transactions."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(look_s)
            source = self._new_transaction()
            if source is not None:
                self._tried.add(source.key)
                try:
                    await self._let_land_late(source)
                finally:
                    self.heal()

    def heal(self) -> None:
        self._puts.stuck_prefix = ""
        self._puts.on_put = None

    def _new_transaction(self) -> SegmentHistory | None:
        """The newest segment, if it is a transaction that Tier 2 has nothing of."""
        source = next(reversed(self._history.segments.values()), None)
        if source is None or "#transaction." not in source.name or source.segment_id < 0 or source.may_be_gone:
            return None
        prefix = self._manifests_of(source)
        if source.key in self._tried or any(name.startswith(prefix) for name in self._objects):
            return None
        return source

    def _manifests_of(self, segment: SegmentHistory) -> str:
        return Layout(self._cluster.container_of(segment.name)).manifests_of(segment.segment_id)

    async def _let_land_late(self, source: SegmentHistory) -> None:
        before = self._puts.stuck_puts
        self._puts.stuck_prefix = self._manifests_of(source)
        if not await self._comes(lambda: source.may_be_gone) or source.merged is Progress.NOT_ASKED:
            return
        target = next(segment for segment in self._history.segments.values() if source.key in segment.merges)
        if not await self._comes(lambda: source.merged is Progress.DONE) or self._puts.stuck_puts == before:
            return
        if not await self._pieces(self._manifests_of(target), self._rng.randint(1, pieces_max)):
            return
        self._note("fault: a merged transaction lands late")
        self._cluster.kill(self._cluster.owner_of(target.name).process, "while its target is written in pieces")
        await self._puts.land_late_puts()
        self.heal()
        if self._rng.random() < 0.8:
            self._crash_points.ask_for(SOURCE_DELETED)
        await asyncio.sleep(self._rng.uniform(0, 1))
        if not self._cluster.current.process.is_alive:
            self._cluster.start_store()
        await self._comes(lambda: not self._cluster.current.process.is_alive)
        if not self._cluster.current.process.is_alive:
            self._cluster.start_store()

    async def _pieces(self, prefix: str, count: int) -> bool:
        """Wait for so many puts of these manifests."""
        seen = 0
        enough = asyncio.Event()

        def on_put(name: str) -> None:
            nonlocal seen
            seen += name.startswith(prefix)
            if seen >= count:
                enough.set()

        self._puts.on_put = on_put
        try:
            async with asyncio.timeout(step_time_max_s):
                await enough.wait()
        except TimeoutError:
            return False
        return True

    async def _comes(self, is_so: Callable[[], bool]) -> bool:
        ends_s = asyncio.get_running_loop().time() + step_time_max_s
        while not is_so():
            if asyncio.get_running_loop().time() > ends_s:
                return False
            await asyncio.sleep(look_s)
        return True
