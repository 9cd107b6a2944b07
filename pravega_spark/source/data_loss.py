"""Says what became of data that was to be read: lost, or of another stream of the same name."""

from __future__ import annotations

from pravega_common.errors import DataCorruption
from pravega_common.names import short_segment_name


def data_loss(scope: str, stream: str, segment_id: int, wanted: int, available: int | None) -> DataCorruption:
    """The error of ``fail_on_data_loss``; ``available`` is the first offset left, None for a deleted segment."""
    left = "the segment is deleted" if available is None else f"the first offset available is {available}"
    return DataCorruption(
        f"data of stream {scope}/{stream} was lost before it was read: segment {short_segment_name(segment_id)} "
        f"from offset {wanted}, {left}; set fail_on_data_loss=false to go on with what is left"
    )


def replaced(scope: str, stream: str, segment_id: int, wanted: int, found: str) -> DataCorruption:
    """The error of ``fail_on_data_loss`` where the stream of this name is another one than was read; ``found``: why."""
    return DataCorruption(
        f"stream {scope}/{stream} was deleted and made again, or the data of its cluster was replaced: segment "
        f"{short_segment_name(segment_id)} was to be read from offset {wanted}, but {found}; begin with a "
        "new checkpoint (or stream cut), or set fail_on_data_loss=false to read the new stream from its beginning"
    )


def gone(scope: str, stream: str) -> DataCorruption:
    """The error of ``fail_on_data_loss`` where a stream that a pattern found is deleted."""
    return DataCorruption(
        f"stream {scope}/{stream} is deleted, and the checkpoint has a position in it: nobody can tell what was left "
        "to read; set fail_on_data_loss=false to go on with the other streams"
    )
