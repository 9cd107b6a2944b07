"""Counts bytes that peers make a server hold, and frees itself of the slowest of them when there are too many."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from typing import Final, NamedTuple, Protocol

from pravega_common.runtime.clock import Clock
from segment_service.contracts.segment_store import read_bytes_max

look_s: Final = 0.05
"""Pause between two looks at what peers have taken, while too many replies are unsent."""
stalled_time_max_s: Final = 30.0
"""Time that a peer may take none of its replies while too many are unsent."""
untaken_time_max_s: Final = 600.0
"""Time that a peer may take none of its replies, however few are unsent. A reader may stand still for minutes while its
caller works; the probes of the kernel never find a peer that is there and takes nothing."""
untaken_look_s: Final = 60.0
"""Pause between two looks for such peers: it takes this much longer to notice one."""


class Holder(Protocol):
    """A connection that holds bytes."""

    def unsent_bytes(self) -> int:
        """Reply bytes that the peer has not taken at this moment."""
        ...

    def taken_bytes(self) -> int:
        """Reply bytes that the peer has taken since it is connected."""
        ...

    def cut(self, reason: str) -> None:
        """End the connection now."""
        ...


class OpenFrames:
    """Bytes of frames that have begun and are not complete. Above the limit the longest open one costs its peer the
    connection: that is the slowest, however many bytes it dribbles."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.cut_total = 0
        self._bytes_max = bytes_max
        self._by_holder: OrderedDict[Holder, int] = OrderedDict()

    def note(self, holder: Holder, size: int) -> None:
        """Set the received bytes of the holder's open frame; fewer than before are those of another frame."""
        before = self._by_holder.get(holder, 0)
        self.bytes += size - before
        if size < before:
            del self._by_holder[holder]
        if size:
            self._by_holder[holder] = size
        while self.bytes > self._bytes_max:
            oldest, held = self._by_holder.popitem(last=False)
            self.bytes -= held
            self.cut_total += 1
            oldest.cut(f"unfinished frames hold more than {self._bytes_max} bytes, and this one is open for longest")


class _Untaken(NamedTuple):
    """Holds how many bytes one peer has not taken, and since when."""

    size: int
    taken: int
    """Bytes that it had taken at ``since_s``, and none since."""
    since_s: float


class UnsentReplies:
    """Reply bytes that peers have not taken.

    Above the limit nothing more is made for anybody until there is room, first come, first served, and a peer that
    takes nothing for ``stalled_time_max_s`` loses its connection. Below it one that takes nothing for
    ``untaken_time_max_s`` does.
    """

    def __init__(self, clock: Clock, bytes_max: int) -> None:
        self.bytes = 0
        self.cut_total = 0
        self._clock = clock
        self._bytes_max = bytes_max
        self._by_holder: dict[Holder, _Untaken] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._full = asyncio.Event()
        self._has_some = asyncio.Event()

    @property
    def is_full(self) -> bool:
        return self.bytes >= self._bytes_max

    def note(self, holder: Holder, size: int) -> None:
        before = self._by_holder.get(holder)
        self.bytes += size - (before.size if before is not None else 0)
        if size:
            self._by_holder[holder] = self._untaken(holder, size, before)
            self._has_some.set()
        elif before is not None:
            del self._by_holder[holder]
        if self.is_full:
            self._full.set()

    def _untaken(self, holder: Holder, size: int, before: _Untaken | None) -> _Untaken:
        taken = holder.taken_bytes()
        if before is None or taken > before.taken:
            return _Untaken(size, taken, self._clock.monotonic_s())
        return before._replace(size=size)

    async def wait_room(self) -> None:
        """Return when there is room for one more reply."""
        if self.is_full:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    async def run(self) -> None:
        """While there is no room, look what peers took meanwhile (they do not say so), until cancelled."""
        while True:
            await self._full.wait()
            await self._clock.sleep(look_s)
            self._look()
            if self.is_full:
                self._cut_stalled(stalled_time_max_s, ", and unsent ones fill the server")
            self._wake()
            if not self._waiting and not self.is_full:
                self._full.clear()

    async def watch(self) -> None:
        """Cut peers that take nothing for long, however much room there is, until cancelled."""
        while True:
            await self._has_some.wait()
            await self._clock.sleep(untaken_look_s)
            self._look()
            self._cut_stalled(untaken_time_max_s)
            if not self._by_holder:
                self._has_some.clear()

    def _look(self) -> None:
        for holder in tuple(self._by_holder):
            self.note(holder, holder.unsent_bytes())

    def _cut_stalled(self, time_max_s: float, why: str = "") -> None:
        before_s = self._clock.monotonic_s() - time_max_s
        for holder in [one for one, untaken in self._by_holder.items() if untaken.since_s < before_s]:
            self.note(holder, 0)
            self.cut_total += 1
            holder.cut(f"no reply was taken for {time_max_s:.0f} s{why}")

    def _wake(self) -> None:
        """Wake as many of those that wait as there is room for."""
        room = self._bytes_max - self.bytes
        while self._waiting and room > 0:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                room -= read_bytes_max
