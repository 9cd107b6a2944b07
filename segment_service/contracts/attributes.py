"""Defines attributes: 64-bit numbers kept with a segment and changed together with its bytes.

Ids and meanings: docs/wire-protocol.md 7 (core attributes have the upper half 0x8000000000000000;
a writer's id is itself an attribute id whose value is the writer's last event number).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, NewType

AttributeId = NewType("AttributeId", bytes)
"""Sixteen bytes, big-endian, as on the wire."""

NULL_ATTRIBUTE_VALUE: Final = -(1 << 63)
"""Absent; setting an attribute to this value removes it."""


_CORE: Final = (0x8000_0000_0000_0000).to_bytes(8, "big")


def core_attribute(low: int) -> AttributeId:
    return AttributeId(_CORE + low.to_bytes(8, "big"))


def is_core(attribute_id: AttributeId) -> bool:
    """Whether it is an attribute of the segment itself; any other one is a writer's, in general."""
    return attribute_id[:8] == _CORE


CREATION_TIME: Final = core_attribute(0)
EVENT_COUNT: Final = core_attribute(1)
SCALE_POLICY_TYPE: Final = core_attribute(2)
SCALE_POLICY_RATE: Final = core_attribute(3)
ROLLOVER_SIZE: Final = core_attribute(4)
SEGMENT_TYPE: Final = core_attribute(9)
TABLE_KEY_LENGTH: Final = core_attribute(12)

EXPECTED_INDEX_EVENT_SIZE: Final = core_attribute(16)
"""On index segments: bytes of a record."""

MERGED_EVENT_COUNT: Final = core_attribute(0x200000)
"""This project's own: events that came by merges, which EVENT_COUNT does not count."""
INDEX_OWNER: Final = core_attribute(0x200001)
"""This project's own, on index segments: id of the segment that the index is about."""
INDEXED_LENGTH: Final = core_attribute(0x200002)
"""This project's own, on index segments: length in the last record."""
INDEXED_TIME: Final = core_attribute(0x200003)
"""This project's own, on index segments: time in the last record, in ms. The event count there is EVENT_COUNT."""
TABLE_INDEX_IN_TIER2: Final = core_attribute(0x200004)
"""This project's own, on table segments: the key index may have a map in Tier 2."""

ATTRIBUTES_IN_TIER2: Final = core_attribute(0x200005)
"""This project's own: attributes of writers may be in Tier 2 only. High water of the flush after which some left
memory last; 0 before the first."""

SEGMENT_TYPE_STREAM: Final = 0
SEGMENT_TYPE_HASH_TABLE: Final = 1
SEGMENT_TYPE_FIXED_KEY_TABLE: Final = 5
SEGMENT_TYPE_TRANSIENT: Final = 0x80
TABLE_TYPES: Final = (SEGMENT_TYPE_HASH_TABLE, SEGMENT_TYPE_FIXED_KEY_TABLE)
"""The types of segments that only requests for tables change: no events come to them."""


class AttributeUpdateType(enum.IntEnum):
    """The effect of a new value on the old one; numbers as on the wire."""

    NONE = 0
    """Set only if absent."""
    REPLACE = 1
    REPLACE_IF_GREATER = 2
    ACCUMULATE = 3
    REPLACE_IF_EQUALS = 4
    """Set only if the current value (absent = ``NULL_ATTRIBUTE_VALUE``) equals ``comparison``."""


@dataclass(frozen=True, slots=True)
class AttributeUpdate:
    """One change of one attribute."""

    attribute_id: AttributeId
    update_type: AttributeUpdateType
    value: int
    comparison: int = NULL_ATTRIBUTE_VALUE
