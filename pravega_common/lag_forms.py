"""Converts values of the service StreamLags to and from protobuf messages, for client and controller."""

from __future__ import annotations

from pravega_common.model.stream_lags import DescribedLag, DescribedSubscriber
from pravega_common.proto import stream_lags_pb2 as pb


def lag_to(lag: DescribedLag) -> pb.StreamLag:
    """The message of a stream's lag."""
    return pb.StreamLag(
        stream=pb.LagStream(scope=lag.scope, stream=lag.stream),
        subscribers=[
            pb.SubscriberLag(
                name=one.name,
                updated_ms=one.updated_ms,
                behind_bytes=one.behind_bytes,
                was_truncated=one.was_truncated,
                unknown=one.unknown,
            )
            for one in lag.subscribers
        ],
        left_out=lag.left_out,
        unknown=lag.unknown,
    )


def lag_from(message: pb.StreamLag) -> DescribedLag:
    """The lag of a message."""
    subscribers = tuple(
        DescribedSubscriber(
            one.name,
            one.updated_ms,
            one.behind_bytes if one.HasField("behind_bytes") else None,
            one.was_truncated,
            one.unknown,
        )
        for one in message.subscribers
    )
    return DescribedLag(message.stream.scope, message.stream.stream, subscribers, message.left_out, message.unknown)
