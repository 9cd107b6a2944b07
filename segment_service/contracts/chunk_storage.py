"""Defines the contract of a Tier-2 object store: immutable chunks, put once under a name that is never reused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from segment_service.contracts.buffer import Buffer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChunkInfo:
    """An object by its name."""

    name: str
    length: int


class ChunkStorage(Protocol):
    """Objects by name. Names are ASCII paths with ``/``; an object is never changed after it was put.

    A ``put`` that ends with ``UnknownOutcome`` may or may not have stored the object, whole: the caller retries
    under a *new* name. ``Unavailable`` means that nothing was stored. Every call has a deadline of its own
    (``call_time_max_s`` of the adapter).
    """

    async def start(self) -> None:
        """Connect and check that the place can be written. ``ConfigurationError`` with the remedy if not.

        A place that is full is started: it is read, and puts are ``Unavailable`` until it has room."""
        ...

    async def put(self, name: str, data: Sequence[Buffer]) -> None:
        """Store the joined buffers durably as one object. Names are fresh; an existing one is an invariant violation
        where the store can tell."""
        ...

    async def get(self, name: str, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``. ``SegmentNotFound(name)`` if the object is missing,
        ``DataCorruption`` if it is shorter."""
        ...

    async def get_with(self, name: str, offset: int, length: int, function: Callable[[bytes], T]) -> T:
        """The result of ``function`` for the bytes that ``get`` gives. The function runs where they arrive: on a thread
        of an adapter that has some, so it may take its time, and must touch nothing that others use."""
        ...

    async def info(self, name: str) -> ChunkInfo:
        """``SegmentNotFound(name)`` if missing."""
        ...

    def list(self, prefix: str) -> AsyncIterator[ChunkInfo]:
        """All objects whose name starts with ``prefix``, in the order of their names."""
        ...

    async def delete(self, name: str) -> None:
        """Idempotent."""
        ...

    async def close(self) -> None: ...
