"""Makes the records that the drill writes with format=record, and compares them when they are read."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

keys: Final = 10
tombstone_every: Final = 7
first_time: Final = datetime(2026, 1, 31, 12, tzinfo=UTC)

COLUMNS: Final = (
    "cast(routing_key as binary) as key",
    f"if(cast(event as int) % {tombstone_every} = 0, null, cast(event as binary)) as value",
    "array(named_struct('key', 'number', 'value', cast(event as binary)),"
    " named_struct('key', 'key', 'value', cast(routing_key as binary))) as headers",
    f"timestamp_seconds({int(first_time.timestamp())} + cast(event as int)) as timestamp",
)
"""SQL of a record, from the columns ``event`` (a number of six digits) and ``routing_key``."""
SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)


def record_of(number: int) -> dict[str, Any]:
    """The record of a number, as it is read."""
    text, key = f"{number:06d}".encode(), f"k{number % keys}".encode()
    return {
        "key": key,
        "value": None if number % tombstone_every == 0 else text,
        "headers": [{"key": "number", "value": text}, {"key": "key", "value": key}],
        "timestamp": first_time + timedelta(seconds=number),
    }


def numbers_of(records: Iterable[dict[str, Any]]) -> list[int]:
    """The numbers of records; a negative one for a record of which any part is not as it was written.

    So that counts as a phantom, and its number as lost.
    """
    numbers = []
    for index, record in enumerate(records):
        headers = record["headers"] or [{"value": b""}]
        text = headers[0]["value"] or b""
        number = int(text) if text.isdigit() else -1
        numbers.append(number if number >= 0 and record == record_of(number) else -1 - index)
    return numbers
