"""Handles the events of the request stream, each kind by its own handler (docs/controller-api.md 9)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from controller_service.event_processors.event_processor import Concurrency, Handling
from pravega_common.errors import DataCorruption, UnsupportedOperation

REQUEST_GROUP: Final = "scaleGroup"
envelope_bytes: Final = 2
"""The format, 0, and the type of an event."""


class RoutedEvent(Protocol):
    @property
    def routing_key(self) -> str: ...


@dataclass(frozen=True, slots=True)
class EventKind:
    """A kind of event: how it is read, and what is done about it."""

    decode: Callable[[memoryview], RoutedEvent]
    handle: Callable[[Any], Awaitable[None]]
    merge_key: Callable[[Any], Hashable | None] = lambda event: None


@dataclass(frozen=True, slots=True)
class RequestEvent:
    """An event with its kind."""

    kind: EventKind
    event: RoutedEvent


class RequestEvents:
    """An ``EventProcessor`` whose events of one stream are handled one after the other. ``kinds``: by type number."""

    concurrency: Final = Concurrency.PER_KEY

    def __init__(self, kinds: Mapping[int, EventKind]) -> None:
        self._kinds = kinds

    def decode(self, data: memoryview) -> RequestEvent:
        if len(data) < envelope_bytes or data[0] != 0:
            raise DataCorruption(f"{len(data)} bytes do not begin like an event of a controller")
        kind = self._kinds.get(data[1])
        if kind is None:
            raise UnsupportedOperation(f"events of type {data[1]}; known are {sorted(self._kinds)}")
        return RequestEvent(kind, kind.decode(data))

    def key_of(self, event: RequestEvent) -> str:
        return event.event.routing_key

    def merge_key(self, event: RequestEvent) -> Hashable | None:
        return event.kind.merge_key(event.event)

    async def handle(self, event: RequestEvent) -> Handling:
        await event.kind.handle(event.event)
        return Handling.DONE
