"""Defines where long computations over bytes run: on the event loop, or on threads beside it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar

T = TypeVar("T")

offloaded_bytes_min: Final = 256 << 10
"""Bytes from which a computation is worth a thread: a hand-over costs some 0.1 ms, checking these 0.05 ms."""

offload_threads_max: Final = 2
"""Threads of a store that check and join what comes from Tier 2."""


class Offload(Protocol):
    """Runs a function that touches nothing but bytes, and returns its result. ``BlockingCalls.run`` is one."""

    def __call__(self, function: Callable[[], T], /) -> Awaitable[T]: ...


async def in_place(function: Callable[[], T], /) -> T:
    """Run it at once, as simulations and tools need."""
    return function()
