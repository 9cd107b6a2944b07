"""Tests the position of a query, from files as Spark writes them."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest
from pyarrow import fs
from typer.testing import CliRunner

from pravega_common.errors import InvalidArgument
from pravega_common.stream_cut import StreamCut
from pravega_spark.application import make_application
from pravega_spark.source.checkpoint import committed_position
from pravega_spark.source.offsets import OffsetsByStream, SourceOffset

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


class Checkpoint:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("offsets", "commits"):
            (folder / name).mkdir()

    def planned(self, batch: int, *lines: str, version: str = "v1") -> None:
        (self.folder / "offsets" / str(batch)).write_text("\n".join([version, METADATA, *lines]))
        (self.folder / "offsets" / f".{batch}.crc").write_bytes(b"crc")

    def finished(self, batch: int) -> None:
        (self.folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path)


def offset(position: OffsetsByStream) -> str:
    return json.dumps(
        SourceOffset(position, {stream: dict.fromkeys(cut, 0) for stream, cut in position.items()}).to_json()
    )


def test_only_the_last_finished_batch_counts(checkpoint: Checkpoint) -> None:
    for batch in (8, 9, 10, 11):
        checkpoint.planned(batch, offset({"s/t": {0: batch * 100}}))
    for batch in (8, 9, 10):
        checkpoint.finished(batch)
    found = committed_position(str(checkpoint.folder))
    assert (found.batch_id, found.position) == (10, {"s/t": {0: 1000}})
    again = committed_position(f"file://{checkpoint.folder}")
    assert (again.batch_id, again.position) == (found.batch_id, found.position)


def test_a_stream_that_the_query_does_not_read(checkpoint: Checkpoint) -> None:
    checkpoint.planned(0, offset({"s/u": {0: 5}, "s/t": {0: 1}}))
    checkpoint.finished(0)
    found = committed_position(str(checkpoint.folder))
    assert found.of("s/u") == {0: 5}
    with pytest.raises(InvalidArgument, match=rf"of checkpoint {checkpoint.folder} reads s/t, s/u, not s/x"):
        found.of("s/x")


def test_a_commit_without_its_offsets_is_passed_over(checkpoint: Checkpoint) -> None:
    checkpoint.planned(3, offset({"s/t": {0: 300}}))
    checkpoint.finished(3)
    checkpoint.finished(4)
    assert committed_position(str(checkpoint.folder)).batch_id == 3


def test_other_sources_are_passed_over(checkpoint: Checkpoint) -> None:
    checkpoint.planned(0, '{"logOffset":3}', "-", offset({"s/t": {0: 1}, "s/u": {0: 5}}), '{"topic":{"0":17}}')
    checkpoint.finished(0)
    assert committed_position(str(checkpoint.folder)).position == {"s/t": {0: 1}, "s/u": {0: 5}}


def test_names_of_sources_in_version_2(checkpoint: Checkpoint) -> None:
    checkpoint.planned(0, "first", offset({"s/t": {0: 1}}), "second", '{"logOffset":3}', version="v2")
    checkpoint.finished(0)
    assert committed_position(str(checkpoint.folder)).position == {"s/t": {0: 1}}


def test_a_stream_read_twice_counts_where_both_have_passed(checkpoint: Checkpoint) -> None:
    checkpoint.planned(0, offset({"s/t": {0: 10, 1: 50}}), offset({"s/t": {0: 20, 1: 40}}))
    checkpoint.finished(0)
    assert committed_position(str(checkpoint.folder)).position == {"s/t": {0: 10, 1: 40}}
    checkpoint.planned(1, offset({"s/t": {0: 10}}), offset({"s/t": {1 << 32: 20}}))
    checkpoint.finished(1)
    with pytest.raises(InvalidArgument, match="reads s/t twice"):
        committed_position(str(checkpoint.folder))


def test_what_is_no_checkpoint_to_truncate_at(checkpoint: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="is no checkpoint of a streaming query"):
        committed_position(str(tmp_path / "missing"))
    checkpoint.planned(0, offset({"s/t": {0: 1}}))
    with pytest.raises(InvalidArgument, match="has not finished any batch yet: it has no position"):
        committed_position(str(checkpoint.folder))
    checkpoint.planned(1, '{"logOffset":3}')
    checkpoint.finished(1)
    with pytest.raises(InvalidArgument, match="reads no stream of this connector"):
        committed_position(str(checkpoint.folder))
    checkpoint.planned(2, offset({"s/t": {0: 1}}), version="v9")
    checkpoint.finished(2)
    with pytest.raises(InvalidArgument, match=r"begins with 'v9'.*written by another version of Spark"):
        committed_position(str(checkpoint.folder))
    with pytest.raises(InvalidArgument, match="'nosuch://place' cannot be opened"):
        committed_position("nosuch://place")


@pytest.mark.parametrize("uri", ["s3a://KEY:SECRET@bucket/c", "s3://KEY:SEC/RET@bucket/c", "nosuch://user:SECRET@h/c"])
def test_a_password_in_a_uri_is_not_shown(uri: str) -> None:
    """Nor in what Arrow says of the URI, which is the error's cause."""
    with pytest.raises(InvalidArgument, match=r"'\w+://\*\*\*@\w+/c' cannot be opened \(.*URI") as told:
        committed_position(uri)
    shown = "".join(traceback.format_exception(told.value))
    assert not any(secret in shown for secret in ("SECRET", "SEC/RET", "KEY"))


def test_later_errors_show_no_password_either(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    files = fs.LocalFileSystem(), str(checkpoint.folder)
    monkeypatch.setattr("pravega_spark.source.checkpoint._opened", lambda folder: files)
    for complaint in ("is no checkpoint", "has not finished any batch", "reads no stream", "reads s/t, not s/x"):
        with pytest.raises(InvalidArgument, match=rf"s3://\*\*\*@bucket/c.*{complaint}"):
            committed_position("s3://KEY:SECRET@bucket/c").of("s/x")
        if complaint == "is no checkpoint":
            checkpoint.planned(0, '{"logOffset":3}')
        elif complaint == "has not finished any batch":
            checkpoint.finished(0)
        else:
            checkpoint.planned(0, offset({"s/t": {0: 1}}))


def test_a_damaged_offset_is_named(checkpoint: Checkpoint) -> None:
    checkpoint.planned(0, '{"version":1,"streams":{"s/t":{"0":-5}}}')
    checkpoint.finished(0)
    with pytest.raises(InvalidArgument, match="offset is damaged: stream s/t"):
        committed_position(str(checkpoint.folder))


def test_the_command_prints_where_a_query_goes_on(checkpoint: Checkpoint) -> None:
    """Without asking a cluster: each stream's cut is a line."""
    checkpoint.planned(1, offset({"s/t": {0: 300}, "s/u": {7: 1}}))
    checkpoint.finished(1)
    command = ["stream", "cut", "--query", str(checkpoint.folder)]
    told = CliRunner().invoke(make_application(), command)
    cuts = [StreamCut.from_text(line) for line in told.stdout.split()]
    assert cuts == [StreamCut("s", "t", {0: 300}), StreamCut("s", "u", {7: 1})]
    one = CliRunner().invoke(make_application(), [*command[:2], "s/u", *command[2:], "--json"])
    assert json.loads(one.stdout)["text"] == cuts[1].as_text()
    other = CliRunner().invoke(make_application(), [*command[:2], "s/v", *command[2:]])
    assert isinstance(other.exception, InvalidArgument) and "reads s/t, s/u, not s/v" in str(other.exception)


def test_a_query_and_a_cut_to_decode_are_refused_together(checkpoint: Checkpoint) -> None:
    cut = StreamCut("s", "t", {0: 300}).as_text()
    both = ["stream", "cut", "--query", str(checkpoint.folder), "--decode", cut]
    told = CliRunner().invoke(make_application(), both)
    assert isinstance(told.exception, InvalidArgument) and "not both" in str(told.exception)


def test_a_position_is_no_part_of_a_query(checkpoint: Checkpoint) -> None:
    given = ["stream", "cut", "s/t", "head", "--query", str(checkpoint.folder)]
    told = CliRunner().invoke(make_application(), given)
    assert isinstance(told.exception, InvalidArgument) and "'head' is the position in a stream" in str(told.exception)
