"""Deletes objects of one container, when it is proven that nobody can need them any more.

Deleting is the only thing with which an owner that was fenced without knowing it could do harm. So a name is deleted
only after ``barrier`` returned, called after the manifest without that name was stored: whoever owns the container
later opens its log after that barrier, and so sees that manifest. And a name with a higher epoch is never deleted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from pravega_common.errors import Fenced, PravegaError
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.runtime.service import Service
from segment_service.storage.chunk_names import Layout
from segment_service.storage.chunk_storage import ChunkStorage
from segment_service.storage.segment_storage import Barrier

BARRIER_PASSED = register("storage.garbage.barrier_passed")
ONE_DELETED = register("storage.garbage.one_deleted")

waiting_names_max = 200_000
"""Names that wait for deletion; more are left for the sweep of the next epoch."""

names_per_barrier_max = 1_000
"""Names deleted after one barrier."""

gathering_time_s = 1.0
"""How long names are gathered before a barrier is asked for them."""

retry_delay_max_s = 30.0
"""Longest wait after a failed round."""

groups_at_once_max = 4
"""Groups deleted at the same time."""


class GarbageCollector(Service):
    """A queue of groups of names. The names of one group are deleted in order, groups in any order."""

    def __init__(self, container_id: int, chunks: ChunkStorage, layout: Layout, clock: Clock) -> None:
        super().__init__(f"storage-garbage-{container_id}")
        self.deleted_names = 0
        self.dropped_names = 0
        self.epoch = 0
        self._barrier: Barrier | None = None
        self._chunks = chunks
        self._layout = layout
        self._clock = clock
        self._groups: deque[tuple[str, ...]] = deque()
        self._waiting = 0
        self._wake = asyncio.Event()

    def open(self, epoch: int, barrier: Barrier) -> None:
        """Set what ``collect`` needs; called before ``start``."""
        self.epoch = epoch
        self._barrier = barrier

    async def on_start(self) -> None:
        self.spawn(self._run(), "collect")

    @property
    def waiting_names(self) -> int:
        return self._waiting

    def discard(self, names: Sequence[str]) -> None:
        """Delete these in order, some time after the next barrier. The manifest without them must be stored."""
        if not names:
            return
        if self._waiting + len(names) > waiting_names_max:
            self.dropped_names += len(names)
            return
        self._waiting += len(names)
        self._groups.append(tuple(names))
        self._wake.set()

    async def collect(self) -> int:
        """One round: barrier, then delete what was waiting before it. How many names went."""
        taken: list[tuple[str, ...]] = []
        count = 0
        while self._groups and count < names_per_barrier_max:
            taken.append(self._groups.popleft())
            count += len(taken[-1])
        if not taken or self._barrier is None:
            return 0
        try:
            for group in taken:
                self._check_epochs(group)
            await self._barrier()
            failpoint(BARRIER_PASSED)
            for first in range(0, len(taken), groups_at_once_max):
                await self._delete(taken[first : first + groups_at_once_max])
        except BaseException:
            self._groups.extendleft(reversed(taken))
            raise
        self._waiting -= count
        self.deleted_names += count
        return count

    def _check_epochs(self, names: Sequence[str]) -> None:
        for name in names:
            if self._layout.epoch_in(name) > self.epoch:
                raise Fenced(f"epoch {self.epoch} may not delete {name}, which a later owner made")

    async def _delete(self, groups: Sequence[tuple[str, ...]]) -> None:
        results = await asyncio.gather(*(self._delete_in_order(group) for group in groups), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _delete_in_order(self, names: Sequence[str]) -> None:
        for name in names:
            await self._chunks.delete(name)
            failpoint(ONE_DELETED)

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._clock.sleep(min(retry_delay_max_s, gathering_time_s * 2**failures))
            try:
                await self.collect()
                failures = 0
            except Fenced as error:
                self.log.warning("garbage is left to the next owner", reason=str(error))
                return
            except PravegaError as error:
                failures = min(failures + 1, 10)
                self.log.warning("garbage could not be deleted", error=str(error), names=self._waiting)
            if self._groups:
                self._wake.set()
