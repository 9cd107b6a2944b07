"""Defines the sorted maps in Tier 2 that segments have: the key index of a large table, the attributes of writers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from segment_service.contracts.segment_storage import LogState
from segment_service.contracts.spawn import Spawn

TABLE_MAPS: Final = "keys-"
"""Begin of the names of the maps of tables; the id of the segment follows, as 16 hexadecimal digits."""
ATTRIBUTE_MAPS: Final = "attributes-"
"""Begin of the names of the maps of segments with many writers; the id follows, too."""
_id_digits: Final = 16


def segment_map_name(prefix: str, segment_id: int) -> str:
    return f"{prefix}{segment_id:0{_id_digits}x}"


def table_map_name(segment_id: int) -> str:
    return segment_map_name(TABLE_MAPS, segment_id)


def attribute_map_name(segment_id: int) -> str:
    return segment_map_name(ATTRIBUTE_MAPS, segment_id)


def segment_of_map(prefix: str, map_name: str) -> int | None:
    """The id of the segment whose map this is; ``None`` for the name of another map."""
    digits = map_name.removeprefix(prefix)
    if len(digits) != _id_digits or len(map_name) != len(prefix) + _id_digits:
        return None
    try:
        segment_id = int(digits, 16)
    except ValueError:
        return None
    return segment_id if segment_map_name(prefix, segment_id) == map_name else None


def segment_of_table_map(map_name: str) -> int | None:
    """The id of the table's segment; ``None`` for the name of another map."""
    return segment_of_map(TABLE_MAPS, map_name)


def segment_of_attribute_map(map_name: str) -> int | None:
    """The id of the segment that has these writers; ``None`` for the name of another map."""
    return segment_of_map(ATTRIBUTE_MAPS, map_name)


class TableMap(Protocol):
    """The map of one segment at one epoch of its container: a ``SortedMap`` whose flushes cannot be ahead of the log.

    Errors as in ``SortedMap``. The map goes with its segment: it is closed when the segment was deleted.
    """

    @property
    def writing(self) -> asyncio.Lock:
        """Held while an index flushes, and while another one reads what the map has."""
        ...

    @property
    def spawn(self) -> Spawn:
        """Runs a task of the container, which ends with it."""
        ...

    @property
    def identity(self) -> bytes:
        """The identity of the container's log."""
        ...

    @property
    def is_open(self) -> bool: ...

    @property
    def stamp(self) -> LogState | None:
        """As in ``SortedMap``."""
        ...

    async def open(self) -> None:
        """Find the newest state, once; returns at once if it is open."""
        ...

    async def flush(self, changes: Mapping[bytes, bytes | None]) -> None:
        """As in ``SortedMap``, with the state of the log now. A log that is older cannot start beside the effect."""
        ...

    async def get(self, key: bytes) -> bytes | None: ...

    async def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]: ...

    async def scan(self, first: bytes, count_max: int) -> list[tuple[bytes, bytes]]: ...

    async def remove_all(self) -> None:
        """Delete everything; ``open`` begins afresh."""
        ...


class TableMapSource(Protocol):
    """Gives tables their maps."""

    def container_of(self, segment: str) -> object:
        """The container of the segment as it runs now; another object after a restart. ``ContainerNotHosted`` if the
        container is not here."""
        ...

    def table_map(self, segment: str, segment_id: int) -> TableMap:
        """The map of the segment with this id in its container as it runs now: always the same object while somebody
        uses it, another one after a restart. ``ContainerNotHosted`` if the container is not here."""
        ...
