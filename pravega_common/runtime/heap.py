"""Keeps memory that a process frees, so that what comes next need not take it from the system, and measures it."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

heap_piece_bytes_max: Final = 32 * 1024 * 1024
"""Larger pieces of memory are taken from the system by themselves, and given back at once; the largest limit that the
GNU C library takes."""

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_MMAP_MAX: Final = -4
_MALLINFO2: Final = (
    "arena",
    "ordblks",
    "smblks",
    "hblks",
    "hblkhd",
    "usmblks",
    "fsmblks",
    "uordblks",
    "fordblks",
    "keepcost",
)


def keep_freed_memory(kept_bytes_max: int, *, of_any_size: bool = False) -> bool:
    """Have the C library keep this much free memory at the end of the heap, instead of giving back what it can.

    The system clears each page that it gives out, which takes as long as the copy into it. Buffers of a megabyte are
    freed and taken all the time where data passes. ``of_any_size``: pieces above ``heap_piece_bytes_max`` come from the
    heap as well; what is freed between others stays then, too, so it is for processes that do not live for long.
    ``False`` where the C library has no such settings (``mallopt(3)`` of the GNU one): then all is as it was.
    """
    import ctypes  # processes that pass no data need nothing of it

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    of_their_own = (_M_MMAP_MAX, 0) if of_any_size else (_M_MMAP_THRESHOLD, heap_piece_bytes_max)
    return bool(mallopt(*of_their_own)) and bool(mallopt(_M_TRIM_THRESHOLD, kept_bytes_max))


class HeapUse(NamedTuple):
    """Bytes that the C library has from the system for this process; Python's small objects have others."""

    used: int
    free: int
    """Kept for what comes next."""


def heap_use() -> HeapUse | None:
    """Measure the heap; ``None`` where the C library does not (``mallinfo2(3)`` of the GNU one, from 2.33 on)."""
    import ctypes

    measure: Any = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if measure is None:
        return None

    class Counts(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in _MALLINFO2]

    measure.restype = Counts
    counts = measure()
    return HeapUse(counts.uordblks + counts.hblkhd, counts.fordblks)
