"""Defines the options that a read and a write share: the controller, the streams, and how missing ones are created."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, Literal, Self

from pravega_common.model.retention import RetentionPolicy
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.options.combinations import check_combination
from pravega_spark.options.definitions import CONTROLLER_DEFAULT, CONTROLLER_VARIABLE, Use
from pravega_spark.options.given import GivenOptions, StreamName
from pravega_streams.controller.address import Controller, ControllerAddress, speaks_tls
from pravega_streams.credentials import SharedCredentials, credentials_from, credentials_of

CREDENTIAL_OPTIONS: Final = ("user", "password_file", "token_file")
_DERIVED: Final = ("scope", "streams", "stream_configuration")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Checked options. Pickled to every executor with the reader or writer that has them.

    A field has the name of its option (``definitions.py``), or is derived from several.
    """

    controller: Controller
    """A text; for a cluster with TLS or authentication the parsed address, which has the certificates of ``ca_file``
    and the credentials."""
    scope: str
    streams: tuple[StreamName, ...]
    allow_create_scope: bool
    allow_create_stream: bool
    format: Literal["event", "record"]
    stream_configuration: StreamConfiguration
    """The policies of a stream that is created."""

    @property
    def stream(self) -> str | None:
        """The one stream that a sink writes to; None when its rows say it."""
        return self.streams[0][1] if self.streams else None

    @property
    def has_records(self) -> bool:
        """Whether events are packed and unpacked as records (docs/records.md)."""
        return self.format == "record"

    @classmethod
    def parse(cls, texts: Mapping[str, str], use: Use) -> Self:
        """``ConfigurationError`` with one sentence for an unknown, malformed, missing or contradictory option."""
        given = GivenOptions(texts, use)
        check_combination(given, use)
        own = {field.name: given.value(field.name) for field in fields(cls) if field.name not in _DERIVED}
        own["controller"] = _controller(given)
        for name in ("allow_create_scope", "allow_create_stream"):
            # A name that is mistyped in a read would give an empty stream, and no rows without a word.
            own[name] = given.value(name) if given.is_given(name) else bool(use & Use.WRITE)
        return cls(scope=given.scope, streams=given.streams, stream_configuration=_stream_configuration(given), **own)


def _controller(given: GivenOptions) -> Controller:
    uri = str(given.value("controller") or os.environ.get(CONTROLLER_VARIABLE) or CONTROLLER_DEFAULT)
    ca_file = given.value("ca_file") or ""
    # Both are read here, on the driver: executors need no such files, and get what is in them with their tasks.
    credentials = credentials_of(*(given.value(name) or "" for name in CREDENTIAL_OPTIONS)) or credentials_from()
    if not (ca_file or speaks_tls(uri) or credentials):
        return uri
    address = ControllerAddress.parse(uri, ca_file=ca_file)
    return replace(address, credentials=SharedCredentials.of(credentials, uri)) if credentials else address


def _stream_configuration(given: GivenOptions) -> StreamConfiguration:
    segments, factor = given.value("default_num_segments"), given.value("default_scale_factor") or 0
    byte_rate = given.value("default_segment_target_rate_bytes_per_sec")
    event_rate = given.value("default_segment_target_rate_events_per_sec")
    scaling = ScalingPolicy.fixed(segments)
    if byte_rate is not None:
        scaling = ScalingPolicy(ScaleType.KILOBYTES_PER_SECOND, byte_rate // 1024, factor, segments)
    elif event_rate is not None:
        scaling = ScalingPolicy(ScaleType.EVENTS_PER_SECOND, event_rate, factor, segments)
    retention = None
    if given.is_given("default_retention_duration_milliseconds"):
        retention = RetentionPolicy.by_time(given.value("default_retention_duration_milliseconds"))
    elif given.is_given("default_retention_size_bytes"):
        retention = RetentionPolicy.by_size(given.value("default_retention_size_bytes"))
    return StreamConfiguration(scaling, retention)
