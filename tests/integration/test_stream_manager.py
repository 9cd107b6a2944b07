"""Does with the stream manager what a program without Spark does: streams, tags, reader groups, key-value tables."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest

from pravega_common.errors import (
    AlreadyExists,
    BadKeyVersion,
    InvalidArgument,
    NotFound,
    ScopeNotFound,
    SegmentNotFound,
)
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.errors import ReaderOffline
from pravega_streams.readers.blocking import BlockingEventReader
from pravega_streams.stream_manager import StreamManager
from pravega_streams.table.key_value_table import CompositeKey, KeyValueEntry, KeyValueUpdate
from tests.support.cluster import cluster

__all__ = ["cluster"]

SCOPE = "manager"
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def manager(cluster: StandaloneProcess) -> Iterator[StreamManager]:
    with StreamManager(cluster.controller_uri) as made:
        assert made.create_scope(SCOPE) and not made.create_scope(SCOPE)
        yield made


def new_name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:8]}"


def test_streams_are_made_listed_tagged_and_deleted(manager: StreamManager) -> None:
    scope, stream = new_name("scope"), "one"
    assert manager.create_scope(scope) and scope in list(manager.list_scopes())
    assert manager.create_stream(scope, stream, 2) and not manager.create_stream(scope, stream)
    manager.create_stream(scope, "two", StreamConfiguration(ScalingPolicy.fixed(1), tags=("blue",)))
    assert sorted(manager.list_streams(scope)) == ["one", "two"]
    assert list(manager.list_streams(scope, tag="blue")) == ["two"]
    manager.set_stream_tags(scope, stream, ["red", "blue"])
    assert manager.get_stream_tags(scope, stream) == ["blue", "red"]
    assert sorted(manager.list_streams(scope, tag="blue")) == ["one", "two"]
    manager.update_stream(scope, "two", StreamConfiguration(ScalingPolicy.fixed(1)))
    assert list(manager.list_streams(scope, tag="blue")) == ["one"]
    for name in (stream, "two"):
        manager.seal_stream(scope, name)
        assert manager.delete_stream(scope, name) and not manager.delete_stream(scope, name)
    assert manager.delete_scope(scope)


def read(reader: BlockingEventReader, into: list[str]) -> None:
    into += [bytes(event).decode() for event in reader]


def test_readers_in_threads_share_a_stream(manager: StreamManager) -> None:
    stream = new_name("stream")
    manager.create_stream(SCOPE, stream, 3)
    group = manager.create_reader_group(SCOPE, new_name("group"), [stream], refresh_time_ms=200)
    readers = [group.create_reader(f"r{number}") for number in range(2)]
    with pytest.raises(AlreadyExists):
        group.create_reader("r0")
    found: list[list[str]] = [[], []]
    threads = [threading.Thread(target=read, args=pair) for pair in zip(readers, found, strict=True)]
    for thread in threads:
        thread.start()
    with manager.create_writer(SCOPE, stream) as writer:
        for number in range(300):
            writer.write(f"{number}".encode(), f"key {number % 20}")
    writing = manager.create_transaction_writer(SCOPE, stream).begin()
    writing.write(b"300", "key")
    writing.commit()
    manager.seal_stream(SCOPE, stream)
    for thread in threads:
        thread.join(60)
    assert sorted(map(int, found[0] + found[1])) == list(range(301))
    for key in range(20):
        for events in found:
            mine = [int(event) for event in events if event != "300" and int(event) % 20 == key]
            assert mine == sorted(mine)
    for reader in readers:
        reader.reader_offline()
        with pytest.raises(ReaderOffline):
            reader.get_segment_slice()
    assert group.readers_online() == []
    group.initiate_checkpoint("end")
    tail = manager.client.tail_cut(SCOPE, stream)
    assert group.wait_for_checkpoint("end")[SCOPE, stream].offsets == tail
    assert group.get_stream_cuts()[SCOPE, stream].offsets == tail
    group.reset_to_checkpoint("end")
    group.reset({(SCOPE, stream): manager.client.head_cut(SCOPE, stream)})
    with group.create_reader("again") as again:
        piece = again.get_segment_slice()
        assert piece is not None
        again.release_segment_at(piece, piece.start)
        again.refresh()
    assert manager.open_reader_group(SCOPE, group.name).configuration == group.configuration
    assert manager.delete_reader_group(SCOPE, group.name)
    with pytest.raises(NotFound):
        manager.open_reader_group(SCOPE, group.name)


def test_a_reader_group_and_a_key_value_table_have_no_name_in_common(manager: StreamManager) -> None:
    """Both have their entries in one segment, as the Rust client keeps groups."""
    stream, group, table = new_name("stream"), new_name("group"), new_name("table")
    manager.create_stream(SCOPE, stream)
    manager.create_reader_group(SCOPE, group, [stream])
    with pytest.raises(AlreadyExists, match=f"there is a reader group {SCOPE}/{group}; give the key-value table"):
        manager.create_key_value_table(SCOPE, group, primary_key_length=4)
    assert manager.open_reader_group(SCOPE, group).get_stream_cuts()

    assert manager.create_key_value_table(SCOPE, table, primary_key_length=4, partitions=2)
    assert not manager.create_key_value_table(SCOPE, table, primary_key_length=4, partitions=2)
    held = manager.open_key_value_table(SCOPE, table)
    keys = [CompositeKey(number.to_bytes(4, "big")) for number in range(10)]
    for one in keys:
        held.put(one, b"kept")
    with pytest.raises(AlreadyExists, match=f"there is a key-value table {SCOPE}/{table}; give the reader group"):
        manager.create_reader_group(SCOPE, table, [stream])
    assert not manager.delete_reader_group(SCOPE, table)
    assert all(held.get(one) is not None for one in keys)


def key(primary: int, secondary: int = 0) -> CompositeKey:
    return CompositeKey(primary.to_bytes(4, "big"), secondary.to_bytes(2, "big"))


def test_a_key_value_table_is_written_read_and_walked(manager: StreamManager) -> None:
    name = new_name("table")
    shape = {"primary_key_length": 4, "secondary_key_length": 2, "partitions": 3}
    assert manager.create_key_value_table(SCOPE, name, **shape)
    assert not manager.create_key_value_table(SCOPE, name, **shape)
    assert name in list(manager.list_key_value_tables(SCOPE))
    table = manager.open_key_value_table(SCOPE, name)
    assert (table.settings.partitions, table.settings.key_length) == (3, 6)
    assert table.get(key(1)) is None
    version = table.insert(key(1), b"one")
    with pytest.raises(BadKeyVersion):
        table.insert(key(1), b"again")
    assert table.get(key(1)) == KeyValueEntry(key(1), b"one", version)
    newer = table.replace(key(1), b"two", version)
    with pytest.raises(BadKeyVersion):
        table.replace(key(1), b"three", version)
    with pytest.raises(BadKeyVersion):
        table.replace(key(2), b"absent", version)
    with pytest.raises(BadKeyVersion):
        table.remove(key(1), version)
    table.remove(key(1), newer)
    table.remove(key(1))
    assert table.get_all([key(1), key(5)]) == [None, None]
    for primary in range(250):
        table.put(key(primary), b"%d" % primary)
    table.update([KeyValueUpdate(key(7, item), b"s%d" % item) for item in (3, 1, 2)])
    assert [entry.key.secondary[1] for entry in table.entries(key(7).primary)] == [0, 1, 2, 3]
    bounded = table.entries(key(7).primary, key(0, 1).secondary, key(0, 2).secondary)
    assert [entry.value for entry in bounded] == [b"s1", b"s2"]
    whole = [int.from_bytes(entry.key.primary, "big") for entry in table.entries()]
    assert whole == sorted([*range(250), 7, 7, 7])
    some = [entry.value for entry in table.entries(first=key(10).primary, last=key(12).primary)]
    assert some == [b"10", b"11", b"12"]
    values = [entry.value for entry in table.get_all([key(n) for n in range(40)]) if entry is not None]
    assert values == [b"%d" % number for number in range(40)]
    table.update([KeyValueUpdate(key(7, item), None) for item in (1, 2, 3)])
    assert len(list(table.entries(key(7).primary))) == 1 and table.update([]) == []
    assert manager.delete_key_value_table(SCOPE, name) and not manager.delete_key_value_table(SCOPE, name)
    with pytest.raises(NotFound):
        manager.open_key_value_table(SCOPE, name)
    with pytest.raises(SegmentNotFound):
        table.get(key(1))


def test_requests_that_no_table_can_take_are_refused(manager: StreamManager) -> None:
    name = new_name("table")
    with pytest.raises(InvalidArgument):
        manager.create_key_value_table(SCOPE, name, primary_key_length=0)
    with pytest.raises(ScopeNotFound):
        manager.create_key_value_table("nowhere", name, primary_key_length=4)
    with pytest.raises(ScopeNotFound):
        list(manager.list_key_value_tables("nowhere"))
    with pytest.raises(InvalidArgument):
        manager.create_key_value_table(SCOPE, "a/b", primary_key_length=4)
    manager.create_key_value_table(SCOPE, name, primary_key_length=4)
    table = manager.open_key_value_table(SCOPE, name)
    one, other = CompositeKey(b"aaaa"), CompositeKey(b"bbbb")
    for wrong in (CompositeKey(b"a"), CompositeKey(b"aaaa", b"b")):
        with pytest.raises(InvalidArgument):
            table.put(wrong, b"")
    with pytest.raises(InvalidArgument):
        table.update([KeyValueUpdate(one, b""), KeyValueUpdate(other, b"")])
    with pytest.raises(InvalidArgument):
        table.update([KeyValueUpdate(one, b""), KeyValueUpdate(one, None)])
    with pytest.raises(InvalidArgument):
        list(table.entries(first=b"long key"))
    assert table.put(one, b"") >= 0 and [entry.value for entry in table.entries()] == [b""]
