"""Collects the options that were given for one read or write, and finds the streams that they name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final

from pravega_common.errors import ConfigurationError, InvalidArgument
from pravega_common.names import split_scoped_name, validate_scope_name, validate_stream_name
from pravega_spark.options.definitions import OPTIONS, Use

StreamName = tuple[str, str]
"""Scope and stream."""

CATALOG_PROPERTIES: Final = frozenset(
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
"""The names that Spark's own catalog puts among the properties of a table, in lower case; the jar takes them off
(``TableOptions.java``). Beside them each option of CREATE TABLE comes a second time, under ``option.NAME``."""

_KAFKA_ALIASES: Final = {
    "subscribe": "stream",
    "topic": "stream",
    "subscribepattern": "stream_pattern",
    "startingoffsets": "start_stream_cut",
    "endingoffsets": "end_stream_cut",
    "startingtimestamp": "start_time",
    "endingtimestamp": "end_time",
    "maxoffsetspertrigger": "max_events_per_trigger",
    "minoffsetspertrigger": "min_events_per_trigger",
}
"""Options of Spark's Kafka connector that mean the same here under another name."""

_ONLY_OF_KAFKA: Final = {
    "kafka.bootstrap.servers": "give option 'controller' the address of a controller, tcp://host:port",
    "startingoffsetsbytimestamp": "start_time takes a JSON object with a time for each stream",
    "endingoffsetsbytimestamp": "end_time is one time for all streams",
    "assign": "a read takes all segments of a stream; filter by column 'segment_id'",
    "includeheaders": "write and read with format=record, whose column 'headers' is that of Kafka",
    "groupidprefix": "a query keeps its position in its checkpoint, and joins no group",
    "kafka.group.id": "a query keeps its position in its checkpoint, and joins no group",
}
"""Options of Spark's Kafka connector that mean something else there or have no counterpart, and what to do instead."""

_OF_KAFKAS_CLIENTS: Final = "kafka."
"""How options of Spark's Kafka connector begin that it hands to Kafka's clients."""

_NAMES_OF_BATCH_WRITES: Final = frozenset({"job_id", "txn_app_id", "txn_version"})
"""Options that make a batch write idempotent. A streaming write that ignored them would seem to be so under that name,
also with another checkpoint."""

_SECRETS: Final = ("password", "token")
"""Names of secrets, of which an option may name the file only."""

_CREATE_TABLE: Final = (
    "options of CREATE TABLE do not reach a Python source, but those of CREATE TEMPORARY VIEW and of SELECT … WITH (…) "
    "do"
)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


_BY_NAME: Final = {_plain(option.name): option for option in OPTIONS}


def _nearest(plain: str) -> str | None:
    """The valid option that may have been meant."""
    found = difflib.get_close_matches(plain, _BY_NAME, n=1, cutoff=0.5)
    return _BY_NAME[found[0]].name if found else None


class GivenOptions:
    """Values by option, before they become the fields of ``ReadOptions`` or ``WriteOptions``."""

    def __init__(self, texts: Mapping[str, str], use: Use) -> None:
        """``ConfigurationError`` with one sentence for an unknown, malformed or missing option."""
        self._use = use
        self._values: dict[str, Any] = {option.name: option.default for option in OPTIONS}
        self._given: dict[str, str] = {}
        for name, text in texts.items():
            self._take(name, text)
        self.streams = self._names()
        self.scope = self._scope()

    def value(self, name: str) -> Any:
        """The value of an option, or its default."""
        return self._values[name]

    def text(self, name: str) -> str:
        """The text that an option was given as, empty for none."""
        return self._given.get(name, "")

    def is_given(self, name: str) -> bool:
        return name in self._given

    def _take(self, name: str, text: str) -> None:
        plain = _plain(name)
        option = _BY_NAME.get(_KAFKA_ALIASES.get(plain, plain).replace("_", ""))
        if plain in ("startingoffsets", "endingoffsets"):
            _check_no_partitions(name, text)
        if option is None:
            if plain in _SECRETS:
                raise ConfigurationError(
                    f"option '{name}' is refused, since options are seen in plans and event logs: give '{plain}_file', "
                    f"a file on the driver that holds the {plain}"
                )
            if name.lower() in CATALOG_PROPERTIES or name.lower().startswith("option."):
                raise ConfigurationError(
                    f"option '{name}' is a property of a table in Spark's catalog: {_CREATE_TABLE} (of a table that "
                    "names its columns: CREATE TABLE t (event BINARY) USING pravega); with the jar of jvm-shim CREATE "
                    "TABLE … USING pravega works too"
                )
            if instead := _ONLY_OF_KAFKA.get(plain):
                raise ConfigurationError(
                    f"option '{name}' of Spark's Kafka connector has no counterpart here: {instead}"
                )
            if plain.startswith(_OF_KAFKAS_CLIENTS):
                raise ConfigurationError(
                    f"option '{name}' is of Kafka's clients, and nothing of Kafka is used to read or write a stream: "
                    "leave it out"
                )
            nearest = _nearest(plain)
            hint = f"; did you mean '{nearest}'?" if nearest else ""
            raise ConfigurationError(f"unknown option '{name}'{hint}")
        if self._use is Use.STREAM_WRITE and option.name in _NAMES_OF_BATCH_WRITES:
            raise ConfigurationError(
                f"option '{name}' is of batch writes; a streaming write has its identity in its checkpoint: leave it "
                "out, or write in foreachBatch with txn_app_id and txn_version"
            )
        if not option.use & self._use:
            return
        if option.name in self._given:
            raise ConfigurationError(f"option '{option.name}' is given in two spellings; give it once")
        try:
            self._values[option.name] = option.parse(text)
        except ValueError as error:
            raise ConfigurationError(f"option '{option.name}' is '{text}', but {error}") from error
        self._given[option.name] = text

    def _names(self) -> tuple[StreamName, ...]:
        """All streams, each once, from the one option that names them."""
        given = [name for name in ("path", "paths", "stream", "streams", "stream_pattern") if self.is_given(name)]
        if len(given) > 1:
            listed = " and ".join(f"'{name}'" for name in given)
            raise ConfigurationError(f"the options {listed} say the same; give only one")
        if not given or given == ["stream_pattern"]:
            return ()
        name = given[0]
        items = (self.value(name),) if name == "path" else self.value(name)
        if name in ("path", "paths") and self.is_given("scope"):
            raise ConfigurationError(
                f"the {name} '{', '.join(items)}' and the option scope say the same; give only one"
            )
        streams = tuple(dict.fromkeys(self._named(item, name) for item in items))
        if len(streams) > 1 and self._use & Use.WRITE:
            raise ConfigurationError(f"option '{name}' names {len(streams)} streams, but a sink writes to one")
        return streams

    def _named(self, item: str, option: str) -> StreamName:
        try:
            if "/" in item or option in ("path", "paths"):
                scope, stream = split_scoped_name(item)
            elif self.value("scope") is None:
                raise missing_option("scope")
            else:
                scope, stream = self.value("scope"), item
            return validate_scope_name(scope), validate_stream_name(stream)
        except InvalidArgument as error:
            raise ConfigurationError(f"the {option} {error}" if option == "path" else str(error)) from error

    def _scope(self) -> str:
        """The scope that holds the record of a sink; ``ConfigurationError`` when no scope or no stream is named."""
        scope: str | None = self.value("scope") or (self.streams[0][0] if self.streams else None)
        if scope is None:
            raise missing_option("scope")
        is_found_later = self.is_given("stream_pattern") or self.value("metadata") == "Streams"
        if not self.streams and not is_found_later and not self._use & Use.WRITE:
            raise missing_option("stream")
        try:
            validate_scope_name(scope)
        except InvalidArgument as error:
            raise ConfigurationError(str(error)) from error
        return scope


def _check_no_partitions(name: str, text: str) -> None:
    """``ConfigurationError`` for Kafka's offsets by topic and partition, which mean nothing in a stream."""
    if text.lstrip().startswith("{") and '"streams"' not in text and '"sources"' not in text:
        ours = _KAFKA_ALIASES[_plain(name)]
        raise ConfigurationError(
            f"option '{name}' has offsets of Kafka's partitions; a stream has segments: give '{ours}' a stream cut, or "
            "the JSON of an offset of a query"
        )


def missing_option(name: str, instead: str = "") -> ConfigurationError:
    """The error for a scope or a stream that was not given; ``instead``: what else would have done."""
    return ConfigurationError(
        f"missing required option '{name}': give option('scope', …) and option('stream', …), or "
        f"load('scope/stream'){instead}; {_CREATE_TABLE}"
    )
