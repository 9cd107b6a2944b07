"""Formats a number of bytes for people."""

from __future__ import annotations

from typing import Final

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


def text_of_bytes(count: int) -> str:
    """Formats a size as ``1.5 GiB``; the exact number below a KiB."""
    if count < 1024:
        return f"{count} B"
    power = min(len(_UNITS), (count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.1f} {_UNITS[power - 1]}"
