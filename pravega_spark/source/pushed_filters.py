"""Applies filters on ``scope``, ``stream``, ``segment_id`` and ``offset`` to the spans of a batch read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from pravega_spark.rows.columns import SOURCE_COLUMNS
from pravega_spark.source.span_filters import NO_FILTERS, Filters, Test

_WHOLE_SPAN: Final = ("scope", "stream", "segment_id")
"""Columns that are the same in all rows of a span: a filter on them alone is settled when spans are chosen."""
_COMPARISONS: Final[dict[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


def pushed(filters: Sequence[Filter]) -> tuple[Filters, list[Filter]]:
    """The filters that spans are chosen by, and those that Spark has to apply to the rows.

    Filters on offsets are in both: spans end only near them.
    """
    tests: list[tuple[str, Test]] = []
    left: list[Filter] = []
    first, last = 0, NO_FILTERS.last
    for item in filters:
        column = _column(item)
        if isinstance(item, IsNotNull) and column in SOURCE_COLUMNS:
            continue
        if column in _WHOLE_SPAN and _is_understood(item):
            tests.append((column, partial(_holds, item)))
            continue
        left.append(item)
        if column == "offset":
            low, high = _offsets(item)
            first, last = max(first, low), min(last, high)
    return Filters(tuple(tests), first, last), left


def _column(item: Filter) -> str:
    """The one column that a filter is about; empty for others."""
    attribute: Sequence[str] = getattr(item.child if isinstance(item, Not) else item, "attribute", ())
    return attribute[0] if len(attribute) == 1 else ""


def _is_understood(item: Filter) -> bool:
    if isinstance(item, Not):
        return _is_understood(item.child)
    if isinstance(item, In):
        return None not in item.value
    return type(item) in _COMPARISONS and getattr(item, "value", None) is not None


def _holds(item: Filter, value: Any) -> bool:
    if isinstance(item, Not):
        return not _holds(item.child, value)
    if isinstance(item, In):
        return value in item.value
    return _COMPARISONS[type(item)](value, getattr(item, "value"))  # noqa: B009


def _offsets(item: Filter) -> tuple[int, int]:
    """The least and the greatest offset that a filter lets through, about."""
    everything = (0, NO_FILTERS.last)
    match item:
        case In(value=values) if values and all(isinstance(value, int) for value in values):
            return min(values), max(values)
        case EqualTo(value=int(value)) | EqualNullSafe(value=int(value)):
            return value, value
        case GreaterThan(value=int(value)) | GreaterThanOrEqual(value=int(value)):
            return value, everything[1]
        case LessThan(value=int(value)) | LessThanOrEqual(value=int(value)):
            return 0, value
    return everything
