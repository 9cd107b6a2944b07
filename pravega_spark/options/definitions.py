"""Defines every option of the source and the sink once: name, type, default, meaning, and where it applies.

The table below is the source of validation, of defaults and of the table in docs/spark-source-and-sink.md A.1. Names
are those of the official Pravega connector where it has the option. Case and underscores do not count:
``startStreamCut`` is ``start_stream_cut``. An option that has no meaning for what is done is ignored, so that one set
serves both directions; ``given.py`` refuses those in a streaming write that would promise it an identity.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pravega_common.model.scaling import scale_factor_min, scaling_number_max
from pravega_common.names import segments_per_stream_max
from pravega_spark.options import values
from pravega_spark.options.limits import parse_end, parse_start


class Use(enum.Flag):
    """The reads and writes that an option has a meaning for."""

    BATCH_READ = enum.auto()
    STREAM_READ = enum.auto()
    BATCH_WRITE = enum.auto()
    STREAM_WRITE = enum.auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE
    ALL = READ | WRITE


@dataclass(frozen=True, slots=True)
class Option:
    """The definition of one option.

    ``parse`` turns the text into the value and raises ``ValueError`` with what is allowed.
    """

    name: str
    use: Use
    parse: Callable[[str], Any]
    default: Any
    help: str
    default_text: str = ""
    """How the default is written in the documents when it is not the value itself."""


transaction_timeout_ms_min: Final = 10_000
transaction_timeout_ms_max: Final = 600_000
"""The limits of a lease that a controller accepts (docs/controller-api.md 10)."""
streams_per_task_default: Final = 64
"""Streams that the rows of one task may go to: each costs a transaction, and memory for blocks of every segment."""
streams_max_default: Final = 100
"""Streams that a pattern may match: a look for new data asks about each, some milliseconds one after the other."""
stream_discovery_interval_ms_min: Final = 1_000
partitions_max: Final = 100_000
"""Partitions into which a read is split, about: each costs the driver a task, and a look for the event at which it
begins."""
CONTROLLER_DEFAULT: Final = "tcp://localhost:9090"
CONTROLLER_VARIABLE: Final = "PRAVEGA_CONTROLLER"
"""The environment variable that names the controller where no option does; the command line has the same."""

OPTIONS: Final = (
    Option(
        "controller",
        Use.ALL,
        values.text,
        None,
        "address of the controller, tcp://host:port[,host:port…]; tls://… for a cluster with TLS",
        f"environment variable `{CONTROLLER_VARIABLE}` of the driver, else `{CONTROLLER_DEFAULT}`",
    ),
    Option(
        "ca_file",
        Use.ALL,
        values.text,
        None,
        "file on the driver with the certificates of the authority that signed those of a cluster with TLS, in PEM; "
        "their text goes to the executors with the tasks",
        "environment variable `PRAVEGA_CA_FILE` of the driver, else the system's authorities",
    ),
    Option(
        "user",
        Use.ALL,
        values.text,
        None,
        "the user of a cluster with authentication; with password_file",
        "environment variable `PRAVEGA_USER` of the driver",
    ),
    Option(
        "password_file",
        Use.ALL,
        values.text,
        None,
        "file on the driver with the user's password; executors get it with their tasks (docs/security.md 4.2)",
        "environment variable `PRAVEGA_PASSWORD_FILE` of the driver",
    ),
    Option(
        "token_file",
        Use.ALL,
        values.text,
        None,
        "file on the driver with a bearer token, instead of user and password_file; read for every batch",
        "environment variable `PRAVEGA_TOKEN_FILE` of the driver",
    ),
    Option("scope", Use.ALL, values.text, None, "scope of the stream", "required"),
    Option(
        "stream",
        Use.ALL,
        values.names,
        None,
        "the stream, in option scope or as scope/stream; a source takes several (a,b or a JSON list); a sink may do "
        "without it when a column 'stream' says where each row goes (the option takes precedence over the column)",
        "required",
    ),
    Option("streams", Use.READ, values.names, None, "the same as stream", "none"),
    Option(
        "stream_pattern",
        Use.READ,
        values.pattern,
        None,
        "regular expression instead of stream: all streams of the scope whose whole name it matches; a query finds new "
        "ones while it runs, and reads them from their head",
        "none",
    ),
    Option(
        "stream_discovery_interval",
        Use.STREAM_READ,
        values.duration_ms_from(stream_discovery_interval_ms_min),
        30_000,
        "how often at most a query with stream_pattern lists the scope for new streams: as max_trigger_delay",
        "`30s`",
    ),
    Option(
        "max_streams",
        Use.READ,
        values.integer(1, 10_000),
        streams_max_default,
        "how many streams stream_pattern may match; more is an error, since each is asked about at every look",
    ),
    Option(
        "format",
        Use.ALL,
        values.choice("event", "record"),
        "event",
        "event: an event is its bytes; record: it holds key, value, headers and timestamp, which are columns of their "
        "own (docs/records.md)",
    ),
    Option(
        "start_stream_cut",
        Use.READ,
        values.limit(parse_start),
        None,
        "where to start: earliest, latest (streaming only), or a stream cut: its text, the JSON of an offset or of a "
        "progress of a query, or the path of a query's checkpoint; a checkpoint of the query itself takes precedence",
        "earliest; latest in streaming",
    ),
    Option(
        "end_stream_cut",
        Use.READ,
        values.limit(parse_end),
        None,
        "where to stop: latest (as it is when the read starts), unbounded, or a stream cut in any form of "
        "start_stream_cut",
        "latest; unbounded in streaming",
    ),
    Option(
        "start_time",
        Use.READ,
        values.start_times,
        None,
        "where to start instead of a stream cut: no event written at this time or later is missed (ISO-8601, UTC "
        "unless it names a zone, or milliseconds since 1970; or a JSON object with a time for each stream); a "
        "checkpoint takes precedence",
        "none",
    ),
    Option(
        "end_time",
        Use.READ,
        values.end_time_ms,
        None,
        "where to stop instead of a stream cut: every event written before this time is read",
        "none",
    ),
    Option(
        "approx_bytes_per_trigger",
        Use.STREAM_READ,
        values.integer(1),
        None,
        "about how many bytes a micro-batch reads, shared among segments in proportion to their backlog",
        "no limit",
    ),
    Option(
        "max_events_per_trigger",
        Use.STREAM_READ,
        values.integer(1),
        None,
        "how many events a micro-batch reads, shared among segments in proportion to their backlog, at least one each",
        "no limit",
    ),
    Option(
        "min_events_per_trigger",
        Use.STREAM_READ,
        values.integer(1),
        None,
        "how many events there must be, about, before a micro-batch begins; they wait for at most max_trigger_delay",
        "none",
    ),
    Option(
        "max_trigger_delay",
        Use.STREAM_READ,
        values.duration_ms,
        900_000,
        "the longest time that events wait for min_events_per_trigger: a number with ms, s, m, h or d, as in 30s",
        "`15m`",
    ),
    Option(
        "fail_on_data_loss",
        Use.READ,
        values.boolean,
        True,
        "whether truncated or deleted data that was still to be read is an error (true) or skipped (false)",
    ),
    Option(
        "subscriber",
        Use.STREAM_READ,
        values.subscriber,
        None,
        "name under which the query counts for retention: the controller keeps what it has not committed yet, as far "
        "as the stream's policy allows; one name for each query, given up with `pravega-spark subscriber remove`",
        "none",
    ),
    Option(
        "order",
        Use.STREAM_READ,
        values.choice("key", "none"),
        "key",
        "key: the events of a routing key stay in order, also over scaling; none: only inside a partition, so that "
        "long ranges may be split and a batch goes on over scalings",
    ),
    Option(
        "min_partitions",
        Use.READ,
        values.integer(1, partitions_max),
        None,
        "split long ranges until there are this many partitions, and pack none; in streaming only with order=none",
        "one per segment; small ranges share one",
    ),
    Option(
        "max_partition_bytes",
        Use.READ,
        values.integer(1),
        None,
        f"split ranges longer than this, into some {partitions_max:,} partitions at most; in streaming only with "
        "order=none",
        "128 MiB; no limit in streaming",
    ),
    Option(
        "packed_bytes",
        Use.STREAM_READ,
        values.integer(0),
        65_536,
        "small ranges of a micro-batch share a partition up to this many bytes, and to more where there would be more "
        "than some dozens of partitions; 0: each segment has its own",
    ),
    Option(
        "metadata",
        Use.BATCH_READ,
        values.choice("StreamInfo", "Streams"),
        None,
        "read head and tail cut of the stream (StreamInfo), or the streams of the scope (Streams), instead of events",
        "events",
    ),
    Option(
        "ingest_time",
        Use.READ,
        values.boolean,
        False,
        "whether rows have a column ingest_time: a time by which the store had taken the event, by its clock",
    ),
    Option(
        "allow_create_scope",
        Use.ALL,
        values.boolean,
        None,
        "create the scope if it is missing (true), or fail (false)",
        "`true` for writes, `false` for reads",
    ),
    Option(
        "allow_create_stream",
        Use.ALL,
        values.boolean,
        None,
        "create the stream if it is missing (true), or fail (false)",
        "`true` for writes, `false` for reads",
    ),
    Option(
        "default_num_segments",
        Use.ALL,
        values.integer(1, segments_per_stream_max),
        1,
        "least number of segments of a stream that is created",
    ),
    Option(
        "default_scale_factor",
        Use.ALL,
        values.integer(scale_factor_min, scaling_number_max),
        None,
        "into how many a busy segment is split",
        "no scaling",
    ),
    Option(
        "default_segment_target_rate_bytes_per_sec",
        Use.ALL,
        values.integer(1024, 1024 * scaling_number_max),
        None,
        "scale a created stream by this many bytes a second and segment; needs the factor and number of segments",
        "no scaling",
    ),
    Option(
        "default_segment_target_rate_events_per_sec",
        Use.ALL,
        values.integer(1, scaling_number_max),
        None,
        "scale a created stream by this many events a second and segment; needs the factor and number of segments",
        "no scaling",
    ),
    Option(
        "default_retention_duration_milliseconds",
        Use.ALL,
        values.integer(0),
        None,
        "retention by time of a created stream",
        "keep all",
    ),
    Option(
        "default_retention_size_bytes",
        Use.ALL,
        values.integer(0),
        None,
        "retention by size of a created stream",
        "keep all",
    ),
    Option(
        "route_by",
        Use.WRITE,
        values.choice("key", "segment"),
        "key",
        "key: a row goes where its routing key leads; segment: rows of one segment_id, the column that a read adds, "
        "stay together and in order, for a copy of plain events, which have no key",
    ),
    Option(
        "exactly_once",
        Use.WRITE,
        values.boolean,
        True,
        "commit every batch exactly once (true), or write at least once without transactions (false)",
    ),
    Option(
        "transaction_timeout_ms",
        Use.WRITE,
        values.integer(transaction_timeout_ms_min, transaction_timeout_ms_max),
        120_000,
        "lease of a transaction; it is renewed while its batch runs, so it need not be longer than a batch",
    ),
    Option(
        "read_after_write_consistency",
        Use.WRITE,
        values.boolean,
        True,
        "whether a batch ends only when readers see it (true), or when it is decided (false)",
    ),
    Option(
        "transaction_status_poll_interval_ms",
        Use.WRITE,
        values.integer(1, 60_000),
        50,
        "how often the driver asks whether a decided batch can be read (sooner at first)",
    ),
    Option(
        "on_replay_mismatch",
        Use.WRITE,
        values.choice("fail", "skip"),
        "fail",
        "what to do when a batch that was committed is replayed with another number of events; as many of other bytes "
        "are a warning",
    ),
    Option(
        "on_unresolved_batch",
        Use.WRITE,
        values.choice("fail", "skip", "replay"),
        "fail",
        "on a plain Pravega, when nobody can tell whether a batch was committed before a crash: stop the query (fail), "
        "take it as written (skip), or write it again (replay)",
    ),
    Option(
        "event_time_column",
        Use.WRITE,
        values.text,
        None,
        "timestamp column whose greatest value is noted with each batch, so that the stream's watermarks advance; "
        "the column itself is written only if the sink writes it anyway",
        "none",
    ),
    Option(
        "max_streams_per_task",
        Use.WRITE,
        values.integer(1, 10_000),
        streams_per_task_default,
        "to how many streams the rows of one task may go, by their column 'stream'",
    ),
    Option(
        "txn_app_id",
        Use.BATCH_WRITE,
        values.text,
        None,
        "with txn_version: makes a batch write idempotent under this name",
        "none",
    ),
    Option(
        "txn_version",
        Use.BATCH_WRITE,
        values.integer(0),
        None,
        "grows with every write under one txn_app_id; the same version again writes nothing",
        "none",
    ),
    Option(
        "job_id", Use.BATCH_WRITE, values.text, None, "makes this one batch write idempotent under this name", "none"
    ),
    Option("path", Use.ALL, values.text, None, "scope/stream, as in load('scope/stream')", "none"),
    Option("paths", Use.READ, values.names, None, "as in load(['scope/a', 'scope/b'])", "none"),
    Option(
        "push_filters",
        Use.BATCH_READ,
        values.choice("false", "true", "once"),
        "false",
        "read only what filters on segment_id, stream, scope and offset leave; needs Spark's "
        "spark.sql.python.filterPushdown.enabled=true, and the optional jar; without the jar `once`, for a frame of "
        "load() of which one query is made: Spark gives all uses of such a frame the rows of its last filter",
    ),
    Option(
        "native_reader",
        Use.READ,
        values.boolean,
        False,
        "with the optional jar: read events in Spark's JVM, without Python workers, where the columns are some of "
        "event (binary), scope, stream, segment_id and offset, and the cluster has neither TLS nor authentication; "
        "streaming reads need Spark 4.2",
    ),
    Option(
        "sink_secret_file",
        Use.WRITE,
        values.text,
        None,
        "path or URI of the file with the sink's secret, made if it is missing (docs/security.md 6): for a query whose "
        "checkpoint Python cannot reach, and for batch writes with txn_app_id or job_id",
        "in the checkpoint",
    ),
    Option(
        "checkpointlocation", Use.ALL, values.text, None, "Spark's; a streaming sink keeps its secret there", "none"
    ),
    Option(
        "queryname", Use.ALL, values.text, None, "Spark's; `pravega-spark sink list` shows it with its sink", "none"
    ),
)
