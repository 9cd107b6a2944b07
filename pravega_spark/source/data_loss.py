"""Says what became of data that was to be read: lost, or of another stream of the same name."""

from __future__ import annotations

from typing import Final

from pravega_common.errors import DataCorruption
from pravega_common.names import short_segment_name

_GO_ON: Final = "set fail_on_data_loss=false to go on with what is left"
_READ_THE_NEW: Final = (
    "begin with a new checkpoint (or stream cut), or set fail_on_data_loss=false to read the new stream from its "
    "beginning"
)
"""What a query can do about either error."""


def data_loss(scope: str, stream: str, segment_id: int, wanted: int, available: int | None) -> DataCorruption:
    """The error of ``fail_on_data_loss``; ``available`` is the first offset left, None for a deleted segment."""
    left = "the segment is deleted" if available is None else f"the first offset available is {available}"
    return DataCorruption(
        f"data of stream {scope}/{stream} was lost before it was read: segment {short_segment_name(segment_id)} "
        f"from offset {wanted}, {left}; {_GO_ON}"
    )


def replaced(scope: str, stream: str, segment_id: int, wanted: int, found: str) -> DataCorruption:
    """The error of ``fail_on_data_loss`` where the stream of this name is another one than was read; ``found``: why."""
    return DataCorruption(
        f"stream {scope}/{stream} was deleted and made again, or the data of its cluster was replaced: segment "
        f"{short_segment_name(segment_id)} was to be read from offset {wanted}, but {found}; {_READ_THE_NEW}"
    )


def gone(scope: str, stream: str) -> DataCorruption:
    """The error of ``fail_on_data_loss`` where a stream that a pattern found is deleted."""
    return DataCorruption(
        f"stream {scope}/{stream} is deleted, and the checkpoint has a position in it: nobody can tell what was left "
        "to read; set fail_on_data_loss=false to go on with the other streams"
    )


def with_advice(text: str, advice: str) -> str:
    """Replaces what a query can do, in a text that has one of the first two errors, by the advice of a command, which
    has no such option. A text, as that is what Spark makes of an error in a task."""
    return text.replace(_GO_ON, advice).replace(_READ_THE_NEW, advice)


def head_advice(option: str, stream: str) -> str:
    """The advice of a command whose ``option`` says where it begins in a stream."""
    return f"begin at the head ({option} earliest), or at the text that pravega-spark stream cut {stream} head prints"
