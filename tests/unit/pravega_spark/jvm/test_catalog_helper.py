"""Calls of the JVM catalog, as lines of JSON, over a controller in memory."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from controller_service.api.grpc.messages import check_configuration
from pravega_common.errors import InvalidArgument, StreamNotSealed, UnknownOutcome
from pravega_common.model.retention import RetentionPolicy
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration, tag_chars_max
from pravega_spark.jvm.catalog_helper import (
    TABLE_OPTIONS,
    CatalogCalls,
    creation_options,
    options_of_tags,
    serve,
    tags_of_options,
)
from pravega_spark.options.definitions import OPTIONS
from pravega_streams.client import StreamClient


class Controller:
    """Scopes with streams, and whether each is sealed."""

    def __init__(self) -> None:
        self.scopes: dict[str, dict[str, StreamConfiguration]] = {"_system": {}}
        self.sealed: set[str] = set()
        self.fails: Exception | None = None

    def list_scopes(self) -> Iterator[str]:
        if self.fails is not None:
            raise self.fails
        return iter(self.scopes)

    def scope_exists(self, scope: str) -> bool:
        return scope in self.scopes

    def create_scope(self, scope: str) -> bool:
        if scope in self.scopes:
            return False
        self.scopes[scope] = {}
        return True

    def delete_scope(self, scope: str) -> bool:
        return self.scopes.pop(scope, None) is not None

    def list_streams(self, scope: str) -> Iterator[str]:
        return iter(self.scopes[scope])

    def stream_exists(self, scope: str, stream: str) -> bool:
        return stream in self.scopes.get(scope, {})

    def stream_configuration(self, scope: str, stream: str) -> StreamConfiguration:
        return self.scopes[scope][stream]

    def create_stream(self, scope: str, stream: str, configuration: StreamConfiguration) -> bool:
        return self.scopes[scope].setdefault(stream, configuration) is configuration

    def seal_stream(self, scope: str, stream: str) -> None:
        self.sealed.add(f"{scope}/{stream}")

    def delete_stream(self, scope: str, stream: str) -> bool:
        if f"{scope}/{stream}" not in self.sealed:
            raise StreamNotSealed(stream)
        return self.scopes[scope].pop(stream, None) is not None


class Tables:
    """The names of key-value tables, the same in each scope."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def list(self, scope: str) -> Iterator[str]:
        return iter(self.names)


class Client:
    def __init__(self) -> None:
        self.controller = Controller()
        self.key_value_tables = Tables()


@pytest.fixture
def client() -> Client:
    made = Client()
    made.controller.create_scope("s")
    return made


def ask(client: Client, call: str, **arguments: Any) -> Any:
    """The answer, or the error as (kind, message)."""
    replies = io.StringIO()
    request = json.dumps({"id": 5, "call": call, **arguments})
    serve(CatalogCalls(cast(StreamClient, client), "tcp://c:1"), [request], replies)
    reply = json.loads(replies.getvalue())
    assert reply["id"] == 5
    assert replies.getvalue().count("\n") == 1
    if "error" in reply:
        return reply["error"]["kind"], reply["error"]["message"]
    return reply["answer"]


def create(client: Client, stream: str, **options: str) -> Any:
    return ask(client, "create_stream", scope="s", stream=stream, options=options, columns=[])


def test_options_become_the_configuration_or_tags_and_come_back(client: Client) -> None:
    assert create(client, "t", default_num_segments="3", start_stream_cut="earliest", allow_create_stream="false")
    assert client.controller.scopes["s"]["t"] == StreamConfiguration(
        ScalingPolicy.fixed(3), tags=("spark.option.start_stream_cut=earliest",)
    )
    found = ask(client, "find_stream", scope="s", stream="t")
    assert found == {"exists": True, "options": {"start_stream_cut": "earliest"}}
    assert not create(client, "t")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start_strem_cut": "earliest"}, "did you mean 'start_stream_cut'"),
        ({"default_num_segments": "0"}, "at least 1"),
        ({"scope": "other"}, "option 'scope' is 'other', but the table is s/x of the catalog at tcp://c:1"),
        ({"controller": "tcp://d:1"}, "leave the option out"),
        ({"path": "a/b"}, "leave the option out"),
        ({"subscriber": "query"}, "option 'subscriber' is of one query, and not kept with the stream"),
    ],
)
def test_options_that_cannot_be(client: Client, options: dict[str, str], message: str) -> None:
    kind, text = create(client, "x", **options)
    assert kind == "invalid"
    assert message in text
    assert "x" not in client.controller.scopes["s"]


def test_names_and_columns_that_cannot_be(client: Client) -> None:
    assert create(client, "_internal")[0] == "invalid"
    assert ask(client, "create_scope", scope="a/b")[0] == "invalid"
    assert ask(client, "find_stream", scope="s", stream="a b") == {"exists": False, "options": {}}
    refused = ask(
        client, "create_stream", scope="s", stream="x", options={}, columns=[["event", "string"], ["n", "int"]]
    )
    assert refused == (
        "invalid",
        "a stream's table has no column 'n'; leave the columns out, or name some of: "
        "event, scope, stream, segment_id, offset, ingest_time, value, routing_key, key",
    )


def test_the_columns_of_a_table_of_records(client: Client) -> None:
    place = {"scope": "s", "stream": "records", "options": {"format": "record"}}
    assert ask(client, "create_stream", **place, columns=[["event", "binary"]]) == (
        "invalid",
        "a stream's table has no column 'event'; leave the columns out, or name some of: "
        "key, value, headers, timestamp, scope, stream, segment_id, offset, ingest_time",
    )
    assert ask(client, "create_stream", **place, columns=[["Key", "binary"], ["timestamp", "timestamp"]]) is True
    assert ask(client, "find_stream", scope="s", stream="records")["options"] == {"format": "record"}


def test_missing_scope(client: Client) -> None:
    wanted = {"scope": "none", "stream": "t", "options": {}, "columns": []}
    assert ask(client, "create_stream", **wanted)[0] == "no_such_scope"
    assert ask(client, "list_streams", scope="none")[0] == "no_such_scope"
    assert ask(client, "drop_scope", scope="none", cascade=True) is False
    assert ask(client, "drop_stream", scope="none", stream="t") is False


def test_what_is_not_the_users_is_not_listed_and_does_not_hold_a_scope(client: Client) -> None:
    client.controller.scopes["s"]["_MARKt"] = StreamConfiguration()
    assert ask(client, "list_scopes") == ["s"]
    assert ask(client, "list_streams", scope="s") == []
    create(client, "t")
    assert ask(client, "drop_scope", scope="s", cascade=False)[0] == "scope_not_empty"
    assert ask(client, "drop_scope", scope="s", cascade=True) is True
    assert client.controller.sealed == {"s/t"}
    assert ask(client, "list_scopes") == []


def test_a_scope_with_what_cascade_does_not_delete_keeps_its_streams(client: Client) -> None:
    create(client, "t")
    client.controller.scopes["s"] |= {"_RGquery": StreamConfiguration(), "_MARK_RGquery": StreamConfiguration()}
    client.key_value_tables.names = ["names"]
    code, said = ask(client, "drop_scope", scope="s", cascade=True)
    assert code == "scope_not_empty" and "no table here: reader group query, key-value table names; delete" in said
    assert "t" in client.controller.scopes["s"] and client.controller.sealed == set()


def test_errors_are_replies(client: Client) -> None:
    assert ask(client, "no_such_call") == (
        "invalid",
        "call 'no_such_call' is not known here; the jar and the package are of two versions",
    )
    assert ask(client, "_client")[0] == "invalid"
    client.controller.fails = UnknownOutcome("who knows")
    assert ask(client, "list_scopes") == ("unknown", "who knows")


def test_tags_hold_any_value_and_leave_the_users_tags_alone() -> None:
    options = {"end_time": "a=b=c", "metadata": "", "start_stream_cut": "H4sI/+="}
    tags = tags_of_options(options)
    assert tags == tuple(sorted(tags))
    assert options_of_tags([*tags, "theirs", "spark=not ours"]) == options
    longest = tag_chars_max - len("spark.option.format=")
    assert tags_of_options({"format": "x" * longest})
    with pytest.raises(InvalidArgument, match="256 characters"):
        tags_of_options({"format": "x" * (longest + 1)})


def test_what_is_kept_with_a_stream_is_what_a_controller_takes() -> None:
    for length in range(200, 300):
        try:
            tags = tags_of_options({"format": "x" * length})
        except InvalidArgument:
            return
        check_configuration(StreamConfiguration(tags=tags))
    pytest.fail("no option is too long")


NOT_OF_A_TABLE = [
    *("controller", "scope", "stream", "streams", "stream_pattern", "path", "subscriber", "txn_app_id", "txnAppId"),
    *("txn_version", "exactly_once", "on_replay_mismatch", "on_unresolved_batch", "fail_on_data_loss"),
    *(
        "allow_create_stream",
        "checkpointLocation",
        "queryName",
        "ca_file",
        "read_after_write_consistency",
        "order",
        *("route_by", ""),
    ),
]
"""Who a query is, how safe it is, and what it reaches."""


def test_every_option_is_of_a_table_or_not() -> None:
    known = {option.name for option in OPTIONS}
    assert known >= TABLE_OPTIONS
    assert not TABLE_OPTIONS & set(NOT_OF_A_TABLE)


@pytest.mark.parametrize("name", NOT_OF_A_TABLE)
def test_a_tag_sets_no_option_that_says_who_a_query_is_or_how_safe(client: Client, name: str) -> None:
    create(client, "t", default_num_segments="1")
    tag = f"spark.option.{name}=stranger"
    configuration = replace(client.controller.scopes["s"]["t"], tags=(tag, "spark.option.format=record"))
    client.controller.scopes["s"]["t"] = configuration
    assert ask(client, "find_stream", scope="s", stream="t")["options"] == {"format": "record"}
    with pytest.raises(InvalidArgument, match="give it with the query"):
        tags_of_options({name: "value"} if name != "allow_create_stream" else {"subscriber": "value"})


@pytest.mark.parametrize(
    "options",
    [
        {"default_num_segments": "3"},
        {
            "default_num_segments": "2",
            "default_scale_factor": "2",
            "default_segment_target_rate_bytes_per_sec": "2048",
            "default_retention_size_bytes": "10",
        },
        {
            "default_num_segments": "1",
            "default_scale_factor": "3",
            "default_segment_target_rate_events_per_sec": "7",
            "default_retention_duration_milliseconds": "60000",
        },
    ],
)
def test_a_described_stream_can_be_created_again(client: Client, options: dict[str, str]) -> None:
    create(client, "t", **options)
    assert creation_options(client.controller.scopes["s"]["t"]) == options


@pytest.mark.parametrize("factor", [0, 1])
def test_a_factor_of_other_clients_that_splits_nothing_is_shown_as_it_acts(client: Client, factor: int) -> None:
    """Controllers take such a factor and split in two; the option takes no less than that."""
    shown = creation_options(StreamConfiguration(ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 100, factor, 1)))
    assert shown["default_scale_factor"] == "2"
    create(client, "t", **shown)
    assert client.controller.scopes["s"]["t"].scaling == ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 100, 2, 1)


def test_retention_and_scaling_of_other_clients_are_described() -> None:
    configuration = StreamConfiguration(
        ScalingPolicy(ScaleType.KILOBYTES_PER_SECOND, 5, 2, 2), RetentionPolicy.by_time(5)
    )
    assert creation_options(configuration) == {
        "default_num_segments": "2",
        "default_scale_factor": "2",
        "default_segment_target_rate_bytes_per_sec": "5120",
        "default_retention_duration_milliseconds": "5",
    }
