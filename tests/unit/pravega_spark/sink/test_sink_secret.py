"""Checks where a sink's secret is kept, and that it is shown nowhere."""

from __future__ import annotations

import os
import pickle
import shutil
import stat
import traceback
from pathlib import Path

import pytest
from pyarrow import fs

from pravega_common.errors import ConfigurationError
from pravega_spark.options.definitions import Use
from pravega_spark.options.write_options import WriteOptions
from pravega_spark.sink import sink_secret
from pravega_spark.sink.batch_writer import batch_identity
from pravega_spark.sink.commit_protocol import streaming_identity
from pravega_spark.sink.sink_secret import FILE_NAME, NO_SECRET, SinkSecret, secret_of_query

GOLDEN = SinkSecret(bytes(range(32)))
GOLDEN_LINE = b"pravega-sink-secret 1 000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f fc36fda7\n"
PROPERTIES = {"sql.streaming.queryId": "q", "spark.jobGroup.id": "r", "streaming.sql.batchId": "3"}


@pytest.fixture(autouse=True)
def another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_secret, "_known", set())


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    begin_query(folder)
    return folder


@pytest.fixture(params=["local", "other"])
def any_files(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint is opened as a local one, or as one of another file system, by Arrow."""
    if request.param == "other":
        monkeypatch.setattr(sink_secret, "_opened", lambda path: (fs.LocalFileSystem(), path))


def begin_query(folder: Path, query_id: str = "q") -> None:
    """What Spark does before it plans the first batch."""
    folder.mkdir()
    (folder / "metadata").write_text(f'{{"id":"{query_id}"}}')


def options(use: Use = Use.STREAM_WRITE, **given: str) -> WriteOptions:
    return WriteOptions.parse({"scope": "s", "stream": "t", **given}, use)


def forget_process() -> None:
    sink_secret._known.clear()


def test_the_secret_is_made_once_and_found_by_later_runs(checkpoint: Path) -> None:
    first = secret_of_query(options(checkpointLocation=str(checkpoint)))
    assert len(first.value) == 32
    assert stat.S_IMODE((checkpoint / FILE_NAME).stat().st_mode) == 0o600
    for location in (str(checkpoint), f"{checkpoint}/", f"file://{checkpoint}", f"file:{checkpoint}"):
        forget_process()
        assert secret_of_query(options(checkpointLocation=location)) == first
    assert sorted(path.name for path in checkpoint.iterdir()) == ["metadata", FILE_NAME]


def test_of_two_processes_that_make_it_one_wins(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = sink_secret._write

    def later(files: object, path: str, content: bytes) -> None:
        write(files, path, GOLDEN.to_line())
        write(files, path, content)

    monkeypatch.setattr(sink_secret, "_write", later)
    assert secret_of_query(options(checkpointLocation=str(checkpoint))) == GOLDEN


@pytest.mark.usefixtures("any_files")
def test_a_checkpoint_that_is_made_again_has_a_secret_of_its_own(checkpoint: Path) -> None:
    """A worker of Spark's driver plans the query before and the one after."""
    given = options(checkpointLocation=str(checkpoint))
    before = secret_of_query(given)
    shutil.rmtree(checkpoint)
    begin_query(checkpoint, "another")
    after = secret_of_query(given)
    assert after != before
    assert (checkpoint / FILE_NAME).read_bytes() == after.to_line()
    forget_process()
    assert secret_of_query(given) == after


@pytest.mark.usefixtures("any_files")
def test_the_file_counts_as_it_is_now(checkpoint: Path) -> None:
    """Another process made or restored it meanwhile."""
    given = options(checkpointLocation=str(checkpoint))
    assert secret_of_query(given) != GOLDEN
    (checkpoint / FILE_NAME).write_bytes(GOLDEN_LINE)
    assert secret_of_query(given) == GOLDEN


@pytest.mark.usefixtures("any_files")
def test_a_checkpoint_that_went_away_is_refused(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sink that was planned with its secret is not planned without it, for controllers would call it a stranger."""
    given = options(checkpointLocation=str(checkpoint))
    first = secret_of_query(given)

    def unreadable(files: object, path: str) -> bytes:
        raise OSError("storage is away")

    with monkeypatch.context() as patched:
        patched.setattr(sink_secret, "_read", unreadable)
        with pytest.raises(ConfigurationError, match=r"cannot be read in .*/checkpoint any more: storage is away"):
            secret_of_query(given)
    assert secret_of_query(given) == first
    shutil.rmtree(checkpoint)
    with pytest.raises(ConfigurationError, match="any more: there is no checkpoint"):
        secret_of_query(given)
    assert not checkpoint.exists()


def test_a_file_system_is_opened_once() -> None:
    files, path = sink_secret._opened("mock:///checkpoint")
    assert sink_secret._opened("mock:///checkpoint") == (files, path)
    assert sink_secret._opened("mock:///checkpoint")[0] is files


def test_golden_line() -> None:
    assert GOLDEN.to_line() == GOLDEN_LINE
    assert SinkSecret.parse(GOLDEN_LINE, "f") == GOLDEN


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 80,
        GOLDEN_LINE[:-12],
        GOLDEN_LINE.replace(b"0001", b"0002"),
        GOLDEN_LINE.replace(b"fc36fda7", b"00000000"),
        b"other " + GOLDEN_LINE,
    ],
)
def test_a_damaged_file_is_refused_and_not_shown(checkpoint: Path, content: bytes) -> None:
    (checkpoint / FILE_NAME).write_bytes(content)
    with pytest.raises(ConfigurationError, match="--secret-only") as caught:
        secret_of_query(options(checkpointLocation=str(checkpoint)))
    assert "0b0c0d" not in str(caught.value)


def test_a_file_of_a_newer_version_is_refused(checkpoint: Path) -> None:
    (checkpoint / FILE_NAME).write_bytes(b"pravega-sink-secret 2 anything\n")
    with pytest.raises(ConfigurationError, match="newer version"):
        secret_of_query(options(checkpointLocation=str(checkpoint)))


def test_without_a_checkpoint_here_there_is_no_secret(tmp_path: Path) -> None:
    assert secret_of_query(options()) is NO_SECRET
    for location in (tmp_path / "elsewhere", "unknown://host/checkpoint"):
        assert secret_of_query(options(checkpointLocation=str(location))) is NO_SECRET
    assert not list(tmp_path.iterdir())


def test_a_file_that_was_asked_for_is_used_or_refused(tmp_path: Path) -> None:
    given = options(sink_secret_file=str(tmp_path / "secret"), checkpointLocation=str(tmp_path))
    made = secret_of_query(given)
    assert made.to_line() == (tmp_path / "secret").read_bytes()
    (tmp_path / "secret").unlink()
    made_again = secret_of_query(given)
    assert made != made_again and made_again.to_line() == (tmp_path / "secret").read_bytes()
    with pytest.raises(ConfigurationError, match="cannot be kept in"):
        secret_of_query(options(sink_secret_file=str(tmp_path / "missing" / "secret")))


def test_each_sink_is_shown_a_value_of_its_own() -> None:
    sinks = [GOLDEN.sink(query, into) for query, into in (("q", "s/t"), ("q", "s/u"), ("q2", "s/t"), ("q:s", "t"))]
    assert len({sink.secret for sink in sinks}) == len(sinks)
    assert GOLDEN.value not in {sink.secret for sink in sinks} and all(len(sink.secret) == 32 for sink in sinks)
    assert NO_SECRET.sink("q", "s/t").secret == b""


def test_the_identity_of_a_task_carries_it_and_shows_nothing() -> None:
    identity = pickle.loads(pickle.dumps(streaming_identity(PROPERTIES.get, "s/t", GOLDEN)))
    assert identity.sink.secret == GOLDEN.sink("q", "s/t").secret
    shown = f"{identity} {identity!r} {GOLDEN!r}"
    assert identity.sink.secret.hex() not in shown and repr(identity.sink.secret) not in shown
    assert GOLDEN.value.hex() not in shown and repr(GOLDEN.value) not in shown


def test_batch_writes(tmp_path: Path) -> None:
    unnamed = batch_identity(options(Use.BATCH_WRITE))
    assert len(unnamed.sink.secret) == 32 and os.listdir(tmp_path) == []
    assert batch_identity(options(Use.BATCH_WRITE, job_id="j")).sink.secret == b""
    named = options(Use.BATCH_WRITE, job_id="j", sink_secret_file=str(tmp_path / "secret"))
    first = batch_identity(named).sink.secret
    forget_process()
    assert batch_identity(named).sink.secret == first and len(first) == 32


def test_a_password_in_a_path_is_not_shown(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in errors, nor in what Arrow says of the URI, nor in the log."""
    uri = "s3a://KEY:SEC/RET@bucket/c"
    with pytest.raises(ConfigurationError, match=r"cannot be kept in s3a://\*\*\*@bucket/c: .*s3://\*\*\*@") as kept:
        secret_of_query(options(sink_secret_file=uri))
    with caplog.at_level("INFO"):
        assert secret_of_query(options(checkpointLocation=uri)) == NO_SECRET
    monkeypatch.setattr(sink_secret, "_known", {uri})
    with pytest.raises(ConfigurationError, match=r"cannot be read in s3a://\*\*\*@bucket/c any more") as lost:
        secret_of_query(options(checkpointLocation=uri))
    with pytest.raises(ConfigurationError, match=r"s3a://\*\*\*@bucket/c is damaged") as damaged:
        SinkSecret.parse(b"", uri)
    shown = [*caplog.messages, *("".join(traceback.format_exception(one.value)) for one in (kept, lost, damaged))]
    assert "s3a://***@bucket/c cannot be used" in shown[0]
    assert not any(secret in text for text in shown for secret in ("SEC/RET", "KEY"))
