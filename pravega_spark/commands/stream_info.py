"""``stream info``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from pravega_common.byte_text import text_of_bytes
from pravega_common.model.stream_lags import DescribedLag
from pravega_common.names import short_segment_name
from pravega_common.stream_cut import StreamCut
from pravega_spark.commands.arguments import (
    CONTROLLER_DEFAULT,
    ControllerOption,
    JsonOption,
    StreamArgument,
    rate_time_s,
)
from pravega_spark.commands.connection import connected, connected_gateway, existing_stream
from pravega_spark.commands.output import counted, print_facts, print_json, print_table
from pravega_spark.commands.stream_activity import (
    Amount,
    QueryLag,
    amount_between,
    query_lag,
    written_per_s,
)
from pravega_spark.commands.stream_facts import StreamFacts, retention_text, scaling_text, stream_facts
from pravega_spark.commands.stream_lag import lag_facts, lag_json, lag_of


def add_to(group: typer.Typer) -> None:
    group.command()(info)


@dataclass(frozen=True, slots=True)
class _Activity:
    """The counts beside the facts, and the lag of subscribers."""

    events: Amount | None = None
    rates: dict[int, float] = field(default_factory=dict)
    """Bytes a second by segment; empty if not asked for."""
    lag: QueryLag | None = None
    subscribers: DescribedLag | None = None
    """Asked for always, and None on a plain Pravega."""

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        if self.events is not None:
            made["events"] = self.events.events
        if self.rates:
            made["bytes_per_s"] = {str(item): rate for item, rate in self.rates.items()}
        if self.lag is not None:
            made["lag"] = self.lag.to_json()
        if self.subscribers is not None:
            made |= lag_json(self.subscribers)
        return made


def info(
    stream: StreamArgument,
    events: Annotated[bool, typer.Option("--events", help="Also about how many events it has.")] = False,
    rates: Annotated[
        bool, typer.Option("--rates", help=f"Also what is written, watched for {rate_time_s:g} seconds.")
    ] = False,
    query: Annotated[
        str, typer.Option(metavar="CHECKPOINT", help="Also what a streaming query has not finished: its checkpoint.")
    ] = "",
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Show configuration, segments with their keys, head, tail and size."""
    with connected(controller) as client:
        scope, name = existing_stream(client, stream)
        facts = stream_facts(client, scope, name)
        amount, lag = _counted(controller, facts, events, query) if events or query else (None, None)
        watched = [item.segment_id for item in facts.segments] if rates else []
        per_s = written_per_s(client, scope, name, watched, time.sleep) if rates else {}
        activity = _Activity(amount, per_s, lag, lag_of(client, scope, name))
    if as_json:
        print_json({**facts.to_json(), **activity.to_json()})
    else:
        _print_facts(facts, activity)


def _counted(controller: str, facts: StreamFacts, events: bool, query: str) -> tuple[Amount | None, QueryLag | None]:
    with connected_gateway(controller) as gateway:
        amount = amount_between(gateway, facts.scope, facts.stream, facts.head, facts.tail) if events else None
        return amount, query_lag(gateway, facts.scope, facts.stream, query, facts.tail) if query else None


def _print_facts(facts: StreamFacts, activity: _Activity) -> None:
    segments = counted(facts.segment_count, "segment")
    shown: list[tuple[str, object]] = [
        ("state", "sealed: takes no more events" if facts.is_sealed else "open"),
        ("scaling", scaling_text(facts.configuration.scaling)),
        ("retention", retention_text(facts.configuration.retention)),
        ("tags", ", ".join(facts.configuration.tags) or "none"),
        ("size", f"{text_of_bytes(facts.size_bytes)} ({facts.size_bytes:,} bytes) in {segments}"),
        ("commits", facts.commits_text),
        ("head", StreamCut(facts.scope, facts.stream, facts.head).as_text()),
        ("tail", StreamCut(facts.scope, facts.stream, facts.tail).as_text()),
    ]
    print_facts(f"{facts.scope}/{facts.stream}", shown + _shown(activity))
    columns = ["segment", "keys from", "to", "start offset", "length"]
    rows = [
        (
            short_segment_name(item.segment_id),
            item.key_low,
            item.key_high,
            item.info.start_offset,
            item.info.length,
            *([activity.rates.get(item.segment_id, 0.0)] if activity.rates else []),
        )
        for item in facts.segments
    ]
    title = "last segments" if facts.is_sealed else "open segments"
    print_table(title, columns + (["bytes/s"] if activity.rates else []), rows)


def _shown(activity: _Activity) -> list[tuple[str, object]]:
    shown: list[tuple[str, object]] = []
    if activity.events is not None:
        shown.append(("events", f"about {activity.events.events_text}"))
    if activity.rates:
        shown.append(("written", f"{text_of_bytes(round(sum(activity.rates.values())))}/s"))
    if activity.lag is not None:
        behind = activity.lag.behind
        lag = f"{text_of_bytes(behind.size_bytes)}, about {behind.events_text}, after batch {activity.lag.batch_id}"
        shown.append(("lag of the query", lag))
    return shown + (lag_facts(activity.subscribers) if activity.subscribers is not None else [])
