"""Every update type against an absent, a smaller, an equal and a greater value."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pravega_common.errors import BadAttributeUpdate, InvalidArgument, UnsupportedOperation
from segment_service.contracts.attributes import (
    EVENT_COUNT,
    NULL_ATTRIBUTE_VALUE,
    SEGMENT_TYPE,
    SEGMENT_TYPE_FIXED_KEY_TABLE,
    SEGMENT_TYPE_HASH_TABLE,
    SEGMENT_TYPE_TRANSIENT,
    AttributeId,
    AttributeUpdate,
    AttributeUpdateType,
)
from segment_service.durable_log.attribute_updates import resolve_updates

KEY = AttributeId(b"0123456789abcdef")
NONE = NULL_ATTRIBUTE_VALUE


@pytest.mark.parametrize(
    ("kind", "old", "value", "comparison", "new"),
    [
        (AttributeUpdateType.NONE, NONE, 5, NONE, 5),
        (AttributeUpdateType.NONE, 0, 5, NONE, None),
        (AttributeUpdateType.REPLACE, NONE, 5, NONE, 5),
        (AttributeUpdateType.REPLACE, 9, 5, NONE, 5),
        (AttributeUpdateType.REPLACE, 9, NONE, NONE, NONE),
        (AttributeUpdateType.REPLACE_IF_GREATER, NONE, 5, NONE, 5),
        (AttributeUpdateType.REPLACE_IF_GREATER, 4, 5, NONE, 5),
        (AttributeUpdateType.REPLACE_IF_GREATER, 5, 5, NONE, None),
        (AttributeUpdateType.ACCUMULATE, NONE, 5, NONE, 5),
        (AttributeUpdateType.ACCUMULATE, 4, -5, NONE, -1),
        (AttributeUpdateType.REPLACE_IF_EQUALS, NONE, 5, NONE, 5),
        (AttributeUpdateType.REPLACE_IF_EQUALS, 4, 5, 4, 5),
        (AttributeUpdateType.REPLACE_IF_EQUALS, 4, 5, 3, None),
        (AttributeUpdateType.REPLACE_IF_EQUALS, 4, 5, NONE, None),
        (AttributeUpdateType.REPLACE_IF_EQUALS, NONE, 5, 4, None),
    ],
)
def test_one_update(kind: AttributeUpdateType, old: int, value: int, comparison: int, new: int | None) -> None:
    update = AttributeUpdate(KEY, kind, value, comparison)
    if new is None:
        with pytest.raises(BadAttributeUpdate) as raised:
            resolve_updates("s", [update], lambda _: old)
        assert raised.value.current == old and raised.value.attribute_id == KEY
    else:
        assert resolve_updates("s", [update], lambda _: old) == [(KEY, new)]


def test_a_later_update_sees_an_earlier_one() -> None:
    add = AttributeUpdate(KEY, AttributeUpdateType.ACCUMULATE, 2)
    assert resolve_updates("s", [add, add, add], lambda _: NONE) == [(KEY, 6)]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="16 bytes"):
        resolve_updates("s", [AttributeUpdate(AttributeId(b"short"), AttributeUpdateType.REPLACE, 1)], lambda _: NONE)
    with pytest.raises(InvalidArgument, match="64 bits"):
        resolve_updates("s", [AttributeUpdate(KEY, AttributeUpdateType.ACCUMULATE, 1)], lambda _: (1 << 63) - 1)
    with pytest.raises(InvalidArgument, match="10001"):
        resolve_updates("s", [AttributeUpdate(KEY, AttributeUpdateType.REPLACE, 1)] * 10_001, lambda _: NONE)


def of_type(kind: int) -> Callable[[AttributeId], int]:
    """The attributes of a segment that has its type and nothing else."""
    return lambda key: kind if key == SEGMENT_TYPE else NONE


def test_no_events_come_to_a_table() -> None:
    count = [AttributeUpdate(EVENT_COUNT, AttributeUpdateType.ACCUMULATE, 3)]
    for kind in (SEGMENT_TYPE_HASH_TABLE, SEGMENT_TYPE_FIXED_KEY_TABLE):
        with pytest.raises(UnsupportedOperation, match="s is the segment of a table"):
            resolve_updates("s", count, of_type(kind))
    for kind in (NONE, SEGMENT_TYPE_TRANSIENT):
        assert resolve_updates("s", count, of_type(kind))
