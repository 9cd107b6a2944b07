"""Keeps requests in order while a segment that they name, or an attribute of it, is read from Tier 2."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import Final

from pravega_common.errors import DataCorruption, PravegaError, Throttled
from segment_service.durable_log.metadata_updater import Need
from segment_service.durable_log.requests import AnyRequest, names_in

Then = Callable[[PravegaError | None], None]
"""Called when something was brought, with the error if it could not be."""

parked_requests_max: Final = 65_536
"""Requests that wait for look-ups; more are refused."""


class _Group:
    """Requests that wait for the same look-ups, in order, and all names in them."""

    __slots__ = ("askers", "names", "requests")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.requests: list[AnyRequest] = []
        self.askers: set[AnyRequest] = set()
        """Those for which the look-ups were begun; all others only stay behind them."""

    def join(self, other: _Group) -> None:
        """Take in another group. No request of one names a segment of the other, so that both orders are right."""
        self.names |= other.names
        self.requests += other.requests
        self.askers |= other.askers


class ParkedRequests:
    """A request that names a segment which is not in memory, and those behind it that name the same segments.

    A look-up that fails is the error of those that need what it is about, and of the one for which it was made in any
    case, so that each ends. The others are tried again, and wait again only if they need something themselves.
    """

    def __init__(
        self,
        go_on: Callable[[Sequence[AnyRequest]], None],
        refuse: Callable[[AnyRequest, PravegaError], None],
        needs: Callable[[AnyRequest], Set[Need]],
    ) -> None:
        """``go_on`` takes requests that are to be tried again before all others; ``needs`` says what a request needs
        of Tier 2 now."""
        self._go_on = go_on
        self._refuse = refuse
        self._needs = needs
        self.names: dict[str, _Group] = {}
        """What waits, by the names of segments; empty if nothing does."""
        self._count = 0

    def follow(self, request: AnyRequest) -> bool:
        """Park the request if one that is parked names a segment of it; whether it did."""
        if any(name in self.names for name in names_in(request)):
            self._add(request)
            return True
        return False

    def park(self, request: AnyRequest, name: str, needed: Set[Need], bring: Callable[[Then], None]) -> None:
        """Bring what the request needs of this segment; it goes on after that."""
        if self._add(request):
            self.names[name].askers.add(request)
            bring(lambda error: self._found(request, name, needed, error))

    def _add(self, request: AnyRequest) -> bool:
        if self._count >= parked_requests_max:
            self._refuse(request, Throttled(f"{self._count} requests wait for segments that are looked up in Tier 2"))
            return False
        names = names_in(request)
        group = self._group_of(names)
        for name in names:
            self.names[name] = group
        group.names.update(names)
        group.requests.append(request)
        self._count += 1
        return True

    def _group_of(self, names: Sequence[str]) -> _Group:
        """The group with these names. Of several the largest takes in the others, at a cost in proportion to those."""
        found = {id(group): group for name in names if (group := self.names.get(name)) is not None}
        groups = sorted(found.values(), key=lambda group: len(group.requests) + len(group.names))
        largest = groups.pop() if groups else _Group()
        for other in groups:
            largest.join(other)
            for name in other.names:
                self.names[name] = largest
        return largest

    def _found(self, asker: AnyRequest, name: str, needed: Set[Need], error: PravegaError | None) -> None:
        group = self.names.get(name)
        if group is None or asker not in group.askers:
            return  # another look-up, of segments that a merge named, let it go on
        self._drop(group)
        if error is None:
            self._go_on(group.requests)
            return
        others: list[AnyRequest] = []
        for request in group.requests:
            if request is asker or self._is_about(error, needed, request):
                self._refuse(request, error)
            else:
                others.append(request)
        if others:
            self._go_on(others)

    def _is_about(self, error: PravegaError, needed: Set[Need], request: AnyRequest) -> bool:
        """Whether the error of a look-up is that of another request, too: damage is if that needs the same. A Tier 2
        that could not be asked is for whatever needs anything of it: each would wait as long, one after the other."""
        needs = self._needs(request)
        return needed <= needs if isinstance(error, DataCorruption) else bool(needs)

    def take_all(self) -> list[AnyRequest]:
        """Give up all that is parked, to be failed."""
        groups = {id(group): group for group in self.names.values()}.values()
        requests = [request for group in groups for request in group.requests]
        self.names.clear()
        self._count = 0
        return requests

    def _drop(self, group: _Group) -> None:
        for name in group.names:
            del self.names[name]
        self._count -= len(group.requests)
