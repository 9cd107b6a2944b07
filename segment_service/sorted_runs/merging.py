"""Decides which runs of a map are merged, and merges them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from pravega_common.runtime.time_slices import TimeSlices
from segment_service.sorted_runs.map_manifest import Run
from segment_service.sorted_runs.map_objects import MapObjects
from segment_service.sorted_runs.run_reader import walk
from segment_service.sorted_runs.run_writer import RunWriter

runs_max: Final = 32
"""Runs of a map: what a look-up may ask, and what a manifest lists. A flush beyond that merges first."""

merged_runs_min: Final = 4
"""Fewer are not worth it."""

merge_ahead_bytes: Final = 8 << 20
"""Bytes that a merge reads of its runs at a time, in equal parts: an object store answers for 16 KiB as late as for a
mebibyte."""


tombstones_share_max: Final = 0.5
"""A map with as many tombstones among its entries is merged as a whole, so that what they hide goes, too."""

merges_at_once_max: Final = 2
"""Merges of one map, and of the maps of a container, under way at the same time: a large one stops neither the other
maps nor the flushes of its own, whose runs are merged meanwhile."""


def runs_to_merge(lengths: Sequence[int], *, is_full: bool = False, tombstones_share: float = 0.0) -> int:
    """The number of the newest runs that should become one; 0 if all stay. ``lengths`` in bytes, newest first;
    ``is_full``: there are ``runs_max``, those included that are being merged.

    The oldest one that joins has at most as many bytes as the newer ones together: a byte is rewritten a logarithmic
    number of times, and the runs that stay double in length, so that there are logarithmically many. All of them are
    merged when ``tombstones_share``, the tombstones among all entries, says that much of it hides something.
    """
    if tombstones_share >= tombstones_share_max and len(lengths) > 1:
        return len(lengths)
    newer = list(accumulate(lengths, initial=0))
    for count in range(len(lengths), merged_runs_min - 1, -1):
        if lengths[count - 1] <= newer[count - 1]:
            return count
    return merged_runs_min if is_full and len(lengths) >= merged_runs_min else 0


async def merge(
    runs: Sequence[Run], objects: MapObjects, writer: RunWriter, slices: TimeSlices, *, oldest: bool
) -> None:
    """Write the entries of some runs (newest first) as one. ``oldest``: no run is older, so tombstones are not needed.

    Memory: a block of each run, ``merge_ahead_bytes``, and a file.
    """
    async for keys, values in walk(objects, runs, b"", slices, ahead_bytes=merge_ahead_bytes):
        if oldest and None in values:
            left = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
            keys, values = [key for key, _ in left], [value for _, value in left]
        await writer.add(keys, values)
