"""Collects what ``stream info`` shows about a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pravega_common.model.commits import Commits
from pravega_common.model.retention import NO_MAXIMUM, RetentionPolicy, RetentionType
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.segments import SegmentInfo, SegmentOffsets
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_epoch
from pravega_common.stream_cut import StreamCut
from pravega_spark.commands.cuts import segment_json
from pravega_spark.commands.output import counted
from pravega_spark.commands.quantities import ms_per_hour
from pravega_spark.commands.transaction import commits_json, commits_of, commits_text
from pravega_streams.client import StreamClient


@dataclass(frozen=True, slots=True)
class OpenSegment:
    """An open segment, or a last one of a sealed stream; offsets in bytes, keys in [0, 1)."""

    segment_id: int
    key_low: float
    key_high: float
    info: SegmentInfo


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """The facts about a stream. ``size_bytes`` and ``segment_count`` are of all segments between head and tail."""

    scope: str
    stream: str
    configuration: StreamConfiguration
    is_sealed: bool
    segments: tuple[OpenSegment, ...]
    segment_count: int
    head: SegmentOffsets
    tail: SegmentOffsets
    size_bytes: int
    commits: Commits | None
    """None on a plain Pravega."""

    @property
    def commits_text(self) -> str:
        return "unknown" if self.commits is None else commits_text(f"{self.scope}/{self.stream}", self.commits)

    def to_json(self) -> dict[str, Any]:
        scaling, retention = self.configuration.scaling, self.configuration.retention
        return {
            "scope": self.scope,
            "stream": self.stream,
            "sealed": self.is_sealed,
            "scaling": {
                "type": scaling.scale_type.name.lower(),
                "segments_min": scaling.min_segments,
                "target_rate": scaling.target_rate,
                "factor": scaling.scale_factor,
            },
            "retention": {
                "type": retention_type(retention),
                "keep_min": retention.minimum if retention else 0,
                "keep_max": retention.maximum if retention else 0,
            },
            "tags": list(self.configuration.tags),
            "segments": [_segment_json(self.scope, self.stream, item) for item in self.segments],
            "segments_head_to_tail": self.segment_count,
            "bytes": self.size_bytes,
            "commits": None if self.commits is None else commits_json(self.commits),
            "head": StreamCut(self.scope, self.stream, self.head).as_text(),
            "tail": StreamCut(self.scope, self.stream, self.tail).as_text(),
        }


def _segment_json(scope: str, stream: str, segment: OpenSegment) -> dict[str, Any]:
    return {
        **segment_json(scope, stream, segment.segment_id),
        "key_low": segment.key_low,
        "key_high": segment.key_high,
        "start_offset": segment.info.start_offset,
        "length": segment.info.length,
    }


def stream_facts(client: StreamClient, scope: str, stream: str) -> StreamFacts:
    controller = client.controller
    head, tail = client.head_cut(scope, stream), client.tail_cut(scope, stream)
    current = controller.current_segments(scope, stream)
    shown = current or [
        item
        for epoch in sorted({segment_epoch(item) for item in tail})
        for item in controller.epoch_segments(scope, stream, epoch)
        if item.segment_id in tail
    ]
    between = controller.segments_between(scope, stream, head, tail)
    infos = client.segment_infos(scope, stream, {*between, *(one.segment_id for one in shown)})
    segments = tuple(
        OpenSegment(item.segment_id, item.key_low, min(item.key_high, 1.0), infos[item.segment_id])
        for item in shown
        if item.segment_id in infos
    )
    return StreamFacts(
        scope,
        stream,
        controller.stream_configuration(scope, stream),
        not current,
        segments,
        len(between),
        head,
        tail,
        sum(infos[item].length - infos[item].start_offset for item in between if item in infos),
        commits_of(client, scope, stream),
    )


def scaling_text(policy: ScalingPolicy) -> str:
    if policy.scale_type is ScaleType.FIXED:
        return f"fixed, {policy.min_segments} at the start or more"  # scaling by hand leaves the policy as it is
    unit = "KB/s" if policy.scale_type is ScaleType.KILOBYTES_PER_SECOND else "events/s"
    rate = f"{policy.target_rate} {unit} a segment"
    return f"{rate}, split by {policy.scale_factor}, at least {counted(policy.min_segments, 'segment')}"


def retention_type(policy: RetentionPolicy | None) -> str:
    """The name of a policy's type in JSON; ``none`` without a policy."""
    return (policy.retention_type if policy else RetentionType.NONE).name.lower()


def retention_text(policy: RetentionPolicy | None) -> str:
    """The policy in words."""
    if policy is None or policy.retention_type is RetentionType.NONE:
        return "everything is kept"
    words = _hours if policy.retention_type is RetentionType.TIME else _bytes
    text = f"keep {words(policy.minimum)}"
    if 0 < policy.maximum < NO_MAXIMUM:
        text += f", and {words(policy.maximum)} for subscribers at most"
    return text


def _hours(milliseconds: int) -> str:
    hours = milliseconds / ms_per_hour
    return f"{hours:g} {'hour' if hours == 1 else 'hours'}"


def _bytes(count: int) -> str:
    return counted(count, "byte")
