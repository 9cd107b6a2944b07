"""What a process remembers of the streams that it has found in place."""

from __future__ import annotations

from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError
from pravega_spark.gateway import provisioning
from pravega_spark.gateway.provisioning import forget_provisioned, provision_stream
from pravega_spark.options.definitions import Use
from pravega_spark.options.write_options import WriteOptions
from tests.unit.pravega_spark.streams import FakeStreams


def test_a_limited_number_of_streams_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of a sink with a column ``stream`` may come to a new stream with every row, for months."""
    forget_provisioned()
    monkeypatch.setattr(provisioning, "provisioned_max", 10)
    streams = FakeStreams(tmp_path)
    options = WriteOptions.parse({"scope": "s"}, Use.STREAM_WRITE)
    for number in range(25):
        streams.create(f"t{number}")
    asked: list[str] = []
    exists = streams.gateway.stream_exists

    def counted(scope: str, stream: str) -> bool:
        asked.append(stream)
        return exists(scope, stream)

    monkeypatch.setattr(streams.gateway, "stream_exists", counted)
    for number in range(25):
        for _ in range(3):
            provision_stream(streams.gateway, options, "s", f"t{number}")
        assert len(provisioning._provisioned) <= 10
    assert asked == [f"t{number}" for number in range(25)], "and each of those is asked for once"


def test_a_stream_that_must_not_be_created_needs_no_scope(tmp_path: Path) -> None:
    """A write creates a missing scope unless told otherwise: one of a mistyped name stayed."""
    forget_provisioned()
    streams = FakeStreams(tmp_path)
    options = WriteOptions.parse({"path": "nowhere/t", "allow_create_stream": "false"}, Use.STREAM_WRITE)
    assert options.allow_create_scope
    with pytest.raises(ConfigurationError, match="scope does not exist: 'nowhere'; create it, or set allow_create_s"):
        provision_stream(streams.gateway, options, "nowhere", "t")
    assert not streams.gateway.scope_exists("nowhere")
