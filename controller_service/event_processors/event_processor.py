"""Defines the contract of an event processor: the handler of the events of one internal stream."""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import Protocol, TypeVar

E = TypeVar("E")


class Handling(Enum):
    """The end of one attempt to handle an event."""

    DONE = "done"
    POSTPONED = "postponed"
    """The stream admits this work later: the event goes behind the others, to which it may have to wait."""


class Concurrency(Enum):
    """The events of one slice that are handled at the same time."""

    SERIAL = "serial"
    """One after the other."""
    CONCURRENT = "concurrent"
    """All of them."""
    PER_KEY = "serialized per key"
    """Those of different routing keys together, those of one key one after the other."""


class EventProcessor(Protocol[E]):
    """Decodes and handles the events of an internal stream.

    An event is handled at least once: also again after a crash at any point, on any instance. A handler looks at the
    records and goes on from there. Unless it is postponed or fails for good, events of one routing key are handled in
    the order of the stream where ``concurrency`` says so.
    """

    @property
    def concurrency(self) -> Concurrency: ...

    def decode(self, data: memoryview) -> E:
        """The event. ``DataCorruption`` for bytes that hold no event: they are logged and left out.

        ``UnsupportedOperation`` for a kind that this version does not know: the event goes behind the others, for an
        instance that knows it.
        """
        ...

    def key_of(self, event: E) -> str:
        """The routing key that the event was written with, such as ``scope/stream``."""
        ...

    def merge_key(self, event: E) -> Hashable | None:
        """Events of one slice that wait and have the same merge key are handled once, in the place of the last one.

        None for an event that is handled in any case.
        """
        ...

    async def handle(self, event: E) -> Handling:
        """Do the work of an event. ``Postpone`` means ``POSTPONED``; a ``RejectedError`` ends the event; after any
        other error it is handled again."""
        ...
