"""Checks the names and attribute ids that a peer sends, before anything is kept or done for them."""

from __future__ import annotations

from typing import Final

from pravega_common.errors import InvalidArgument
from segment_service.contracts.attributes import AttributeId, is_core

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
