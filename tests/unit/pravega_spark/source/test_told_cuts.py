"""Reads between the positions of another query, which goes on while a read of several streams is planned."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from pravega_common.errors import InvalidArgument
from pravega_spark.gateway.provisioning import forget_provisioned
from pravega_spark.options.definitions import Use
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.source import told_cuts
from pravega_spark.source.batch_reader import BatchReader
from pravega_spark.source.checkpoint import CommittedPosition
from pravega_spark.source.plain_stream_reader import PlainStreamReader
from pravega_spark.source.stream_reader import StreamReader
from tests.unit.pravega_spark.source.queries import SCHEMA, Query
from tests.unit.pravega_spark.streams import FakeStreams

NAMES = ("a1", "a2", "a3")
EVENT_BYTES = 9
"""With its framing."""


@pytest.fixture
def streams(tmp_path: Path) -> FakeStreams:
    forget_provisioned()
    return FakeStreams(tmp_path)


@pytest.fixture
def filled(streams: FakeStreams) -> FakeStreams:
    """Three streams of six events."""
    for name in NAMES:
        streams.create(name)
        streams.append(name, 0, [str(number).encode() for number in range(6)])
    return streams


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes each time that a checkpoint is read; its query is one event further then in each stream."""
    folders: list[str] = []

    def going_on(folder: str) -> CommittedPosition:
        folders.append(folder)
        at = EVENT_BYTES * len(folders)
        return CommittedPosition(folder, len(folders), {f"s/{name}": {0: at} for name in NAMES})

    monkeypatch.setattr(told_cuts, "committed_position", going_on)
    return folders


def options(streams: FakeStreams, use: Use, /, **given: str) -> ReadOptions:
    named = {"controller": streams.controller, "scope": "s", "stream_pattern": "a.*", "packed_bytes": "0"}
    return ReadOptions.parse({**named, **given}, use)


def of_batch(streams: FakeStreams, **given: str) -> list[list[bytes]]:
    given.setdefault("start_stream_cut", "earliest")
    source = BatchReader(options(streams, Use.BATCH_READ, **given), SCHEMA)
    return rows(source, source.partitions())


def of_query(streams: FakeStreams, **given: str) -> list[list[bytes]]:
    given.setdefault("start_stream_cut", "earliest")
    made = Query(StreamReader(options(streams, Use.STREAM_READ, **given), SCHEMA)).step()
    assert made is not None
    return made


def of_plain_query(streams: FakeStreams, **given: str) -> list[list[bytes]]:
    source = PlainStreamReader(options(streams, Use.STREAM_READ, order="none", **given), SCHEMA)
    end = source.latestOffset()
    return rows(source, source.partitions(source.initialOffset(), end))


def rows(source: Any, partitions: list[InputPartition]) -> list[list[bytes]]:
    """The rows of each partition."""
    return [
        [row for batch in source.read(partition) for row in batch.column(0).to_pylist()] for partition in partitions
    ]


@pytest.mark.parametrize("plan", [of_batch, of_query, of_plain_query])
def test_a_checkpoint_to_start_at_is_read_once(
    filled: FakeStreams, read: list[str], plan: Callable[..., list[list[bytes]]]
) -> None:
    """All streams start where one batch of its query ended."""
    made = sorted(row for partition in plan(filled, start_stream_cut="/c") for row in partition)
    assert read == ["/c"]
    assert made == sorted([b"1", b"2", b"3", b"4", b"5"] * 3)


@pytest.mark.parametrize("plan", [of_batch, of_query])
def test_a_checkpoint_to_end_at_is_read_once(
    filled: FakeStreams, read: list[str], plan: Callable[..., list[list[bytes]]]
) -> None:
    assert [row for partition in plan(filled, end_stream_cut="/c") for row in partition] == [b"0"] * 3
    assert read == ["/c"]


@pytest.mark.parametrize("plan", [of_batch, of_query])
def test_a_start_and_an_end(filled: FakeStreams, read: list[str], plan: Callable[..., list[list[bytes]]]) -> None:
    """Each plan asks again, as the query has gone on."""
    for _ in range(2):
        plan(filled, start_stream_cut="/start", end_stream_cut="/end")
        assert sorted(read[-2:]) == ["/end", "/start"]
    assert len(read) == 4


def test_a_query_that_waits_for_its_first_stream_asks_no_checkpoint(streams: FakeStreams, read: list[str]) -> None:
    """Nor does one that has a checkpoint of its own ask where to start."""
    given = {"start_stream_cut": "/start", "end_stream_cut": "/end"}
    assert of_query(streams, **given) == of_plain_query(streams, start_stream_cut="/start") == []
    assert read == []


def test_a_stream_that_a_checkpoint_does_not_have(filled: FakeStreams, read: list[str]) -> None:
    filled.create("b1")
    given = {"controller": filled.controller, "scope": "s", "stream": "b1", "start_stream_cut": "/c"}
    source = BatchReader(ReadOptions.parse(given, Use.BATCH_READ), SCHEMA)
    with pytest.raises(InvalidArgument, match="the stream cut is of s/a1, s/a2, s/a3, but the stream to read is s/b1"):
        source.partitions()
    assert read == ["/c"]
