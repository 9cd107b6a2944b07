"""Tells how far the subscribers of streams are behind, for ``stream list --lag`` and ``stream info``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pravega_common.byte_text import text_of_bytes
from pravega_common.errors import UnsupportedOperation
from pravega_common.model.stream_lags import DescribedLag, DescribedSubscriber
from pravega_spark.commands.quantities import text_of_time
from pravega_streams.client import StreamClient


def lags_of(client: StreamClient, streams: Sequence[tuple[str, str]]) -> dict[tuple[str, str], DescribedLag]:
    """Asks for the lags of streams; ``UnsupportedOperation`` on a plain Pravega. One that is gone is not in it."""
    try:
        return {(one.scope, one.stream): one for one in client.lags.describe(streams)}
    except UnsupportedOperation as error:
        raise UnsupportedOperation("the controllers of this cluster do not tell the lag of subscribers") from error


def lag_of(client: StreamClient, scope: str, stream: str) -> DescribedLag | None:
    """Asks for the lag of one stream; None on a plain Pravega, or when the stream is gone meanwhile."""
    try:
        return lags_of(client, [(scope, stream)]).get((scope, stream))
    except UnsupportedOperation:
        return None


def lag_cells(lag: DescribedLag | None) -> tuple[str, str]:
    """Returns how far the furthest subscriber is behind, and its name; both empty without subscribers."""
    if lag is None or not lag.subscribers:
        return "", ""
    known = [one for one in lag.subscribers if one.behind_bytes is not None]
    first = max(known, key=lambda one: one.behind_bytes or 0) if known else lag.subscribers[0]
    others = len(lag.subscribers) + lag.left_out - 1
    name = f"{first.name} and {others} more" if others else first.name
    if not known:
        return "unknown", name
    is_all = len(known) == len(lag.subscribers) and not lag.left_out
    return text_of_bytes(first.behind_bytes or 0) + ("" if is_all else " or more"), name


def lag_facts(lag: DescribedLag) -> list[tuple[str, object]]:
    """Returns a line for each subscriber."""
    lines: list[tuple[str, object]] = [(f"lag of {one.name}", _subscriber_text(one)) for one in lag.subscribers]
    if lag.left_out:
        lines.append(("further subscribers", lag.left_out))
    return lines or [("subscribers", "none")]


def lag_json(lag: DescribedLag) -> dict[str, Any]:
    subscribers = [
        {
            "name": one.name,
            "behind_bytes": one.behind_bytes,
            "updated_ms": one.updated_ms or None,
            "truncated": one.was_truncated,
            "unknown": one.unknown or None,
        }
        for one in lag.subscribers
    ]
    return {"subscribers": subscribers, "subscribers_left_out": lag.left_out}


def _subscriber_text(one: DescribedSubscriber) -> str:
    behind = one.unknown if one.behind_bytes is None else text_of_bytes(one.behind_bytes)
    told = f", told {text_of_time(one.updated_ms)}" if one.updated_ms else ""
    lost = "; a part of it was truncated" if one.was_truncated and one.behind_bytes is not None else ""
    return behind + told + lost
