"""Reads the lag of a query from its progress."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Lag:
    """The data that was there and not yet planned when the last batch was, in all streams of the query together."""

    bytes: int
    events: int | None
    """None where a store keeps no index of event boundaries (Pravega before 0.14); else about right to exact."""


def lag(progress: Any) -> Lag | None:
    """The lag in ``query.lastProgress``, or in one of ``query.recentProgress`` (an object, a dictionary, or its JSON).

    None before the first progress, and when no source of the query is one of this connector.
    """
    found = list(_reported(progress))
    if not found:
        return None
    events = [item.get("lag_events") for item in found]
    known = [count for count in events if count is not None]
    return Lag(sum(item["lag_bytes"] for item in found), sum(known) if len(known) == len(events) else None)


def _reported(progress: Any) -> Iterator[Mapping[str, Any]]:
    for source in parsed(progress).get("sources", ()):
        latest = parsed(source.get("latestOffset"))
        if "lag_bytes" in latest:
            yield latest


def parsed(value: Any) -> Mapping[str, Any]:
    """A mapping from what Spark may give: a mapping, JSON text, or an object with JSON; empty for anything else."""
    value = value if isinstance(value, (str, Mapping)) else getattr(value, "json", None)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, Mapping) else {}
