"""Defines the contract of a Tier-2 object store: immutable chunks, put once under a name that is never reused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from pravega_common.errors import PravegaError
from pravega_common.invariants import check
from segment_service.contracts.buffer import Buffer

T = TypeVar("T")

names_per_deletion_max: Final = 256
"""Names of one ``delete_all``: its time suffices for a store that takes a tenth of a second for each."""


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

    async def delete_all(self, names: Sequence[str]) -> Mapping[str, PravegaError]:
        """Delete 1 to ``names_per_deletion_max`` objects, in any order; those that are missing are gone already. The
        names of those that may still be there, each with the reason: no failure of the store is raised."""
        ...

    async def close(self) -> None: ...


def check_deletion(names: Sequence[str]) -> None:
    """Hold the names of a ``delete_all`` against its limits; adapters call it."""
    check(0 < len(names) <= names_per_deletion_max, "too few or too many names in one deletion", count=len(names))
