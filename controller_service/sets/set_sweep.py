"""Sweeps the sinks that have work to do: refuses what is pending too long, goes on with what is committed."""

from __future__ import annotations

import asyncio
from typing import Final

from controller_service.sets import transaction_set
from controller_service.sets.members import MemberTransactions
from controller_service.sets.registration_janitor import RegistrationJanitor
from controller_service.sets.set_finisher import SetFinisher
from controller_service.sets.sink_index import IndexedSink, SinkIndex
from controller_service.sets.sink_steps import SinkSteps
from controller_service.sets.sink_store import FoundSink
from controller_service.sets.transaction_set import SetRecordState, SinkRecord
from controller_service.transactions.records import SetReference
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.joined import all_ended
from pravega_common.services.base import Service

undecided_grace_ms: Final = 600_000
"""How long the transactions of an undecided batch stay open after the last call of any of its tasks."""
pending_max_ms: Final = 60_000
"""A set that is pending for longer is refused: its controller died, or its members cannot be reached."""
sweeps_at_once_max: Final = 16
"""Sinks that a sweep looks at at the same time."""
sweep_time_max_s: Final = 15.0
"""Time for one sink of a sweep, which comes to it again: a container that is away holds a call up for a minute."""


class SetSweep:
    """Looks at sinks from time to time, for its owner. What it costs goes with those that have work to do."""

    def __init__(
        self,
        owner: Service,
        index: SinkIndex,
        janitor: RegistrationJanitor,
        members: MemberTransactions,
        steps: SinkSteps,
        finisher: SetFinisher,
        clock: Clock,
    ) -> None:
        self._log = owner.log
        self._index = index
        self._janitor = janitor
        self._members = members
        self._steps = steps
        self._finisher = finisher
        self._clock = clock

    async def once(self) -> None:
        """Refuse what is pending for too long, go on with what is committed and not finished, forget old sinks.

        What it costs goes with the sinks that have work to do, or had it a minute ago.
        """
        await self._index.complete(self._clock.wall_ms())
        looked_at: list[IndexedSink] = []
        async for found in self._index.unfinished():
            looked_at.append(found)
            if len(looked_at) == sweeps_at_once_max:
                await all_ended(map(self._try_sweep, looked_at))
                looked_at = []
        await all_ended(map(self._try_sweep, looked_at))
        if self._clock.is_right():
            await self._index.forget_expired(self._clock.wall_ms())
            await self._janitor.look(self._clock.wall_ms())

    async def _try_sweep(self, found: IndexedSink) -> None:
        try:
            async with asyncio.timeout(sweep_time_max_s):
                if found.sink is not None:
                    await self._sweep_sink(found.key, found.sink)
                await self._index.remove_if_settled(found, self._clock.wall_ms())
        except Exception as error:
            # Whatever is wrong with one sink, or with the streams of its transactions, the others come next.
            self._log.warning("sweep of a sink failed", sink=found.key, error=repr(error))

    async def _sweep_sink(self, key: str, found: FoundSink) -> None:
        record, now_ms = found.record, self._clock.wall_ms()
        pending, last = record.pending, record.last
        if pending is not None:
            if now_ms - pending.started_ms > pending_max_ms and self._clock.is_right():
                detail = f"pending for more than {pending_max_ms} ms"
                taken = transaction_set.step(record, transaction_set.Refuse(pending.sequence, detail, now_ms))
                if await self._steps.write(key, found, taken.record) is not None:
                    await self._members.release(SetReference(key, pending.sequence), pending.members)
            return
        if last is not None and (last.state is not SetRecordState.FINISHED or record.decided_batches):
            self._finisher.start(key, last)
            return
        if self._clock.is_right():
            await self._clear_silent(key, record, now_ms)

    async def _clear_silent(self, key: str, record: SinkRecord, now_ms: int) -> None:
        """Take undecided batches off the list whose tasks went silent long enough ago for their transactions to end."""
        for batch_id in record.open_batches:
            silent_ms = now_ms - max(await self._steps.silent_since_ms(key, batch_id), record.touched_ms)
            if silent_ms > undecided_grace_ms + pending_max_ms:
                await self._finisher.clear(key, (batch_id,), set(), is_decided=False)
