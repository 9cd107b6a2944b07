"""Every option of the source and the sink, once: name, type, default, meaning, and where it applies.

The table below is the source of validation, of defaults and of the list in the README. Names are those of the official
Pravega connector where it has the option. Case and underscores do not count: ``startStreamCut`` is
``start_stream_cut``. An option that has no meaning for what is done is ignored, so that one set serves both directions.
"""

from __future__ import annotations

import difflib
import enum
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pravega_common.errors import ConfigurationError, InvalidArgument
from pravega_common.model.retention import RetentionPolicy
from pravega_common.model.scaling import ScaleType, ScalingPolicy, scaling_number_max
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import split_scoped_name, validate_scope_name, validate_stream_name
from pravega_spark.options.limits import Limit, parse_end, parse_start


class Use(enum.Flag):
    """What an option has a meaning for."""

    BATCH_READ = enum.auto()
    STREAM_READ = enum.auto()
    BATCH_WRITE = enum.auto()
    STREAM_WRITE = enum.auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE
    ALL = READ | WRITE


@dataclass(frozen=True, slots=True)
class Option:
    """``parse`` turns the text into the value and raises ``ValueError`` with what is allowed."""

    name: str
    use: Use
    parse: Callable[[str], Any]
    default: Any
    help: str
    default_text: str = ""
    """How the default is written in the README when it is not the value itself."""


def _boolean(text: str) -> bool:
    value = {"true": True, "false": False}.get(text.strip().lower())
    if value is None:
        raise ValueError("must be true or false")
    return value


def _integer(minimum: int, maximum: int = 2**63 - 1) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if not minimum <= value <= maximum:
            upper = "" if maximum == 2**63 - 1 and value < minimum else f" and at most {maximum}"
            raise ValueError(f"must be a whole number of at least {minimum}{upper}")
        return value

    return parse


def _choice(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        for value in values:
            if text.strip().lower() == value.lower():
                return value
        raise ValueError(f"must be {' or '.join(values)}")

    return parse


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text.strip()


def _limit(parse: Callable[[str], Limit]) -> Callable[[str], Limit]:
    def checked(text: str) -> Limit:
        try:
            return parse(text)
        except InvalidArgument as error:
            raise ValueError(f"is no position: {error}") from error

    return checked


def _time(text: str) -> int:
    """Milliseconds since 1970."""
    word = text.strip()
    if word.isdecimal():
        return int(word)
    try:
        moment = datetime.fromisoformat(word)
    except ValueError as error:
        raise ValueError("must be a time such as 2026-01-31T12:00:00Z, or milliseconds since 1970") from error
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _listed(text: str) -> tuple[str, ...]:
    """Texts separated by commas, or a JSON list of texts as ``load([…])`` gives them."""
    items: Any = text.split(",")
    if text.strip().startswith("["):
        try:
            items = json.loads(text)
        except ValueError as error:
            raise ValueError("must be a JSON list, or names separated by commas") from error
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise ValueError("must be a list of texts")
    names = tuple(dict.fromkeys(item.strip() for item in items if item.strip()))
    if not names:
        raise ValueError("must not be empty")
    return names


transaction_timeout_ms_min: Final = 10_000
transaction_timeout_ms_max: Final = 600_000
"""What a controller accepts as a lease (controller reference 10)."""
streams_per_task_default: Final = 64
"""Streams that the rows of one task may go to: each costs a transaction, and memory for blocks of every segment."""
StreamName = tuple[str, str]
"""Scope and stream."""
CONTROLLER_DEFAULT: Final = "tcp://localhost:9090"

OPTIONS: Final = (
    Option("controller", Use.ALL, _text, CONTROLLER_DEFAULT, "address of the controller, tcp://host:port[,host:port…]"),
    Option("scope", Use.ALL, _text, None, "scope of the stream", "required"),
    Option(
        "stream",
        Use.ALL,
        _listed,
        None,
        "the stream, in option scope or as scope/stream; a source takes several (a,b or a JSON list); a sink may do "
        "without it when a column 'stream' says where each row goes (the option goes before the column)",
        "required",
    ),
    Option("streams", Use.READ, _listed, None, "the same as stream", "none"),
    Option(
        "start_stream_cut",
        Use.READ,
        _limit(parse_start),
        None,
        "where to start: earliest, latest (streaming only), or the text of a stream cut; a checkpoint goes before it",
        "earliest; latest in streaming",
    ),
    Option(
        "end_stream_cut",
        Use.READ,
        _limit(parse_end),
        None,
        "where to stop: latest (as it is when the read starts), unbounded, or the text of a stream cut",
        "latest; unbounded in streaming",
    ),
    Option(
        "start_time",
        Use.READ,
        _time,
        None,
        "where to start instead of a stream cut: no event written at this time or later is missed (ISO-8601, UTC "
        "unless it names a zone, or milliseconds since 1970); a checkpoint goes before it",
        "none",
    ),
    Option(
        "end_time",
        Use.READ,
        _time,
        None,
        "where to stop instead of a stream cut: every event written before this time is read",
        "none",
    ),
    Option(
        "approx_bytes_per_trigger",
        Use.STREAM_READ,
        _integer(1),
        None,
        "about how many bytes a micro-batch reads, shared among segments in proportion to their backlog",
        "no limit",
    ),
    Option(
        "max_events_per_trigger",
        Use.STREAM_READ,
        _integer(1),
        None,
        "how many events a micro-batch reads, shared among segments in proportion to their backlog, at least one each",
        "no limit",
    ),
    Option(
        "fail_on_data_loss",
        Use.READ,
        _boolean,
        True,
        "whether truncated or deleted data that was still to be read is an error (true) or skipped (false)",
    ),
    Option(
        "order",
        Use.STREAM_READ,
        _choice("key", "none"),
        "key",
        "key: the events of a routing key stay in order, also over scaling; none: only inside a partition, so that "
        "long ranges may be split",
    ),
    Option(
        "min_partitions",
        Use.READ,
        _integer(1, 100_000),
        None,
        "split long ranges until there are this many partitions; in streaming only with order=none",
        "one per segment",
    ),
    Option(
        "max_partition_bytes",
        Use.READ,
        _integer(1),
        None,
        "split ranges longer than this; in streaming only with order=none",
        "no limit",
    ),
    Option(
        "metadata",
        Use.BATCH_READ,
        _choice("StreamInfo", "Streams"),
        None,
        "read head and tail cut of the stream (StreamInfo), or the streams of the scope (Streams), instead of events",
        "events",
    ),
    Option("allow_create_scope", Use.ALL, _boolean, True, "create the scope if it is missing"),
    Option("allow_create_stream", Use.ALL, _boolean, True, "create the stream if it is missing"),
    Option(
        "default_num_segments",
        Use.ALL,
        _integer(1, scaling_number_max),
        1,
        "least number of segments of a stream that is created",
    ),
    Option(
        "default_scale_factor",
        Use.ALL,
        _integer(2, scaling_number_max),
        None,
        "into how many a busy segment is split",
        "no scaling",
    ),
    Option(
        "default_segment_target_rate_bytes_per_sec",
        Use.ALL,
        _integer(1024, 1024 * scaling_number_max),
        None,
        "scale a created stream by this many bytes a second and segment; needs the factor and number of segments",
        "no scaling",
    ),
    Option(
        "default_segment_target_rate_events_per_sec",
        Use.ALL,
        _integer(1, scaling_number_max),
        None,
        "scale a created stream by this many events a second and segment; needs the factor and number of segments",
        "no scaling",
    ),
    Option(
        "default_retention_duration_milliseconds",
        Use.ALL,
        _integer(0),
        None,
        "retention by time of a created stream",
        "keep all",
    ),
    Option(
        "default_retention_size_bytes", Use.ALL, _integer(0), None, "retention by size of a created stream", "keep all"
    ),
    Option(
        "exactly_once",
        Use.WRITE,
        _boolean,
        True,
        "commit every batch exactly once (true), or write at least once without transactions (false)",
    ),
    Option(
        "transaction_timeout_ms",
        Use.WRITE,
        _integer(transaction_timeout_ms_min, transaction_timeout_ms_max),
        120_000,
        "lease of a transaction; it is renewed while its batch runs, so it need not be longer than a batch",
    ),
    Option(
        "read_after_write_consistency",
        Use.WRITE,
        _boolean,
        True,
        "whether a batch ends only when readers see it (true), or when it is decided (false)",
    ),
    Option(
        "transaction_status_poll_interval_ms",
        Use.WRITE,
        _integer(1, 60_000),
        50,
        "how often the driver asks whether a decided batch can be read (sooner at first)",
    ),
    Option(
        "on_replay_mismatch",
        Use.WRITE,
        _choice("fail", "skip"),
        "fail",
        "what to do when a batch that was committed is replayed with another number of events or bytes",
    ),
    Option(
        "on_unresolved_batch",
        Use.WRITE,
        _choice("fail", "skip", "replay"),
        "fail",
        "on a plain Pravega, when nobody can tell whether a batch was committed before a crash: stop the query (fail), "
        "take it as written (skip), or write it again (replay)",
    ),
    Option(
        "max_streams_per_task",
        Use.WRITE,
        _integer(1, 10_000),
        streams_per_task_default,
        "to how many streams the rows of one task may go, by their column 'stream'",
    ),
    Option(
        "txn_app_id",
        Use.BATCH_WRITE,
        _text,
        None,
        "with txn_version: makes a batch write idempotent under this name",
        "none",
    ),
    Option(
        "txn_version",
        Use.BATCH_WRITE,
        _integer(0),
        None,
        "grows with every write under one txn_app_id; the same version again writes nothing",
        "none",
    ),
    Option("job_id", Use.BATCH_WRITE, _text, None, "makes this one batch write idempotent under this name", "none"),
    Option("path", Use.ALL, _text, None, "scope/stream, as in load('scope/stream')", "none"),
    Option("paths", Use.READ, _listed, None, "as in load(['scope/a', 'scope/b'])", "none"),
    Option(
        "push_filters",
        Use.BATCH_READ,
        _boolean,
        False,
        "read only what filters on segment_id, stream, scope and offset leave; needs Spark's "
        "spark.sql.python.filterPushdown.enabled=true",
    ),
    Option("checkpointlocation", Use.ALL, _text, None, "Spark's; not used here", "none"),
    Option("queryname", Use.ALL, _text, None, "Spark's; not used here", "none"),
)

_OF_A_CATALOG_TABLE: Final = frozenset(
    {
        "provider",
        "owner",
        "location",
        "is_managed_location",
        "external",
        "table_type",
        "comment",
        "collation",
        "transient_lastddltime",
        "serialization.format",
    }
)
"""What Spark's own catalog puts among the properties of a table, in lower case; the jar takes them off
(``TableOptions.java``). Beside them each option of CREATE TABLE comes a second time, under ``option.NAME``."""

_OF_KAFKA: Final = {
    "kafka.bootstrap.servers": "controller",
    "subscribe": "stream",
    "topic": "stream",
    "startingoffsets": "start_stream_cut",
    "endingoffsets": "end_stream_cut",
    "startingtimestamp": "start_time",
    "endingtimestamp": "end_time",
}
"""What options of Spark's Kafka connector are called here, where the spelling alone does not lead to it."""

_WORDS_FOR_USE: Final = {
    Use.BATCH_READ: "a batch read",
    Use.STREAM_READ: "a streaming read",
    Use.BATCH_WRITE: "a batch write",
    Use.STREAM_WRITE: "a streaming write",
}


_CREATE_TABLE: Final = (
    "options of CREATE TABLE do not reach a Python source, but those of CREATE TEMPORARY VIEW and of SELECT … WITH (…) "
    "do"
)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


_BY_NAME: Final = {_plain(option.name): option for option in OPTIONS}


def _nearest(plain: str) -> str | None:
    """The valid option that somebody may have meant."""
    if plain in _OF_KAFKA:
        return _OF_KAFKA[plain]
    found = difflib.get_close_matches(plain, _BY_NAME, n=1, cutoff=0.5)
    return _BY_NAME[found[0]].name if found else None


class Options:
    """The checked options of one source or sink. ``options["name"]`` gives a value or its default."""

    def __init__(self, given: Mapping[str, str], use: Use) -> None:
        """``ConfigurationError`` with one sentence for an unknown, malformed, missing or contradictory option."""
        self.use = use
        self._values: dict[str, Any] = {option.name: option.default for option in OPTIONS}
        self._given: set[str] = set()
        for name, text in given.items():
            self._take(name, text)
        self.streams = self._names()
        self.scope = self._scope()
        self._check_together()

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def is_given(self, name: str) -> bool:
        return name in self._given

    @property
    def stream(self) -> str | None:
        """The one stream that a sink writes to; None when its rows say it."""
        return self.streams[0][1] if self.streams else None

    @property
    def destination(self) -> str:
        """What a sink writes to, as a part of its name: ``scope/stream``, or ``scope/*`` when its rows say it."""
        return "/".join(self.streams[0]) if self.streams else f"{self.scope}/*"

    def _take(self, name: str, text: str) -> None:
        option = _BY_NAME.get(_plain(name))
        if option is None:
            if name.lower() in _OF_A_CATALOG_TABLE or name.lower().startswith("option."):
                raise ConfigurationError(
                    f"option '{name}' is a property of a table in Spark's catalog: {_CREATE_TABLE} (of a table that "
                    "names its columns: CREATE TABLE t (event BINARY) USING pravega); with the jar of jvm-shim CREATE "
                    "TABLE … USING pravega works too"
                )
            nearest = _nearest(_plain(name))
            hint = f"; did you mean '{nearest}'?" if nearest else ""
            raise ConfigurationError(f"unknown option '{name}'{hint}")
        if not option.use & self.use:
            return
        if option.name in self._given:
            raise ConfigurationError(f"option '{option.name}' is given in two spellings; give it once")
        try:
            self._values[option.name] = option.parse(text)
        except ValueError as error:
            raise ConfigurationError(f"option '{option.name}' is '{text}', but {error}") from error
        self._given.add(option.name)

    def _names(self) -> tuple[StreamName, ...]:
        """Of all streams, each once, from whichever option names them."""
        given = [name for name in ("path", "paths", "stream", "streams") if self.is_given(name)]
        if len(given) > 1:
            listed = " and ".join(f"'{name}'" for name in given)
            raise ConfigurationError(f"the options {listed} say the same; give only one")
        if not given:
            return ()
        name = given[0]
        items = (self[name],) if name == "path" else self[name]
        if name in ("path", "paths") and self.is_given("scope"):
            raise ConfigurationError(
                f"the {name} '{', '.join(items)}' and the option scope say the same; give only one"
            )
        streams = tuple(dict.fromkeys(self._named(item, name) for item in items))
        if len(streams) > 1 and self.use & Use.WRITE:
            raise ConfigurationError(f"option '{name}' names {len(streams)} streams, but a sink writes to one")
        return streams

    def _named(self, item: str, option: str) -> StreamName:
        try:
            if "/" in item or option in ("path", "paths"):
                scope, stream = split_scoped_name(item)
            elif self["scope"] is None:
                raise missing_option("scope")
            else:
                scope, stream = self["scope"], item
            return validate_scope_name(scope), validate_stream_name(stream)
        except InvalidArgument as error:
            raise ConfigurationError(f"the {option} {error}" if option == "path" else str(error)) from error

    def _scope(self) -> str:
        """Where the sink has its record; ``ConfigurationError`` when no scope or no stream is named."""
        scope: str | None = self["scope"] or (self.streams[0][0] if self.streams else None)
        if scope is None:
            raise missing_option("scope")
        if not self.streams and self["metadata"] != "Streams" and not self.use & Use.WRITE:
            raise missing_option("stream")
        try:
            validate_scope_name(scope)
        except InvalidArgument as error:
            raise ConfigurationError(str(error)) from error
        return scope

    def _check_together(self) -> None:
        self._exclude(
            "default_segment_target_rate_bytes_per_sec",
            "default_segment_target_rate_events_per_sec",
            "a stream scales by one rate",
        )
        self._exclude(
            "default_retention_duration_milliseconds", "default_retention_size_bytes", "a stream has one retention"
        )
        for name in ("default_segment_target_rate_bytes_per_sec", "default_segment_target_rate_events_per_sec"):
            if self.is_given(name) and not (
                self.is_given("default_scale_factor") and self.is_given("default_num_segments")
            ):
                raise ConfigurationError(f"option '{name}' needs default_scale_factor and default_num_segments too")
        if self.is_given("txn_app_id") != self.is_given("txn_version"):
            raise ConfigurationError("options 'txn_app_id' and 'txn_version' belong together; give both or neither")
        self._exclude("txn_app_id", "job_id", "both name the write")
        for name in ("txn_app_id", "job_id"):
            if self.is_given(name) and not self["exactly_once"]:
                raise ConfigurationError(f"option '{name}' needs exactly_once=true")
        if self.use is Use.STREAM_READ and self["order"] == "key":
            for name in ("min_partitions", "max_partition_bytes"):
                if self.is_given(name):
                    raise ConfigurationError(f"option '{name}' splits segments, which needs order=none")
        self._exclude("start_stream_cut", "start_time", "both say where to start")
        self._exclude("end_stream_cut", "end_time", "both say where to stop")
        if self.is_given("start_time") and self.is_given("end_time") and self["end_time"] <= self["start_time"]:
            raise ConfigurationError("option 'end_time' must be later than option 'start_time'")
        start = self["start_stream_cut"]
        if self.use is Use.BATCH_READ and start is not None and start.is_latest:
            raise ConfigurationError("option 'start_stream_cut' is 'latest', which only a streaming read can start at")

    def _exclude(self, first: str, second: str, why: str) -> None:
        if self.is_given(first) and self.is_given(second):
            raise ConfigurationError(f"options '{first}' and '{second}' exclude each other: {why}")

    def stream_configuration(self) -> StreamConfiguration:
        """What a stream gets that is created by this source or sink."""
        segments, factor = self["default_num_segments"], self["default_scale_factor"] or 0
        byte_rate = self["default_segment_target_rate_bytes_per_sec"]
        event_rate = self["default_segment_target_rate_events_per_sec"]
        scaling = ScalingPolicy.fixed(segments)
        if byte_rate is not None:
            scaling = ScalingPolicy(ScaleType.KILOBYTES_PER_SECOND, byte_rate // 1024, factor, segments)
        elif event_rate is not None:
            scaling = ScalingPolicy(ScaleType.EVENTS_PER_SECOND, event_rate, factor, segments)
        retention = None
        if self.is_given("default_retention_duration_milliseconds"):
            retention = RetentionPolicy.by_time(self["default_retention_duration_milliseconds"])
        elif self.is_given("default_retention_size_bytes"):
            retention = RetentionPolicy.by_size(self["default_retention_size_bytes"])
        return StreamConfiguration(scaling, retention)


def missing_option(name: str, instead: str = "") -> ConfigurationError:
    """The error for a scope or a stream that was not given; ``instead``: what else would have done."""
    return ConfigurationError(
        f"missing required option '{name}': give option('scope', …) and option('stream', …), or "
        f"load('scope/stream'){instead}; {_CREATE_TABLE}"
    )


def markdown_table() -> str:
    """The list of options for the README."""
    lines = ["| option | for | default | meaning |", "|---|---|---|---|"]
    for option in OPTIONS:
        uses = "all" if option.use is Use.ALL else ", ".join(_use_word(item) for item in option.use)
        default = option.default_text or _default_word(option.default)
        lines.append(f"| `{option.name}` | {uses} | {default} | {option.help} |")
    return "\n".join(lines)


def _use_word(use: Use) -> str:
    return _WORDS_FOR_USE[use].removeprefix("a ")


def _default_word(value: Any) -> str:
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
