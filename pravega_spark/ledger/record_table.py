"""Reads a record of a table segment that the first reader makes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from pravega_common.errors import SegmentNotFound, Unavailable
from pravega_streams.table.table_client import TableItem

looks_max: Final = 40
look_pause_s: Final = 0.05
"""A Pravega says that a segment exists as soon as its creation has begun, and finds it a moment later: this many looks
with this pause are two seconds."""


class RecordTable(Protocol):
    """The calls to a table segment; ``BlockingTable`` has them."""

    def create(self) -> bool: ...

    def get(self, key: bytes) -> TableItem: ...

    def put(self, key: bytes, value: bytes, version: int) -> int: ...

    def items(self) -> Iterator[TableItem]: ...


def read_or_create(table: RecordTable, key: bytes, sleep: Callable[[float], None] = time.sleep) -> TableItem:
    """Returns a key's entry, and creates the table if it is not there.

    Errors: ``Unavailable``: the table was not found within two seconds after its creation; call again.
    """
    try:
        return table.get(key)
    except SegmentNotFound:
        table.create()
    for _ in range(looks_max):
        try:
            return table.get(key)
        except SegmentNotFound as error:
            missing = error
            sleep(look_pause_s)
    raise Unavailable(f"a table that was created is not found after {looks_max * look_pause_s:g} s: {missing}")
