"""Finds the connections of a pool that nothing uses any more, as those to a store that is at another address now."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

idle_time_max_s: Final = 120.0
"""How long nothing uses a connection before the pool ends it, with its next use of another one. Opening one again costs
a round trip or three; a Spark query whose trigger is a minute keeps its own."""


class IdleEnds(Generic[K]):
    """The connections of a pool by the time since when nothing uses them.

    There is no timer: a pool asks when it is used, which costs what it has to end. One that is not used has no more
    connections than it had.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._since_s: OrderedDict[K, float] = OrderedDict()

    def used(self, key: K) -> None:
        """Note that a connection is used up to now."""
        self._since_s[key] = self._monotonic_s()
        self._since_s.move_to_end(key)

    def remove(self, key: K) -> None:
        self._since_s.pop(key, None)

    def ended(self) -> Iterator[K]:
        """Yields the connections to end now, and forgets them."""
        end_s = self._monotonic_s() - idle_time_max_s
        while self._since_s:
            key, since_s = next(iter(self._since_s.items()))
            if since_s >= end_s:
                return
            del self._since_s[key]
            yield key
