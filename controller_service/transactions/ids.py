"""Makes transaction ids of an epoch and a cluster-wide 96-bit counter (docs/controller-api.md 4.1)."""

from __future__ import annotations

import asyncio
import uuid
from typing import Final

from controller_service.store.versioned_store import ABSENT, VersionedStore
from pravega_common import names
from pravega_common.errors import FailedError, UnknownOutcome, VersionConflict

COUNTER_TABLE: Final = "transactionCounter"
COUNTER_KEY: Final = "counter"

ids_per_reservation: Final = 1000
"""Ids taken from the shared counter at once; those of a stopped controller are lost, never reused."""
reservation_tries_max: Final = 20

_LOW_BITS: Final = 63
"""The lower half stays non-negative as a signed 64-bit number: some clients sign-extend it."""


def id_of_counter(epoch: int, counter: int) -> uuid.UUID:
    """The id that carries ``epoch`` in its upper 32 bits and ``counter`` in the rest, both halves non-negative."""
    high = (counter >> _LOW_BITS) & 0x7FFFFFFF
    return names.transaction_id(epoch, high, counter & ((1 << _LOW_BITS) - 1))


class TransactionIds:
    """Allocates ids that no other controller of the cluster allocates."""

    def __init__(self, store: VersionedStore) -> None:
        self._store = store
        self._lock = asyncio.Lock()
        self._next = 0
        self._end = 0

    async def start(self) -> None:
        await self._store.create_table(COUNTER_TABLE)

    async def next(self, epoch: int) -> uuid.UUID:
        """A new id of a transaction that belongs to ``epoch``; one store round trip per thousand calls."""
        async with self._lock:
            if self._next == self._end:
                self._next, self._end = await self._reserve()
            counter = self._next
            self._next += 1
        return id_of_counter(epoch, counter)

    async def _reserve(self) -> tuple[int, int]:
        for _ in range(reservation_tries_max):
            found = await self._store.get(COUNTER_TABLE, COUNTER_KEY)
            start = 1 if found is None else int(found.value)
            expected = ABSENT if found is None else found.version
            end = start + ids_per_reservation
            try:
                await self._store.put(COUNTER_TABLE, COUNTER_KEY, str(end).encode(), expected)
                return start, end
            except (VersionConflict, UnknownOutcome):
                # A range whose reservation is in doubt is given up: ids are plentiful, a duplicate is a disaster.
                await asyncio.sleep(0)
        raise FailedError(f"no range of transaction ids could be reserved in {reservation_tries_max} tries")
