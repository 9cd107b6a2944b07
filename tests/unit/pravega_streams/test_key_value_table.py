"""Compares the partitions of a key-value table with those that the Java client chose in a recording (java-kvt)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from pravega_common.errors import InvalidArgument
from pravega_common.names import table_segment_name
from pravega_common.wire import commands as c
from pravega_streams.segment.segment_client import SegmentClient
from pravega_streams.table.key_value_table import CompositeKey, KeyValueTable, KeyValueUpdate
from pravega_streams.table.key_value_tables import KeyValueTableSettings

PARTITIONS = {0: 0, 1: 1, 2: 1, 5: 1, 7: 1, 9: 0}
"""The partition of each primary key in the recording, of two."""


class OneRequest:
    """Takes one put and keeps it."""

    def call(self, segment: str, make: Any, expect: Any, *, idempotent: bool) -> c.TableEntriesUpdated:
        self.segment, self.request, self.idempotent = segment, make(7), idempotent
        return c.TableEntriesUpdated(7, (41,))


@pytest.mark.parametrize("primary", PARTITIONS)
def test_a_put_is_the_one_of_the_java_client(primary: int) -> None:
    segments = OneRequest()
    names = [table_segment_name("jscope", "kv", number) for number in range(2)]
    table = KeyValueTable(cast(SegmentClient, segments), names, KeyValueTableSettings(2, 4, 4))
    key = CompositeKey(primary.to_bytes(4, "big"), (3).to_bytes(4, "big"))
    assert table.put(key, b"v3") == 41 and segments.idempotent
    assert segments.segment == f"jscope/kv_kvtable/{PARTITIONS[primary]}.#epoch.0"
    entry = c.WireTableEntry(c.WireTableKey(primary.to_bytes(4, "big") + b"\0\0\0\3", -(1 << 63)), b"v3")
    assert segments.request == c.UpdateTableEntries(7, segments.segment, "", (entry,))
    table.insert(key, b"v3")
    assert not segments.idempotent and segments.request.entries[0].key.version == -1


def test_settings_that_no_call_can_carry_name_the_number_and_the_limit() -> None:
    KeyValueTableSettings(2**31 - 1, 2**31 - 1, 2**31 - 1)
    for name in ("partitions", "primary_key_length", "secondary_key_length"):
        numbers = {"partitions": 1, "primary_key_length": 1} | {name: 2**31}
        with pytest.raises(InvalidArgument, match=f"{name}: 2147483648 is not possible, .*2147483647"):
            KeyValueTableSettings(**numbers)


class NoRequests:
    """Fails whoever asks the store."""

    def call(self, segment: str, make: Any, expect: Any, *, idempotent: bool) -> None:
        raise AssertionError(f"{make(1)} was sent")


def test_a_put_of_none_removes_nothing_and_says_so() -> None:
    table = KeyValueTable(cast(SegmentClient, NoRequests()), ["s/kv_kvtable/0.#epoch.0"], KeyValueTableSettings(1, 3))
    key, none = CompositeKey(b"tea"), cast(bytes, None)
    calls: tuple[Callable[[], object], ...] = (
        lambda: table.put(key, none),
        lambda: table.insert(key, none),
        lambda: table.replace(key, none, 4),
    )
    for call in calls:
        with pytest.raises(InvalidArgument, match="a value of None; remove"):
            call()


@pytest.mark.parametrize("value", [0, False, "", [], "text", 5])
def test_a_value_of_another_type_is_refused_and_not_taken_for_an_empty_one(value: Any) -> None:
    table = KeyValueTable(cast(SegmentClient, NoRequests()), ["s/kv_kvtable/0.#epoch.0"], KeyValueTableSettings(1, 3))
    key = CompositeKey(b"tea")
    for call in (lambda: table.put(key, value), lambda: table.update([KeyValueUpdate(key, value)])):
        with pytest.raises(InvalidArgument, match=f"a value is bytes, not {type(value).__name__}"):
            call()


@pytest.mark.parametrize("primary", ["tea", 5])
def test_a_key_of_another_type_is_refused_as_such(primary: Any) -> None:
    table = KeyValueTable(cast(SegmentClient, NoRequests()), ["s/kv_kvtable/0.#epoch.0"], KeyValueTableSettings(1, 3))
    for call in (lambda: table.get(CompositeKey(primary)), lambda: table.put(CompositeKey(primary), b"3")):
        with pytest.raises(InvalidArgument, match=f"a primary key is bytes, not {type(primary).__name__}"):
            call()


def test_a_value_of_items_of_several_bytes_is_put_as_its_bytes() -> None:
    """The count of its items in the place of that of its bytes would make another request of what follows."""
    segments = OneRequest()
    table = KeyValueTable(cast(SegmentClient, segments), ["s/kv_kvtable/0.#epoch.0"], KeyValueTableSettings(1, 3))
    table.put(CompositeKey(b"tea"), cast(bytes, memoryview(b"four").cast("i")))
    assert segments.request.entries[0].value == b"four"
