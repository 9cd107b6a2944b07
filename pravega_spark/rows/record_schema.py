"""Defines the columns that come out of a record, and checks the types that are wanted of them."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from pravega_common.errors import InvalidArgument

RECORD_PARTS: Final = {
    "key": "binary or string",
    "value": "binary or string",
    "headers": "array<struct<key: string, value: binary>>",
    "timestamp": "timestamp",
}
"""The columns that come out of a record, and the SQL types that each may have."""


def check_part(field: pa.Field) -> None:
    """``InvalidArgument`` for a column of a record that is wanted as another type."""
    kind = field.type
    match field.name:
        case "key" | "value":
            fits = kind in (pa.binary(), pa.string())
        case "headers":
            fits = pa.types.is_list(kind) and _is_header(kind.value_type)
        case _:
            fits = pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is not None
    if not fits:
        raise InvalidArgument(f"column '{field.name}' must be {RECORD_PARTS[field.name]}, not {kind}")


def _is_header(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and [(item.name, item.type) for item in kind] == [
        ("key", pa.string()),
        ("value", pa.binary()),
    ]
