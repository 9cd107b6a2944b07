"""Every option: accepted spellings, defaults, and the one sentence for what is wrong."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path

import pytest

from pravega_common.errors import ConfigurationError, InvalidArgument
from pravega_common.model.retention import RetentionPolicy
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.runtime.client_tls import ClientTls
from pravega_common.stream_cut import StreamCut
from pravega_spark.options.definitions import OPTIONS, Use
from pravega_spark.options.limits import EARLIEST, LATEST, StartTimes
from pravega_spark.options.markdown import markdown_table
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.options.stream_options import StreamOptions
from pravega_spark.options.write_options import WriteOptions
from pravega_spark.source.offsets import SourceOffset
from pravega_spark.source.told_cuts import cut_of, with_cuts
from pravega_streams.client import StreamClient
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.controller.address import ControllerAddress
from pravega_streams.credentials import BasicCredentials
from tests.support.certificates import Authority

BASE = {"scope": "s", "stream": "t"}
CUT = StreamCut("s", "t", {0: 5}).as_text()


def read(use: Use = Use.STREAM_READ, /, **given: str) -> ReadOptions:
    return ReadOptions.parse({**BASE, **given}, use)


def write(use: Use = Use.STREAM_WRITE, /, **given: str) -> WriteOptions:
    return WriteOptions.parse({**BASE, **given}, use)


def options(use: Use, given: dict[str, str]) -> StreamOptions:
    return read(use, **given) if use & Use.READ else write(use, **given)


def test_defaults() -> None:
    made = read()
    assert (made.controller, write().exactly_once, made.fail_on_data_loss) == ("tcp://localhost:9090", True, True)
    assert (made.scope, made.streams, made.order) == ("s", (("s", "t"),), "key")


def test_every_option_is_a_field_or_makes_one() -> None:
    made_of = {field.name for kind in (ReadOptions, WriteOptions) for field in dataclasses.fields(kind)}
    others = {option.name for option in OPTIONS} - made_of
    assert others == {
        *("ca_file", "user", "password_file", "token_file", "stream", "path", "paths"),
        *(option.name for option in OPTIONS if option.name.startswith("default_")),
    }


def test_credentials_are_read_on_the_driver_and_pickled_with_the_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    file.write_text("planted-secret-0b1c")
    cluster = "tcp://of-this-test:9090"  # a process remembers the newest credentials of each cluster
    expected = BasicCredentials("alice", "planted-secret-0b1c").header()
    given = read(controller=cluster, user="alice", password_file=str(file))
    monkeypatch.setenv("PRAVEGA_USER", "alice")
    monkeypatch.setenv("PRAVEGA_PASSWORD_FILE", str(file))
    for made in (given, write(controller=cluster)):
        data = pickle.dumps(made)
        there = pickle.loads(data).controller
        assert there.credentials.header() == expected
        assert StreamClient(there).controller.transport.credentials is there.credentials
        assert "planted-secret" not in f"{made!r} {there!r} {there}"
    monkeypatch.delenv("PRAVEGA_USER")
    monkeypatch.delenv("PRAVEGA_PASSWORD_FILE")
    bearer = pickle.loads(pickle.dumps(read(controller=cluster, token_file=str(file)))).controller
    assert bearer.credentials.header() == "Bearer planted-secret-0b1c"
    file.unlink()
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read(controller=cluster, token_file=str(file))


@pytest.mark.parametrize("name", ["password", "token", "Password"])
def test_a_secret_is_no_option(name: str) -> None:
    with pytest.raises(ConfigurationError, match="_file'") as refused:
        read(**{name: "planted-secret-0b1c"})
    assert "planted-secret" not in str(refused.value)


def test_executors_get_few_bytes() -> None:
    for made in (read(), write(), read(start_stream_cut=CUT)):
        data = pickle.dumps(made)
        assert pickle.loads(data) == made
        assert len(data) < 2_000


@pytest.mark.parametrize("name", ["approx_bytes_per_trigger", "approxBytesPerTrigger", "APPROXBYTESPERTRIGGER"])
def test_spellings(name: str) -> None:
    assert read(Use.STREAM_READ, **{name: "7"}).approx_bytes_per_trigger == 7


def test_every_default_is_one_of_its_own_values() -> None:
    for option in OPTIONS:
        if option.default is not None:
            assert option.parse(str(option.default)) == option.default
            if (
                option.default_text.startswith("`")
                and "or" not in option.default_text
                and " " not in option.default_text
            ):
                assert option.parse(option.default_text.strip("`")) == option.default


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"steam": "x"}, "unknown option 'steam'; did you mean 'stream'?"),
        ({"startstreamcuts": "latest"}, "did you mean 'start_stream_cut'?"),
        ({"zzz": "x"}, "unknown option 'zzz'$"),
        ({"startingOffsets": "x"}, "option 'start_stream_cut' is 'x', but is no position"),
        ({"startingOffsets": '{"t":{"0":5}}'}, "Kafka's partitions; a stream has segments: give 'start_stream_cut'"),
        ({"startingOffsetsByTimestamp": "{}"}, "start_time takes a JSON object with a time for each stream"),
        ({"subscribePattern": "t.*", "order": "key"}, "the options 'stream' and 'stream_pattern' say the same"),
        ({"max_streams": "5", "order": "key"}, "'max_streams' needs stream_pattern too"),
        ({"stream_discovery_interval": "5s", "order": "key"}, "'stream_discovery_interval' needs stream_pattern too"),
        ({"stream_discovery_interval": "5ms", "order": "key"}, "must be at least 1000 ms"),
        (
            {"minOffsetsPerTrigger": "5", "order": "key", "max_events_per_trigger": "4"},
            "is '5', but must not be more than .*, 4$",
        ),
        ({"maxTriggerDelay": "5s", "order": "key"}, "'max_trigger_delay' needs min_events_per_trigger"),
        ({"max_trigger_delay": "soon", "order": "key"}, "must be a number with ms, s, m, h or d, as in 30s"),
        ({"includeHeaders": "true"}, "write and read with format=record, whose column 'headers'"),
        ({"maxOffsetsPerTrigger": "x", "order": "key"}, "option 'max_events_per_trigger' is 'x', but must be"),
        ({"startingTimestamp": "5", "start_time": "5"}, "'start_time' is given in two spellings"),
        ({"kafka.bootstrap.servers": "x"}, "no counterpart here: give option 'controller' the address"),
        (
            {"kafka.acks": "all"},
            "option 'kafka.acks' is of Kafka's clients, and nothing of .*: leave it out",
        ),
        ({"Kafka.Security.Protocol": "SSL"}, "option 'Kafka.Security.Protocol' is of Kafka's clients"),
        ({"start_time": "{}"}, "must have a time for each stream"),
        ({"start_time": '{"s/t": "soon"}'}, "must be a time such as"),
        ({"start_stream_cut": "{x"}, "this JSON is damaged"),
        ({"start_stream_cut": '{"topic": 5}'}, "JSON must be an offset of a query"),
        ({"start_stream_cut": '{"sources": null}'}, "JSON must be an offset of a query .*with a list of sources"),
        ({"end_stream_cut": '{"sources": 5}'}, "JSON must be an offset of a query"),
        ({"exactlyOnce": "true", "exactly_once": "false"}, "option 'exactly_once' is given in two spellings"),
        ({"default_retention_size_bytes": str(2**63)}, "at least 0 and at most 9223372036854775807"),
        ({"stream": "s/a b"}, "stream name 'a b' may only contain"),
        ({"stream": "r r/a"}, "scope name 'r r' may only contain"),
        ({"exactly_once": "yes"}, "option 'exactly_once' is 'yes', but must be true or false"),
        ({"default_num_segments": "0"}, "is '0', but must be a whole number of at least 1"),
        ({"default_num_segments": "-1"}, "is '-1', but must be a whole number of at least 1"),
        ({"default_num_segments": "many"}, "is 'many', but must be a whole number of at least 1"),
        ({"default_num_segments": "4501"}, "at least 1 and at most 4500"),
        ({"default_scale_factor": "2147483648"}, "at least 2 and at most 2147483647"),
        ({"default_segment_target_rate_bytes_per_sec": "2199023255552"}, "at least 1024 and at most 2199023254528"),
        ({"default_segment_target_rate_events_per_sec": "2147483648"}, "at least 1 and at most 2147483647"),
        ({"transaction_timeout_ms": "5"}, "at least 10000 and at most 600000"),
        (
            {"start_stream_cut": "nonsense"},
            "'start_stream_cut' is 'nonsense', but is no position.*; give earliest, latest, a ",
        ),
        (
            {"end_stream_cut": "nonsense"},
            "'nonsense', but is no position.*; give latest, unbounded, a stream cut as text",
        ),
        ({"end_stream_cut": "earliest"}, "'earliest' is where a read may start"),
        ({"order": "random"}, "must be key or none"),
        ({"controller": " "}, "must not be empty"),
        ({"default_segment_target_rate_bytes_per_sec": "2048"}, "needs default_scale_factor and default_num_segments"),
        ({"default_retention_size_bytes": "1", "default_retention_duration_milliseconds": "1"}, "exclude each other"),
        ({"txn_app_id": "a"}, "belong together"),
        ({"txn_app_id": "a", "txn_version": "1", "job_id": "j"}, "both name the write"),
        ({"job_id": "j", "exactly_once": "false"}, "needs exactly_once=true"),
        ({"stream": "a,b"}, "names 2 streams, but a sink writes to one"),
        ({"scope": "a/b"}, "may only contain"),
        ({"start_time": "yesterday"}, "is 'yesterday', but must be a time such as 2026-01-31T12:00:00Z"),
        ({"start_time": "5", "start_stream_cut": CUT}, "exclude each other: both say where to start"),
        (
            {"start_time": "5", "end_time": "5"},
            "option 'end_time' is '5', but must be later than option 'start_time', 5$",
        ),
        ({"max_streams_per_task": "0"}, "at least 1"),
        ({"path": "x/y"}, "say the same; give only one"),
    ],
)
def test_one_sentence_for_what_is_wrong(given: dict[str, str], message: str) -> None:
    use = (
        Use.BATCH_READ
        if any("stream_cut" in name or name.endswith("_time") or name.startswith("starting") for name in given)
        or "order" in given
        else Use.BATCH_WRITE
    )
    use = Use.STREAM_READ if "order" in given else use
    with pytest.raises(ConfigurationError, match=message) as caught:
        options(use, given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "given", [{"job_id": "j"}, {"jobId": "j"}, {"txn_app_id": "a", "txn_version": "1"}, {"txnVersion": "1"}]
)
def test_a_streaming_write_refuses_the_names_of_batch_writes(given: dict[str, str]) -> None:
    refused = f"option '{next(iter(given))}' is of batch writes; .* checkpoint: leave it out, or write in foreachBatch"
    with pytest.raises(ConfigurationError, match=refused):
        write(Use.STREAM_WRITE, **given)
    assert read(Use.BATCH_READ, **given) and read(Use.STREAM_READ, **given)


def test_a_batch_write_takes_a_name() -> None:
    assert write(Use.BATCH_WRITE, job_id="j").job_id == "j"
    made = write(Use.BATCH_WRITE, txn_app_id="a", txn_version="7")  # as in foreachBatch
    assert (made.txn_app_id, made.txn_version) == ("a", 7)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stream_pattern": "t("}, r"option 'stream_pattern' is 't\(', but is no regular expression: missing \)"),
        ({"stream_pattern": "t{4294967296}"}, "is no regular expression: the repetition number is too large"),
        ({"stream_pattern": "(" * 10_000}, "is no regular expression: maximum recursion"),
        ({"stream_pattern": "t", "path": "s/t"}, "say the same; give only one"),
        ({"stream_pattern": "t", "scope": " "}, "option 'scope' is ' ', but must not be empty"),
    ],
)
def test_what_is_wrong_with_a_pattern(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ReadOptions.parse({"scope": "s", **given}, Use.STREAM_READ)
    with pytest.raises(ConfigurationError, match="missing required option 'scope'"):
        ReadOptions.parse({"stream_pattern": "t.*"}, Use.STREAM_READ)


def test_a_pattern_by_its_names() -> None:
    for name in ("stream_pattern", "subscribePattern", "streamPattern"):
        made = ReadOptions.parse({"scope": "s", name: "orders-.*"}, Use.BATCH_READ)
        assert made.stream_pattern is not None and made.stream_pattern.fullmatch("orders-eu")
        assert (made.streams, made.max_streams, made.stream_discovery_interval) == ((), 100, 30_000)
        assert pickle.loads(pickle.dumps(made)) == made


def test_batch_does_not_start_at_latest() -> None:
    with pytest.raises(ConfigurationError, match="only a streaming read"):
        read(Use.BATCH_READ, start_stream_cut="Latest")
    assert read(Use.STREAM_READ, start_stream_cut=" LATEST ").start_stream_cut == LATEST


def test_kafka_names() -> None:
    made = ReadOptions.parse(
        {"scope": "s", "subscribe": "a,b", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "9"}, Use.STREAM_READ
    )
    assert (made.streams, made.start_stream_cut) == ((("s", "a"), ("s", "b")), EARLIEST)
    assert made.max_events_per_trigger == 9
    assert WriteOptions.parse({"scope": "s", "topic": "t"}, Use.STREAM_WRITE).stream == "t"


OFFSET = SourceOffset({"s/t": {0: 7, 1: 9}, "s/u": {0: 3}}, {"s/t": {0: 0, 1: 9}, "s/u": {0: 3}}).to_json()


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(OFFSET),
        json.dumps({"sources": [{"endOffset": json.dumps(OFFSET)}, {"endOffset": {"logOffset": 4}}]}),
        json.dumps({"name": "q", "sources": [{"startOffset": None, "endOffset": OFFSET}]}),
    ],
)
@pytest.mark.parametrize("name", ["start_stream_cut", "end_stream_cut", "startingOffsets"])
def test_a_cut_in_the_json_of_a_query(name: str, text: str) -> None:
    made = read(Use.STREAM_READ, **{name: text})
    limit = made.end_stream_cut if name == "end_stream_cut" else made.start_stream_cut
    assert limit is not None
    limit = with_cuts(limit)
    assert (cut_of(limit, "s", "t"), cut_of(limit, "s", "u")) == ({0: 7, 1: 9}, {0: 3})
    with pytest.raises(InvalidArgument, match="the stream cut is of s/t, s/u, but the stream to read is s/x"):
        cut_of(limit, "s", "x")
    nothing = read(start_stream_cut='{"sources": []}').start_stream_cut
    assert nothing is not None
    with pytest.raises(InvalidArgument, match="the progress has no source that reads streams"):
        with_cuts(nothing)


def test_a_cut_in_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    (tmp_path / "offsets" / "4").write_text("\n".join(["v1", "{}", json.dumps(OFFSET)]))
    (tmp_path / "commits" / "4").write_text("v1\n{}")
    monkeypatch.chdir(tmp_path.parent)
    for text in (str(tmp_path), f"file://{tmp_path}", f"./{tmp_path.name}", f"{tmp_path.name}/"):
        limit = read(start_stream_cut=text).start_stream_cut
        assert limit is not None and cut_of(with_cuts(limit), "s", "u") == {0: 3}
    # It is read when the position is wanted: a query that goes on has one of its own.
    limit = read(start_stream_cut=f"{tmp_path}/gone").start_stream_cut
    assert limit is not None
    with pytest.raises(InvalidArgument, match="is no checkpoint of a streaming query"):
        with_cuts(limit)


def test_start_times_of_streams() -> None:
    times = read(start_time='{"s/t": "2026-01-31T12:00:00Z", "u": 5}').start_time
    assert times is not None
    assert (times.of("s", "t"), times.of("x", "u"), times.last) == (1769860800000, 5, 1769860800000)
    with pytest.raises(InvalidArgument, match="has times of s/t, u, but none of s/v"):
        times.of("s", "v")
    everywhere = read(start_time="7").start_time
    assert everywhere is not None and everywhere.of("s", "t") == 7


def test_splitting_needs_order_none() -> None:
    with pytest.raises(ConfigurationError, match="'min_partitions' splits segments, which needs order=none"):
        read(min_partitions="4")
    assert read(min_partitions="4", order="none").min_partitions == 4
    assert read(Use.BATCH_READ, min_partitions="4").min_partitions == 4


def test_one_set_of_options_serves_both_directions() -> None:
    assert write(start_stream_cut="latest", approx_bytes_per_trigger="5") == write()


@pytest.mark.parametrize(("given", "missing"), [({}, "scope"), ({"scope": "s"}, "stream"), ({"stream": "t"}, "scope")])
def test_missing_names(given: dict[str, str], missing: str) -> None:
    with pytest.raises(ConfigurationError, match=f"missing required option '{missing}'.*CREATE TABLE do not reach"):
        ReadOptions.parse(given, Use.BATCH_READ)


def test_path() -> None:
    made = ReadOptions.parse({"path": "s/t"}, Use.STREAM_READ)
    assert (made.scope, made.stream) == ("s", "t")
    assert ReadOptions.parse({"paths": '["s/a", "r/b"]'}, Use.STREAM_READ).streams == (("s", "a"), ("r", "b"))
    with pytest.raises(ConfigurationError, match="not of the form scope/stream"):
        ReadOptions.parse({"path": "only"}, Use.STREAM_READ)


def test_several_streams() -> None:
    for given in ({"stream": "a, b,a"}, {"streams": '["a", "b"]'}, {"stream": "s/a,b"}):
        assert ReadOptions.parse({"scope": "s", **given}, Use.BATCH_READ).streams == (("s", "a"), ("s", "b"))
    assert WriteOptions.parse({"stream": "r/a"}, Use.STREAM_WRITE).destination == "r/a"
    with pytest.raises(ConfigurationError, match="'stream' and 'streams' say the same"):
        ReadOptions.parse({"scope": "s", "stream": "a", "streams": "b"}, Use.BATCH_READ)


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("0", 0),
        ("1769860800000", 1769860800000),
        ("2026-01-31T12:00:00Z", 1769860800000),
        ("2026-01-31 12:00", 1769860800000),
        ("2026-01-31T13:00:00.250+01:00", 1769860800250),
    ],
)
def test_times(text: str, time_ms: int) -> None:
    assert read(start_time=text).start_time == StartTimes(time_ms)
    assert read(end_time=text).end_time == time_ms


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        ("20260131", "1970-01-01T05:37:40Z"),
        ("1769860800", "1970-01-21T11:37:40Z"),
        ("10000000", "1970-01-01T02:46:40Z"),
        ("99999999999", "1973-03-03T09:46:39Z"),
    ],
)
def test_a_date_or_seconds_are_not_taken_as_milliseconds(number: str, moment: str) -> None:
    message = f"{number} milliseconds since 1970 are {moment}: write a date as 2026-01-31, and seconds .* with 000"
    for given in ({"start_time": number}, {"end_time": number}, {"start_time": f'{{"t": {number}}}'}):
        with pytest.raises(ConfigurationError, match=f"option '{next(iter(given))}' is .*, but {message}"):
            read(**given)
    for near in ("9999999", "100000000000"):
        assert (read(start_time=near).start_time, read(end_time=near).end_time) == (StartTimes(int(near)), int(near))


@pytest.mark.parametrize("number", ["20260131120000", "1769860800000000", "1769860800000000000", "10000000000000"])
def test_microseconds_are_not_taken_as_milliseconds(number: str) -> None:
    """A read from a time that never comes is empty, and one up to it has no end, without a word."""
    message = f"{number} milliseconds since 1970 are after the year 2286: write a time as 2026-01-31T12:00:00Z, and "
    for given in ({"start_time": number}, {"end_time": number}, {"start_time": f'{{"t": {number}}}'}):
        with pytest.raises(ConfigurationError, match=f"option '{next(iter(given))}' is .*, but {message}"):
            read(**given)
    assert read(start_time="9999999999999").start_time == StartTimes(9_999_999_999_999)


def test_a_part_of_a_millisecond_loses_nothing() -> None:
    """Stores keep whole milliseconds: what was written at 0.7 ms has the time 0."""
    for fraction in ("000400", "000600"):
        text = f"2026-01-31T12:00:00.{fraction}Z"
        assert read(start_time=text).start_time == StartTimes(1769860800000)
        assert read(end_time=text).end_time == 1769860800001


def test_every_option_that_spark_adds_is_accepted() -> None:
    made = write(checkpointlocation="/x", queryname="q")
    assert made.stream == "t"


def test_cut_as_a_limit() -> None:
    start = read(start_stream_cut=CUT).start_stream_cut
    assert start is not None
    assert cut_of(with_cuts(start), "s", "t") == {0: 5}


@pytest.mark.parametrize(
    ("given", "scaling"),
    [
        ({}, ScalingPolicy.fixed(1)),
        ({"default_num_segments": "4"}, ScalingPolicy.fixed(4)),
        (
            {
                "default_num_segments": "2",
                "default_scale_factor": "3",
                "default_segment_target_rate_bytes_per_sec": "1024",
            },
            ScalingPolicy(ScaleType.KILOBYTES_PER_SECOND, 1, 3, 2),
        ),
        (
            {
                "default_num_segments": "2",
                "default_scale_factor": "3",
                "default_segment_target_rate_events_per_sec": "9",
            },
            ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 9, 3, 2),
        ),
    ],
)
def test_scaling_of_a_created_stream(given: dict[str, str], scaling: ScalingPolicy) -> None:
    assert read(**given).stream_configuration.scaling == scaling


def test_retention_of_a_created_stream() -> None:
    by_size = read(default_retention_size_bytes=str(5 * 2**30))
    assert by_size.stream_configuration.retention == RetentionPolicy.by_size(5 * 2**30)
    by_time = read(default_retention_duration_milliseconds="60000")
    assert by_time.stream_configuration.retention == RetentionPolicy.by_time(60_000)


def test_readme_list_names_every_option() -> None:
    table = markdown_table()
    assert all(f"`{option.name}`" in table for option in OPTIONS)


def test_the_controller_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on the command line: an option, else the variable, else this machine."""
    monkeypatch.delenv("PRAVEGA_CONTROLLER", raising=False)
    given = {"scope": "s", "stream": "t"}
    assert ReadOptions.parse(given, Use.BATCH_READ).controller == "tcp://localhost:9090"
    monkeypatch.setenv("PRAVEGA_CONTROLLER", "tcp://c:1")
    assert ReadOptions.parse(given, Use.BATCH_READ).controller == "tcp://c:1"
    assert WriteOptions.parse(given, Use.STREAM_WRITE).controller == "tcp://c:1"
    assert ReadOptions.parse({**given, "controller": "tcp://d:2"}, Use.READ).controller == "tcp://d:2"


def test_the_authority_of_a_cluster_with_tls_goes_to_the_executors_as_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PRAVEGA_CA_FILE", raising=False)
    file = Authority(tmp_path).file
    given = {"scope": "s", "stream": "t", "controller": "tls://c:1"}
    made = ReadOptions.parse({**given, "ca_file": str(file)}, Use.BATCH_READ)
    text = file.read_text()
    data = pickle.dumps(made)
    file.unlink()
    tls = ClientTls(text)
    assert pickle.loads(data).controller == ControllerAddress("tls://c:1", (Endpoint("c", 1, tls),), tls)
    assert len(data) < 4_000 and text not in repr(made)
    assert WriteOptions.parse(given, Use.BATCH_WRITE).controller == ControllerAddress.parse("tls://c:1")
    with pytest.raises(ConfigurationError, match="No such file"):
        ReadOptions.parse({**given, "ca_file": str(file)}, Use.BATCH_READ)
    with pytest.raises(ConfigurationError, match="write tls://c:1"):
        ReadOptions.parse({**given, "controller": "tcp://c:1", "ca_file": str(file)}, Use.BATCH_READ)


def test_reads_create_nothing_unless_they_are_told_to() -> None:
    given = {"scope": "s", "stream": "t"}
    for use in (Use.BATCH_READ, Use.STREAM_READ):
        made = ReadOptions.parse(given, use)
        assert (made.allow_create_scope, made.allow_create_stream) == (False, False)
    assert ReadOptions.parse({**given, "allow_create_stream": "true"}, Use.STREAM_READ).allow_create_stream
    for use in (Use.BATCH_WRITE, Use.STREAM_WRITE):
        assert WriteOptions.parse(given, use).allow_create_stream
        assert not WriteOptions.parse({**given, "allow_create_scope": "false"}, use).allow_create_scope
