"""``store restore``: starts containers from Tier 2 alone, while no store runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from pravega_common.errors import ConfigurationError, DataCorruption, Unavailable
from pravega_common.runtime.clock import Clock
from pravega_common.services.cluster.cpo import ControlPlaneOracle
from pravega_common.services.cluster.registry import SEGMENT_STORE_KIND
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.maintenance.log_reading import LogSource, LogSummary, summarize
from segment_service.maintenance.read_only import ContainerReader, refuse_unknown_containers
from segment_service.maintenance.restore_claim import claimed
from segment_service.maintenance.restore_plan import RestorePlan
from segment_service.maintenance.tier2_restore import LogRestart, Tier2Restore
from segment_service.store import marked_container_counts


@dataclass(frozen=True, slots=True)
class ContainerOutcome:
    """The fate of one container: a plan, or the reason why nothing is restored."""

    container_id: int
    plan: RestorePlan | None = None
    reason: str = ""


class StoreRestore:
    """Restores containers of one cluster; ``plan`` looks and changes nothing."""

    def __init__(
        self,
        cpo: ControlPlaneOracle,
        chunks: ChunkStorage,
        source: LogSource | None,
        restart: LogRestart,
        clock: Clock,
    ) -> None:
        """``source``: reads the logs that there are; ``None`` if they cannot be read without taking them over."""
        self._cpo = cpo
        self._chunks = chunks
        self._source = source
        self._restart = restart
        self._clock = clock
        self._log = structlog.get_logger()

    async def plan(self, containers: int, only: Sequence[int] = ()) -> list[ContainerOutcome]:
        """The outcome that a restore of all containers, or those in ``only``, would have. ``ConfigurationError`` if the
        settings are not the cluster's, or a store runs."""
        marked = await marked_container_counts(self._chunks)
        if marked != {str(containers)}:
            raise ConfigurationError(
                f"store.containers = {containers}, but Tier 2 was made with {' and '.join(sorted(marked)) or 'no'} "
                "containers: use the settings of the cluster's stores"
            )
        refuse_unknown_containers(only, containers)
        await refuse_running_stores(self._cpo)
        return [await self._plan_one(container_id) for container_id in only or range(containers)]

    async def carry_out(self, plan: RestorePlan) -> None:
        """Restore one container; made again after any interruption. ``ConfigurationError`` if a store runs."""
        await claimed(self._cpo, self._clock, lambda: self._carry_out(plan))

    async def _carry_out(self, plan: RestorePlan) -> None:
        await refuse_running_stores(self._cpo)
        await Tier2Restore(self._chunks, plan.container_id, self._restart, self._clock).carry_out(plan)
        self._log.info("container restored", container=plan.container_id, segments=plan.segments)

    async def _plan_one(self, container_id: int) -> ContainerOutcome:
        reader = ContainerReader(self._chunks, container_id, self._clock)
        mark, table = await reader.newest_mark(), await reader.newest_map()
        if mark is not None and mark.is_blocking:
            raise ConfigurationError(
                f"container {container_id}: a restore of a backup was interrupted, and Tier 2 has a part of it: run "
                "store restore --from again, with the same backup, or empty Tier 1, Tier 2 and the CPO"
            )
        summary = await self._summary(container_id)
        if summary is not None and summary.operations:
            problem = summary.contradiction(container_id, mark, "", None if table is None else table.stamp)
            if problem is None:
                return ContainerOutcome(container_id, reason="its log is there and belongs to Tier 2: start the store")
        high_water = 0 if summary is None else summary.last_operation
        restore = Tier2Restore(self._chunks, container_id, self._restart, self._clock)
        plan = await restore.plan(high_water)
        return ContainerOutcome(container_id, plan, "" if plan is not None else "it never ran")

    async def _summary(self, container_id: int) -> LogSummary | None:
        """The log as far as it can be read; ``Unavailable`` is passed on, as a log that is away is not gone."""
        if self._source is None:
            return None
        try:
            return await summarize(self._source, container_id)
        except DataCorruption as error:
            self._log.warning("the log cannot be read", container=container_id, error=str(error))
            return None
        except Unavailable as error:
            raise Unavailable(
                f"{error}; if these servers are gone for good, start empty ones in their place and restore again"
            ) from error


async def refuse_running_stores(cpo: ControlPlaneOracle) -> None:
    """``ConfigurationError`` while any store has a lease."""
    stores = await cpo.members(SEGMENT_STORE_KIND)
    if stores:
        raise ConfigurationError(
            f"segment stores are running: {', '.join(sorted(stores))}; stop all stores first (the lease of one "
            "that was killed ends within cluster.lease_ms)"
        )
