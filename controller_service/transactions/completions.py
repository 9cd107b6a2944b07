"""Who waits, in this process, for transactions to become readable."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable, Sequence


class Completions:
    """A hint that saves waiters a look at the store: it is given only for completions that are durable, and it may
    never come, since another controller may do the work."""

    def __init__(self) -> None:
        self._waiting: dict[uuid.UUID, set[asyncio.Future[None]]] = {}

    def tell(self, ids: Iterable[uuid.UUID]) -> None:
        """These transactions are committed and their records say so."""
        for identifier in ids:
            for waiter in self._waiting.pop(identifier, ()):
                if not waiter.done():
                    waiter.set_result(None)

    def expect(self, ids: Sequence[uuid.UUID]) -> Expectation:
        """To be made before the work is asked for, so that no completion is missed."""
        waiters: list[tuple[uuid.UUID, asyncio.Future[None]]] = []
        for identifier in ids:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(identifier, set()).add(waiter)
            waiters.append((identifier, waiter))
        return Expectation(self, waiters)

    def forget(self, identifier: uuid.UUID, waiter: asyncio.Future[None]) -> None:
        waiters = self._waiting.get(identifier)
        if waiters is not None:
            waiters.discard(waiter)
            if not waiters:
                del self._waiting[identifier]


class Expectation:
    """A context manager; leaving it forgets what did not come."""

    def __init__(self, completions: Completions, waiters: list[tuple[uuid.UUID, asyncio.Future[None]]]) -> None:
        self._completions = completions
        self._waiters = waiters

    def __enter__(self) -> Expectation:
        return self

    def __exit__(self, *_: object) -> None:
        for identifier, waiter in self._waiters:
            waiter.cancel()
            self._completions.forget(identifier, waiter)

    async def all_came(self) -> None:
        """Wait until every one was told; for ever, if one never is: the caller sets the limit."""
        for _, waiter in self._waiters:
            await waiter
