"""Resolves attribute updates against the current values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pravega_common.errors import BadAttributeUpdate, InvalidArgument, UnsupportedOperation
from segment_service.contracts.attributes import (
    EVENT_COUNT,
    NULL_ATTRIBUTE_VALUE,
    SEGMENT_TYPE,
    TABLE_TYPES,
    AttributeId,
    AttributeUpdate,
    AttributeUpdateType,
)

attribute_id_bytes: Final = 16
attribute_updates_max: Final = 10_000
"""Attribute updates of one operation."""

attribute_value_max: Final = (1 << 63) - 1

_NONE: Final = AttributeUpdateType.NONE
_REPLACE: Final = AttributeUpdateType.REPLACE
_REPLACE_IF_GREATER: Final = AttributeUpdateType.REPLACE_IF_GREATER
_ACCUMULATE: Final = AttributeUpdateType.ACCUMULATE
_REPLACE_IF_EQUALS: Final = AttributeUpdateType.REPLACE_IF_EQUALS


def resolve_updates(
    segment: str, updates: Sequence[AttributeUpdate], current: Callable[[AttributeId], int]
) -> list[tuple[AttributeId, int]]:
    """The new values, in the order of the updates; a later update sees an earlier one of the same call.

    ``current`` gives ``NULL_ATTRIBUTE_VALUE`` for an absent attribute. ``BadAttributeUpdate`` if a condition does
    not hold, ``InvalidArgument`` for an id or value that does not fit its field, ``UnsupportedOperation`` for events
    that come to a table: then nothing is to be applied.
    """
    if len(updates) > attribute_updates_max:
        raise InvalidArgument(f"{segment}: {len(updates)} attribute updates in one call; {attribute_updates_max} fit")
    values: dict[AttributeId, int] = {}
    for update in updates:
        attribute_id = update.attribute_id
        old = values[attribute_id] if attribute_id in values else current(attribute_id)
        if old == NULL_ATTRIBUTE_VALUE and attribute_id == EVENT_COUNT and current(SEGMENT_TYPE) in TABLE_TYPES:
            # Its writer was set up while another segment had the name.
            raise UnsupportedOperation(f"{segment} is the segment of a table, which takes entries and no events")
        new = _resolve(segment, update, old)
        if len(attribute_id) != attribute_id_bytes:
            raise InvalidArgument(f"{segment}: attribute id {attribute_id.hex()} must have {attribute_id_bytes} bytes")
        if not NULL_ATTRIBUTE_VALUE <= new <= attribute_value_max:
            raise InvalidArgument(f"{segment}: attribute {attribute_id.hex()} = {new} does not fit 64 bits")
        values[attribute_id] = new
    return list(values.items())


def _resolve(segment: str, update: AttributeUpdate, old: int) -> int:
    kind = update.update_type
    if kind == _REPLACE_IF_EQUALS:
        if old == update.comparison:
            return update.value
    elif kind == _ACCUMULATE:
        return update.value if old == NULL_ATTRIBUTE_VALUE else old + update.value
    elif kind == _REPLACE:
        return update.value
    elif kind == _REPLACE_IF_GREATER:
        if old == NULL_ATTRIBUTE_VALUE or update.value > old:
            return update.value
    elif kind == _NONE:
        if old == NULL_ATTRIBUTE_VALUE:
            return update.value
    else:
        raise InvalidArgument(f"{segment}: unknown attribute update type {kind!r}")
    raise BadAttributeUpdate(segment, update.attribute_id, old)
