"""Looks at the end of a run for objects in Tier 2 that nothing refers to, and for those that are missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

from pravega_common.errors import PravegaError
from pravega_common.runtime.clock import Clock
from segment_service.container.segment_container import SegmentContainer
from segment_service.maintenance.read_only import ContainerReader
from segment_service.storage.foreign_owners import origins
from segment_service.storage.rolling_storage import RollingStorage
from segment_service.storage.segment_view import SegmentView
from tests.simulator.cluster import Cluster
from tests.simulator.tier2 import Tier2

names_deleted_max: Final = 2_000
"""Names that one owner may find for deletion: over more the simulator's Tier 2 takes too long, nothing is compared."""
rounds: Final = 3
"""Owners one after the other that sweep: each leaves its claims on what it takes away to the next one."""


class Leftovers:
    """Lets owners sweep, and compares what Tier 2 has with what its manifests list."""

    def __init__(
        self,
        cluster: Cluster,
        tier2: Tier2,
        clock: Clock,
        violated: Callable[[str, str], None],
        note: Callable[[str], None],
    ) -> None:
        self._note = note
        self._cluster = cluster
        self._tier2 = tier2
        self._clock = clock
        self._violated = violated

    async def check(self) -> None:
        """Report what is left of earlier owners, and what is missing."""
        await self._tier2.faulty.puts_ended()
        for _ in range(rounds):
            for store in self._cluster.alive:
                self._cluster.kill(store.process, "to sweep once more")
            store = self._cluster.start_store()
            for container_id in store.containers:
                waiting = await self._swept(container_id)
                if waiting:
                    self._note(f"leftovers are not looked for: {waiting} names wait for their deletion")
                    return
        for container_id in self._cluster.current.containers:
            await self._compare(container_id)

    async def _swept(self, container_id: int) -> int:
        """Return once the present owner has swept, and deleted what it found; the number of names if these are too
        many to be waited for."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        process = self._cluster.current.process

        async def sweep() -> None:
            while not done.done():
                container = self._cluster.current.registry.find(container_id)
                if container is not None:
                    try:
                        storage = _storage_of(container)
                        await storage.sweeper.sweep()
                        waiting = storage.garbage.waiting_names
                        if waiting <= names_deleted_max:
                            await _emptied(storage)
                        done.set_result(waiting if waiting > names_deleted_max else 0)
                    except PravegaError:
                        pass  # it is asked again
                    except Exception as error:
                        done.set_exception(error)
                await asyncio.sleep(0.5)

        process.spawn(sweep(), f"sweep-{container_id}")
        return await done

    async def _compare(self, container_id: int) -> None:
        reader = ContainerReader(self._tier2.store, container_id, self._clock)
        container = self._cluster.current.registry.find(container_id)
        if container is None:
            self._violated("offline", f"container {container_id} went after it had swept")
            return
        await _emptied(_storage_of(container))  # from here on nothing is awaited that takes time
        needed = container._needed  # private: what the sweep goes by
        layout, epoch = reader.layout, await reader.epoch_max()
        live: set[str] = set()
        needless: set[str] = set()
        async for view in self._views(reader):
            listed = {layout.chunk(chunk.id) for chunk in view.chunks}
            manifests = {layout.manifest(name) for name in (view.name, view.base_name) if name is not None}
            live |= manifests
            if not view.exists:
                if view.is_deleted:
                    needless |= manifests
                continue
            live |= listed
            for segment_id in origins(view.segment_id, view.chunks):
                prefix = f"{layout.foreign_owners_of(segment_id)}{view.segment_id:016x}-"
                names = {info.name async for info in reader.chunks.list(prefix)}
                listed |= names or {prefix}
                live |= names
            if not await needed.length(view.segment_id):
                # A late put may have brought a manifest back, and what it lists may be gone; or the container has only
                # just recovered the segment, and has not compared it with Tier 2 yet.
                continue
            missing = listed - await self._names(reader, listed)
            if missing:
                self._violated("lost", f"Tier 2 has no {sorted(missing)}, which segment {view.segment_id} needs")
        found = {
            info.name
            for prefix in (layout.chunks, layout.manifests, layout.foreign_owners)
            async for info in reader.chunks.list(prefix)
            if layout.epoch_in(info.name) < epoch
        }
        left = sorted(found - live | found & needless)
        if left:
            self._violated("left over", f"nothing refers to {len(left)} objects of Tier 2: {left[:5]}")

    async def _views(self, reader: ContainerReader) -> AsyncIterator[SegmentView]:
        async for newest in reader.newest_manifests():
            yield await reader.view(newest.segment_id)

    async def _names(self, reader: ContainerReader, wanted: set[str]) -> set[str]:
        """Those of these names that are there."""
        found: set[str] = set()
        for folder in {name.rpartition("/")[0] for name in wanted}:
            found |= {info.name async for info in reader.chunks.list(f"{folder}/")}
        return found & wanted


async def _emptied(storage: RollingStorage) -> None:
    """Return once all garbage is deleted for good."""
    await storage.shared.settle()
    while storage.garbage.waiting_names:
        await asyncio.sleep(0.5)
        await storage.shared.settle()


def _storage_of(container: SegmentContainer) -> RollingStorage:
    storage = container._storage  # private: nobody else asks for a sweep
    assert isinstance(storage, RollingStorage)
    return storage
