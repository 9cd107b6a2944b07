"""Checks the names and attribute ids that a peer sends, before anything is kept or done for them."""

from __future__ import annotations

from typing import Final

from pravega_common.errors import InvalidArgument, SegmentNotFound, UnsupportedOperation
from segment_service.contracts.attributes import (
    SEGMENT_TYPE,
    TABLE_TYPES,
    AttributeId,
    is_core,
)
from segment_service.contracts.segment_store import SegmentStore

segment_name_chars_max: Final = 2_048


def check_segment_name(segment: str) -> None:
    """``InvalidArgument`` for a name that no segment can have."""
    if not segment or len(segment) > segment_name_chars_max:
        raise InvalidArgument(f"segment name of {len(segment)} characters must have 1..{segment_name_chars_max}")
    if not segment.isprintable():
        raise InvalidArgument(f"segment name {segment[:80]!r} holds a character that cannot be printed")


def client_attribute(attribute_id: bytes) -> AttributeId:
    """The id, if a peer may write the attribute; ``InvalidArgument`` for those that the store keeps itself.

    No client of Pravega writes one of them: ids of writers are random UUIDs, whose version bits keep them apart.
    """
    made = AttributeId(attribute_id)
    if is_core(made):
        raise InvalidArgument(f"attribute {attribute_id.hex()} is kept by the store and written by no client")
    return made


async def check_is_no_table(store: SegmentStore, segment: str) -> None:
    """``UnsupportedOperation`` for the segment of a table, which only the requests for tables change."""
    try:
        kind = await store.get_attribute(segment, SEGMENT_TYPE)
    except SegmentNotFound:
        return  # The request itself says so, about the segment that it misses first.
    if kind in TABLE_TYPES:
        raise UnsupportedOperation(f"{segment} is the segment of a table, which only requests for tables change")
