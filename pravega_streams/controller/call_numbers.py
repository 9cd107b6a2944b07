"""Checks the numbers, names and cuts of a call to the controller, whose messages hold no larger and no other ones.

Without it they end in an error of protobuf, which names neither the value nor the limit, or a bool counts as 1.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from pravega_common.errors import InvalidArgument
from pravega_common.model.retention import NO_MAXIMUM, RetentionType
from pravega_common.model.scaling import scaling_number_max
from pravega_common.model.segments import SegmentOffsets
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import short_segment_name
from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto_forms import stream_info
from pravega_common.stream_cut import StreamCut

K = TypeVar("K")
V = TypeVar("V")

long_max: Final = 2**63 - 1
"""The largest id, offset and time that a call holds."""


def checked_number(what: str, value: int, maximum: int = long_max, minimum: int = 0) -> int:
    """Returns the number; ``InvalidArgument`` for one beyond its limits, and for what is no whole number."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise InvalidArgument(f"{what}: {value!r} is no whole number")
    if not minimum <= number <= maximum:
        raise InvalidArgument(f"{what}: {number} is not possible, must be in {minimum}..{maximum}")
    return number


def checked_text(what: str, text: str) -> str:
    """Returns the text; ``InvalidArgument`` for a value of another type."""
    if not isinstance(text, str):
        raise InvalidArgument(f"{what}: {text!r} is no text")
    return text


def checked_names(what: str, names: Iterable[str]) -> tuple[str, ...]:
    """Returns the names; ``InvalidArgument`` for one text, whose letters would be taken for names, and for others."""
    if isinstance(names, str):
        raise InvalidArgument(f"{what}: {names!r} is one text, a list of names is needed: [{names!r}]")
    if not isinstance(names, Iterable):
        raise InvalidArgument(f"{what}: {names!r} is no list of names")
    return tuple(checked_text(what, name) for name in names)


def checked_mapping(what: str, mapping: Mapping[K, V]) -> Mapping[K, V]:
    """Returns the mapping; ``InvalidArgument`` for a value of another type."""
    if not isinstance(mapping, Mapping):
        raise InvalidArgument(f"{what}: {mapping!r} is no mapping")
    return mapping


def named_scope(scope: str) -> pb.ScopeInfo:
    """The message that names a scope; ``InvalidArgument`` for what is no text."""
    return pb.ScopeInfo(scope=checked_text("a scope", scope))


def named_stream(scope: str, stream: str) -> pb.StreamInfo:
    """The message that names a stream; ``InvalidArgument`` for what is no text."""
    return stream_info(checked_text("a scope", scope), checked_text("a stream", stream))


def check_configuration(configuration: StreamConfiguration) -> None:
    """Checks the numbers and tags of a stream's configuration; what else is wrong with them its controller knows."""
    if not isinstance(configuration, StreamConfiguration):
        raise InvalidArgument(f"{configuration!r} is no StreamConfiguration")
    scaling, retention = configuration.scaling, configuration.retention
    checked_number("the number of segments", scaling.min_segments, scaling_number_max, minimum=1)
    checked_number("the scaling policy's target rate", scaling.target_rate, scaling_number_max)
    checked_number("the scaling policy's scale factor", scaling.scale_factor, scaling_number_max)
    checked_number("the rollover size in bytes", configuration.rollover_size_bytes)
    checked_number("timestamp_aggregation_timeout_ms", configuration.timestamp_aggregation_timeout_ms)
    checked_names("tags", configuration.tags)
    if retention is not None:
        unit = "bytes" if retention.retention_type is RetentionType.SIZE else "milliseconds"
        checked_number(f"the {unit} to retain", retention.minimum, NO_MAXIMUM)
        checked_number(f"the most {unit} to retain", retention.maximum, NO_MAXIMUM)


def check_is_cut(cut: object) -> None:
    """Checks that a cut is a mapping, as a ``StreamCut`` is not: ``InvalidArgument``."""
    if not isinstance(cut, Mapping):
        hint = "; it has them in .offsets" if isinstance(cut, StreamCut) else ""
        raise InvalidArgument(f"a cut has the offset of each segment, {{segment: offset}}; not so {cut!r}{hint}")


def checked_cut(cut: SegmentOffsets) -> SegmentOffsets:
    """Returns the cut; an offset below 0 is that of a segment that was not reached yet."""
    check_is_cut(cut)
    ids = [checked_number("a cut's segment", item) for item in cut]
    return {
        item: checked_number(f"the offset in segment {short_segment_name(item)}", cut[item], minimum=-1) for item in ids
    }
