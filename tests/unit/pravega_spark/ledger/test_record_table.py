"""A table segment of another's making is found a moment after its creation has begun, as a Pravega does it."""

from __future__ import annotations

import pytest

from pravega_common.errors import SegmentNotFound, Unavailable
from pravega_spark.ledger.record_table import look_pause_s, looks_max, read_or_create
from pravega_streams.table.table_client import NOT_EXISTS, TableItem
from tests.support.fakes.plain_pravega import PlainPravega, Table


class SlowTable(Table):
    """A table that is found after some looks; its creation, begun by another, is answered with "it exists"."""

    def __init__(self, looks: int) -> None:
        super().__init__(PlainPravega(), "a table")
        super().create()
        self.looks = looks
        self.creations = 0

    def create(self) -> bool:
        self.creations += 1
        return False

    def get(self, key: bytes) -> TableItem:
        self.looks -= 1
        if self.looks >= 0:
            raise SegmentNotFound("a table")
        return super().get(key)


@pytest.mark.parametrize("looks", [0, 1, 2, looks_max])
def test_the_entry_is_read_once_the_table_is_found(looks: int) -> None:
    table, pauses = SlowTable(looks), list[float]()
    assert read_or_create(table, b"key", pauses.append).version == NOT_EXISTS
    assert table.creations == min(looks, 1)
    assert pauses == [look_pause_s] * max(looks - 1, 0)


def test_a_table_that_is_never_found_is_unavailable() -> None:
    table, pauses = SlowTable(10 * looks_max), list[float]()
    with pytest.raises(Unavailable, match=r"not found after 2 s: .*a table"):
        read_or_create(table, b"key", pauses.append)
    assert len(pauses) == looks_max
