"""Notifies waiters of this process when transactions become readable."""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final

remembered_max: Final = 10_000
"""Completions of the recent past, for those who ask a moment too late."""


class Completions:
    """A hint that saves waiters a look at the store: it is given only for completions that are durable, and it may
    never come, since another controller may do the work."""

    def __init__(self) -> None:
        self._waiting: dict[uuid.UUID, set[Expectation]] = {}
        self._recent: OrderedDict[uuid.UUID, None] = OrderedDict()

    def tell(self, ids: Iterable[uuid.UUID]) -> None:
        """These transactions are committed and their records say so."""
        for identifier in ids:
            self._recent[identifier] = None
            for expectation in self._waiting.pop(identifier, ()):
                expectation.came(identifier)
        while len(self._recent) > remembered_max:
            self._recent.popitem(last=False)

    def expect(self, ids: Sequence[uuid.UUID]) -> Expectation:
        """A context manager around the waiting; leaving it forgets what did not come."""
        missing = {identifier for identifier in ids if identifier not in self._recent}
        expectation = Expectation(self, missing)
        for identifier in missing:
            self._waiting.setdefault(identifier, set()).add(expectation)
        return expectation

    def forget(self, identifier: uuid.UUID, expectation: Expectation) -> None:
        waiting = self._waiting.get(identifier)
        if waiting is not None:
            waiting.discard(expectation)
            if not waiting:
                del self._waiting[identifier]


class Expectation:
    def __init__(self, completions: Completions, missing: set[uuid.UUID]) -> None:
        self._completions = completions
        self._missing = missing
        self.all_came: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once every transaction was told."""
        self._finish_if_complete()

    def __enter__(self) -> Expectation:
        return self

    def __exit__(self, *_: object) -> None:
        self.all_came.cancel()
        for identifier in self._missing:
            self._completions.forget(identifier, self)

    def came(self, identifier: uuid.UUID) -> None:
        self._missing.discard(identifier)
        self._finish_if_complete()

    def _finish_if_complete(self) -> None:
        if not self._missing and not self.all_came.done():
            self.all_came.set_result(None)
