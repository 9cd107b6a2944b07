"""Looks up and changes streams for the JVM catalog: answers calls, one line of JSON each.

The Java catalog of the jvm-shim starts ``python -m pravega_spark.jvm.catalog_helper CONTROLLER``, asks one call at a
time, and ends it by closing its input::

    {"id": 7, "call": "find_stream", "scope": "s", "stream": "t"}
    {"id": 7, "answer": {"exists": true, "options": {}}}
    {"id": 8, "error": {"kind": "no_such_scope", "message": "…"}}

It speaks to the controller only by its public API, so it works on a plain Pravega too. The options of CREATE TABLE that
do not describe the stream itself are kept as tags of the stream, ``spark.option.NAME=VALUE``: they are where the stream
is, for every session, and go with it. A stranger who may change a stream's configuration can set its tags, so only
options that shape a table count there (``TABLE_OPTIONS``): none that says who a query is or how safe it is.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TextIO

from pravega_common.errors import (
    AlreadyExists,
    InvalidArgument,
    PravegaError,
    ScopeNotEmpty,
    ScopeNotFound,
    StreamNotFound,
    UnsupportedOperation,
)
from pravega_common.listed import listed
from pravega_common.model.retention import RetentionType
from pravega_common.model.scaling import ScaleType, scale_factor_min
from pravega_common.model.stream_configuration import StreamConfiguration, tag_chars_max
from pravega_common.names import (
    reader_group_stream,
    scoped_name,
    validate_scope_name,
    validate_stream_name,
    validate_user_name,
    validate_user_scope_name,
)
from pravega_common.stream_cut import StreamCut
from pravega_spark.options.definitions import Use
from pravega_spark.options.read_options import ReadOptions
from pravega_spark.options.write_options import WriteOptions
from pravega_spark.rows.columns import EVENT_NAMES, KEY_NAMES, SOURCE_COLUMNS
from pravega_spark.rows.record_schema import RECORD_PARTS
from pravega_streams.client import StreamClient

OPTION_TAG: Final = "spark.option."
TABLE_OPTIONS: Final = frozenset(
    {
        "approx_bytes_per_trigger",
        "end_stream_cut",
        "end_time",
        "event_time_column",
        "format",
        "ingest_time",
        "max_events_per_trigger",
        "max_partition_bytes",
        "max_streams_per_task",
        "max_trigger_delay",
        "metadata",
        "min_events_per_trigger",
        "min_partitions",
        "push_filters",
        "start_stream_cut",
        "start_time",
    }
)
"""Options that a tag of a stream may set."""
_TABLE_OPTIONS: Final = {name.replace("_", "") for name in TABLE_OPTIONS}

_KINDS: Final[tuple[tuple[type[PravegaError], str], ...]] = (
    (ScopeNotFound, "no_such_scope"),
    (StreamNotFound, "no_such_stream"),
    (ScopeNotEmpty, "scope_not_empty"),
    (AlreadyExists, "exists"),
    (InvalidArgument, "invalid"),
    (UnsupportedOperation, "invalid"),
)
_COLUMNS: Final = (*SOURCE_COLUMNS, *EVENT_NAMES, *KEY_NAMES)
_RECORD_COLUMNS: Final = (*RECORD_PARTS, *(name for name in SOURCE_COLUMNS if name != "event"))
held_named_max: Final = 5
"""Groups and tables that the error of a scope names."""
_PLACE: Final = ("controller", "scope", "stream", "path")


class CatalogCalls:
    """The calls of the catalog: every public method is one, and its keywords are the members of the request."""

    def __init__(self, client: StreamClient, controller: str) -> None:
        self._client = client
        self._controller = controller

    # Scopes

    def list_scopes(self) -> list[str]:
        """The names of users' scopes, sorted."""
        return _visible(self._client.controller.list_scopes())

    def scope_exists(self, scope: str) -> bool:
        return self._client.controller.scope_exists(scope)

    def create_scope(self, scope: str) -> bool:
        """Whether it is new."""
        validate_user_scope_name(scope)
        return self._client.controller.create_scope(scope)

    def drop_scope(self, scope: str, cascade: bool) -> bool:
        """True if the scope was there; ``cascade`` deletes its streams first. ``ScopeNotEmpty`` without it, and for a
        scope of reader groups or key-value tables, before anything is deleted."""
        if not self.scope_exists(scope):
            return False
        names = list(self._client.controller.list_streams(scope))
        streams = _visible(names)
        if streams and not cascade:
            raise ScopeNotEmpty(f"scope '{scope}' has {len(streams)} streams; drop them first, or say CASCADE")
        self._check_no_others(scope, names)
        for stream in streams:
            self.drop_stream(scope, stream)
        return self._client.controller.delete_scope(scope)

    def _check_no_others(self, scope: str, streams: Iterable[str]) -> None:
        prefix = reader_group_stream("")
        groups = [f"reader group {name.removeprefix(prefix)}" for name in streams if name.startswith(prefix)]
        held = [*groups, *(f"key-value table {name}" for name in self._client.key_value_tables.list(scope))]
        if held:
            raise ScopeNotEmpty(
                f"nothing of scope '{scope}' was deleted, as it has what is no table here: "
                f"{listed(held, held_named_max)}; delete groups with pravega-spark group delete, key-value tables with "
                "pravega-spark table delete"
            )

    # Streams

    def list_streams(self, scope: str) -> list[str]:
        """The names of users' streams, sorted: not those of reader groups. ``ScopeNotFound``."""
        if not self.scope_exists(scope):
            raise ScopeNotFound(f"scope '{scope}' does not exist")
        return _visible(self._client.controller.list_streams(scope))

    def find_stream(self, scope: str, stream: str) -> dict[str, Any]:
        """Says whether a stream is there, with the options that its table was created with."""
        controller = self._client.controller
        if not _is_name(scope, stream) or not controller.stream_exists(scope, stream):
            return {"exists": False, "options": {}}
        return {"exists": True, "options": options_of_tags(controller.stream_configuration(scope, stream).tags)}

    def create_stream(
        self, scope: str, stream: str, options: Mapping[str, str], columns: Sequence[Sequence[str]]
    ) -> bool:
        """Whether it is new. ``InvalidArgument`` or ``ConfigurationError`` for options and columns that cannot be."""
        validate_user_name(stream)
        place = {"controller": self._controller, "scope": scope, "stream": stream}
        own = _own_options(place, options)
        # Either direction checks what it knows; the table serves both.
        ReadOptions.parse({**own, **place}, Use.STREAM_READ)
        checked = WriteOptions.parse({**own, **place}, Use.BATCH_WRITE)
        _check_columns(columns, _RECORD_COLUMNS if checked.has_records else _COLUMNS)
        if not self.scope_exists(scope):
            raise ScopeNotFound(f"scope '{scope}' does not exist; CREATE NAMESPACE makes it")
        configuration = replace(checked.stream_configuration, tags=tags_of_options(own))
        return self._client.controller.create_stream(scope, stream, configuration)

    def drop_stream(self, scope: str, stream: str) -> bool:
        """Seal and delete a stream, also one that is being written to. True if it was there."""
        controller = self._client.controller
        if not _is_name(scope, stream) or not controller.stream_exists(scope, stream):
            return False
        try:
            controller.seal_stream(scope, stream)
            return controller.delete_stream(scope, stream)
        except StreamNotFound:
            return False

    def describe_stream(self, scope: str, stream: str) -> dict[str, str]:
        """The rows of DESCRIBE EXTENDED: segments, both cuts, bytes between them, policies and the table's options."""
        configuration = self._client.controller.stream_configuration(scope, stream)
        head, tail = self._client.head_cut(scope, stream), self._client.tail_cut(scope, stream)
        segments = self._client.controller.current_segments(scope, stream)
        shown = {
            "stream.name": scoped_name(scope, stream),
            "stream.controller": self._controller,
            "stream.segments": str(len(segments)) if segments else "0 (sealed)",
            "stream.head_stream_cut": StreamCut(scope, stream, head).as_text(),
            "stream.tail_stream_cut": StreamCut(scope, stream, tail).as_text(),
        }
        if set(head) == set(tail):
            shown["stream.bytes"] = str(sum(tail.values()) - sum(head.values()))
        tags = [tag for tag in configuration.tags if not _option_of(tag)]
        if tags:
            shown["stream.tags"] = ", ".join(sorted(tags))
        options = creation_options(configuration) | options_of_tags(configuration.tags)
        return shown | {f"option.{name}": value for name, value in options.items()}


def _own_options(place: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """The options without those that repeat where the stream is. ``InvalidArgument`` when they say another place."""
    own = {}
    for name, value in options.items():
        plain = name.replace("_", "").lower()
        if plain not in _PLACE:
            own[name.lower()] = value
        elif value != place.get(plain):
            raise InvalidArgument(
                f"option '{name}' is '{value}', but the table is {place['scope']}/{place['stream']} of the catalog at "
                f"{place['controller']}; leave the option out"
            )
    return own


def tags_of_options(options: Mapping[str, str]) -> tuple[str, ...]:
    """The tags of options, sorted, without those for creating: they are in the stream's configuration."""
    kept = {
        name: value
        for name, value in options.items()
        if not name.startswith("default") and not name.replace("_", "").startswith("allowcreate")
    }
    for name in kept:
        if not _is_table_option(name):
            raise InvalidArgument(
                f"option '{name}' is of one query, and not kept with the stream: give it with the query"
            )
    tags = tuple(f"{OPTION_TAG}{name}={kept[name]}" for name in sorted(kept))
    for tag in tags:
        if len(tag) > tag_chars_max:
            raise InvalidArgument(
                f"option '{tag.removeprefix(OPTION_TAG).partition('=')[0]}' is too long to be kept with the stream "
                f"({len(tag)} characters with its name, at most {tag_chars_max}); give it with the query"
            )
    return tags


def creation_options(configuration: StreamConfiguration) -> dict[str, str]:
    """The options with which such a stream is created, so that SHOW CREATE TABLE shows a statement that works."""
    scaling, retention = configuration.scaling, configuration.retention
    made = {"default_num_segments": str(scaling.min_segments)}
    if scaling.scale_type is not ScaleType.FIXED:
        made["default_scale_factor"] = str(max(scaling.scale_factor, scale_factor_min))
    if scaling.scale_type is ScaleType.KILOBYTES_PER_SECOND:
        made["default_segment_target_rate_bytes_per_sec"] = str(scaling.target_rate * 1024)
    elif scaling.scale_type is ScaleType.EVENTS_PER_SECOND:
        made["default_segment_target_rate_events_per_sec"] = str(scaling.target_rate)
    if retention is not None and retention.retention_type is RetentionType.TIME:
        made["default_retention_duration_milliseconds"] = str(retention.minimum)
    elif retention is not None and retention.retention_type is RetentionType.SIZE:
        made["default_retention_size_bytes"] = str(retention.minimum)
    return made


def options_of_tags(tags: Iterable[str]) -> dict[str, str]:
    """The options that tags set. Tags with others are let be: anybody may have made them."""
    return dict(option for option in map(_option_of, sorted(tags)) if option)


def _option_of(tag: str) -> tuple[str, str] | None:
    """Name and value of the option that a tag sets; ``None`` for any other tag."""
    name, is_given, value = tag.removeprefix(OPTION_TAG).partition("=")
    return (name, value) if tag.startswith(OPTION_TAG) and is_given and _is_table_option(name) else None


def _is_table_option(name: str) -> bool:
    return name.replace("_", "").lower() in _TABLE_OPTIONS


def _check_columns(columns: Sequence[Sequence[str]], known: Sequence[str]) -> None:
    unknown = [name for name, _ in columns if name.lower() not in known]
    if unknown:
        raise InvalidArgument(
            f"a stream's table has no column '{unknown[0]}'; leave the columns out, or name some of: "
            f"{', '.join(dict.fromkeys(known))}"
        )


def _visible(names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if not name.startswith("_"))


def _is_name(scope: str, stream: str) -> bool:
    """False for names that no stream can have: to ask a controller for them would be an error."""
    try:
        validate_scope_name(scope)
        validate_stream_name(stream)
    except InvalidArgument:
        return False
    return True


def answer(calls: CatalogCalls, line: str) -> dict[str, Any]:
    """The reply to one line. Errors of the project become replies; others end the process, with their traceback."""
    request = json.loads(line)
    identity, name = request.pop("id"), request.pop("call")
    call: Callable[..., Any] | None = None if name.startswith("_") else getattr(calls, name, None)
    try:
        if call is None:
            raise UnsupportedOperation(f"call '{name}' is not known here; the jar and the package are of two versions")
        return {"id": identity, "answer": call(**request)}
    except PravegaError as error:
        kinds = (kind for type_, kind in _KINDS if isinstance(error, type_))
        kind = next(kinds, "invalid" if error.outcome.value == "rejected" else error.outcome.value)
        return {"id": identity, "error": {"kind": kind, "message": str(error)}}


def serve(calls: CatalogCalls, requests: Iterable[str], replies: TextIO) -> None:
    """Answer calls until the requests end."""
    for line in requests:
        replies.write(json.dumps(answer(calls, line)) + "\n")
        replies.flush()


def main() -> None:
    """Answer calls on the standard output; a library that prints there prints to the error output instead."""
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    controller = sys.argv[1]
    with StreamClient(controller) as client:
        serve(CatalogCalls(client, controller), sys.stdin, replies)


if __name__ == "__main__":
    main()
