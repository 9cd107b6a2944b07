"""Adds transactions to the commit order of their stream, those of concurrent callers in one write.

The order of a stream is one record, which every commit changes. Callers that change it one by one lose nearly every
compare-and-set to each other; so within one controller they form a line, and the first one writes for all that wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from controller_service.transactions.commit_queue import CommitQueue
from controller_service.transactions.order_records import CommitState
from controller_service.transactions.transaction_store import Change, TransactionStore, cas_limits
from pravega_common.errors import Throttled, UnknownOutcome, VersionConflict

changes_per_write_max: Final = 500
"""Transactions that enter an order in one step, unless one caller brings more."""


@dataclass(slots=True, eq=False)
class _Entry:
    changes: Sequence[Change]
    known: CommitState | None
    outcome: asyncio.Future[None]

    def fail(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
            self.outcome.exception()  # marks it retrieved: the caller may be gone


class _Line:
    """The callers of one stream. The lock is fair: each gets its turn after those who came before it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting: deque[_Entry] = deque()
        self.callers = 0

    def take(self) -> list[_Entry]:
        """The first callers that can be served by one write: as many as may, and no transaction twice."""
        taken = [self.waiting.popleft()]
        ids = {change[0] for change in taken[0].changes}
        while self.waiting:
            more = {change[0] for change in self.waiting[0].changes}
            if len(ids) + len(more) > changes_per_write_max or ids & more:
                break
            taken.append(self.waiting.popleft())
            ids |= more
        return taken


class CommitOrder:
    """One per controller; several controllers keep out of each other's way by compare-and-set alone."""

    def __init__(self, records: TransactionStore) -> None:
        self._records = records
        self._lines: dict[tuple[str, str], _Line] = {}

    async def add(self, scope: str, stream: str, changes: Sequence[Change], known: CommitState | None = None) -> None:
        """Write the records, which are committing from now on, and add them to the commit order, in one step.

        ``known``: the commit order, if it was just read. ``VersionConflict`` when a record changed: a commit order that
        moved on meanwhile is read again. ``UnknownOutcome`` when nobody can tell; ``Throttled`` for a full order.
        """
        key = (scope, stream)
        line = self._lines.setdefault(key, _Line())
        entry = _Entry(changes, known, asyncio.get_running_loop().create_future())
        line.waiting.append(entry)
        line.callers += 1
        try:
            async with line.lock:
                while not entry.outcome.done():
                    await self._write(scope, stream, line.take())
            entry.outcome.result()
        finally:
            line.callers -= 1
            if entry in line.waiting:  # the caller was cancelled before its turn
                line.waiting.remove(entry)
            if not line.callers:
                del self._lines[key]

    async def _write(self, scope: str, stream: str, entries: list[_Entry]) -> None:
        """Bring every entry to an outcome."""
        try:
            await self._write_together(scope, stream, entries)
        except Exception as error:
            for entry in entries:
                entry.fail(error)
        finally:
            for entry in entries:  # only when this caller was cancelled in the middle
                entry.fail(UnknownOutcome(f"{scope}/{stream}: the commit of a transaction was interrupted"))

    async def _write_together(self, scope: str, stream: str, entries: list[_Entry]) -> None:
        state = (entries[0].known if len(entries) == 1 else None) or await self._records.commit_state(scope, stream)
        for lost in range(1, cas_limits.attempts_max + 1):
            entries = _fitting(state.queue, entries)
            if not entries:
                return
            changes = [change for entry in entries for change in entry.changes]
            try:
                await self._records.write_order(
                    scope, stream, changes, state.queue.adding([change[0] for change in changes]), state.queue_version
                )
            except (VersionConflict, UnknownOutcome):
                await self._records.pause(lost)
            else:
                for entry in entries:
                    entry.outcome.set_result(None)
                return
            entries, state = await self._unchanged(scope, stream, entries)
        raise VersionConflict(
            f"{scope}/{stream}: the commit order was changed by others {cas_limits.attempts_max} times in a row"
        )

    async def _unchanged(self, scope: str, stream: str, entries: Sequence[_Entry]) -> tuple[list[_Entry], CommitState]:
        """The entries whose records are as they were, and the commit order now; the others' callers look again."""
        ids = [identifier for entry in entries for identifier, _, _ in entry.changes]
        found, state = await self._records.get_with_commits(scope, stream, ids)
        versions = {identifier: item.version for identifier, item in zip(ids, found, strict=True) if item is not None}
        left = []
        for entry in entries:
            if all(versions.get(identifier) == version for identifier, _, version in entry.changes):
                left.append(entry)
            else:
                entry.fail(VersionConflict(f"{scope}/{stream}: a transaction changed while it was being marked"))
        return left, state


def _fitting(queue: CommitQueue, entries: Sequence[_Entry]) -> list[_Entry]:
    """The entries that the order has room for, the first ones first; the others fail with ``Throttled``."""
    fitting = []
    for entry in entries:
        try:
            queue = queue.adding([identifier for identifier, _, _ in entry.changes])
        except Throttled as error:
            entry.fail(error)
        else:
            fitting.append(entry)
    return fitting
