"""Defines the contract of a sorted map in Tier 2, bytes by bytes: state of a container that need not be in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from segment_service.contracts.segment_storage import LogState

map_key_bytes_max: Final = 8 << 10
"""Bytes of a key: twice the longest name of a segment."""
map_value_bytes_max: Final = 4 << 20
"""Bytes of a value."""
map_changes_bytes_max: Final = 32 << 20
"""Bytes of keys and values that one flush takes: they are in memory, and once more as they are encoded."""
map_scan_entries_max: Final = 10_000
"""Entries of one page of a scan."""


class SortedMap(Protocol):
    """One map of a container at one epoch. ``open`` comes first, after the log was fenced.

    What is in the map is what the last flush that returned left there; a flush that raised ``UnknownOutcome`` or
    ``Unavailable`` is in it or not, whole, for the next owner, and not for this one: the caller flushes the same
    changes again. An owner of an earlier epoch changes nothing that a later owner sees once that one flushed; its
    own calls go on with what it knew, or are ``Fenced``. Every answer is of one flush, never of two.

    ``DataCorruption`` names the object that is damaged or missing. All calls yield to the loop by slices of time, and
    take memory for their arguments, their answer and a budget that all maps share.
    """

    @property
    def stamp(self) -> LogState | None:
        """The state of the container's log as of the last flush that is in the map; ``None`` before the first."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether it was opened, and not removed since."""
        ...

    async def newest_stamp(self) -> LogState | None:
        """The stamp of the newest state in Tier 2, whatever its epoch; ``None`` without one. Also before ``open``."""
        ...

    async def open(self) -> None:
        """Find the newest state. ``Fenced`` if it carries a higher epoch than this owner's."""
        ...

    async def flush(self, changes: Mapping[bytes, bytes | None], stamp: LogState) -> None:
        """Put and remove (``None``) keys, all or none, durably. The stamp's numbers never go back.

        ``InvalidArgument`` for a key, a value or a sum of bytes above the limits of this module, and for an empty key.
        """
        ...

    async def get(self, key: bytes) -> bytes | None:
        """The value; ``None`` for a key that is absent."""
        ...

    async def get_many(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values of those keys that are there."""
        ...

    def is_surely_absent(self, key: bytes) -> bool:
        """Whether what is in memory proves that the key is absent; never waits. False says nothing."""
        ...

    async def scan(self, first: bytes, count_max: int, end: bytes | None = None) -> list[tuple[bytes, bytes]]:
        """The first ``count_max`` entries whose keys are not below ``first``, in the order of the keys' bytes.

        With ``end`` only those whose keys are below it: what lies behind costs nothing. Fewer only at the end. The next
        page begins at the last key followed by a zero byte.
        """
        ...

    async def remove_all(self) -> None:
        """End the map: all its objects are deleted in the background. Nothing may be called after it but ``open``."""
        ...


class SortedMaps(Protocol):
    """The sorted maps of one container at one epoch, with what works for them in the background."""

    def sorted_map(self, map_name: str) -> SortedMap:
        """The map of this name: the same object as long as somebody has it."""
        ...

    async def map_names(self, prefix: str) -> list[str]:
        """The names with this prefix of the maps that have objects in Tier 2."""
        ...

    async def start(self) -> None:
        """Begin the work in the background; Tier 2 of the container is open."""
        ...

    def on_failure(self, callback: Callable[[BaseException], None]) -> None:
        """Call this when something that works in the background here died: the container must then stop."""
        ...

    async def stop(self) -> None: ...
