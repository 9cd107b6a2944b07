"""``stream list|info``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pravega_common.byte_text import text_of_bytes
from pravega_common.errors import NotFound, ScopeNotFound
from pravega_common.names import (
    is_internal_scope,
    is_internal_stream,
    short_segment_name,
)
from pravega_common.stream_cut import StreamCut
from pravega_spark.commands.arguments import CONTROLLER_DEFAULT, ControllerOption, JsonOption, StreamArgument
from pravega_spark.commands.connection import connected, existing_stream
from pravega_spark.commands.output import counted, print_facts, print_json, print_table
from pravega_spark.commands.stream_activity import (
    Amount,
    QueryLag,
    StreamSize,
    amount_between,
    query_lag,
    rate_time_s,
    stream_size,
    written_per_s,
    written_per_s_of_each,
)
from pravega_spark.commands.stream_facts import StreamFacts, retention_text, scaling_text, stream_facts
from pravega_streams.client import StreamClient

if TYPE_CHECKING:
    from pravega_spark.gateway.contract import StreamGateway


def add_to(group: typer.Typer) -> None:
    group.command()(info)
    group.command("list")(list_streams)


def list_streams(
    scope: Annotated[str, typer.Argument(help="Only of this scope.")] = "",
    internal: Annotated[bool, typer.Option("--internal", help="Also scopes and streams of the system.")] = False,
    sizes: Annotated[
        bool, typer.Option("--sizes", help="Also segments and bytes, a few calls for each stream.")
    ] = False,
    events: Annotated[bool, typer.Option("--events", help="Also sizes and about how many events.")] = False,
    rates: Annotated[
        bool, typer.Option("--rates", help=f"Also sizes and what is written, watched for {rate_time_s:g} seconds.")
    ] = False,
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """List scopes and their streams."""
    found: list[tuple[str, str]] = []
    with connected(controller) as client:
        if scope:
            scopes = [scope]
        else:
            scopes = [item for item in client.controller.list_scopes() if internal or not is_internal_scope(item)]
        for item in sorted(scopes):
            found += [(item, name) for name in _names(client, item) if internal or not is_internal_stream(item, name)]
        if sizes or events or rates:
            measured = [size for one in found if (size := stream_size(client, *one)) is not None]
            if events:
                measured = _with_events(controller, client, measured)
            if rates:
                per_s = written_per_s_of_each(client, [(one.scope, one.stream) for one in measured], time.sleep)
                measured = [replace(one, bytes_per_s=per_s.get((one.scope, one.stream))) for one in measured]
            _print_sizes(measured, as_json, events=events, rates=rates)
        elif as_json:
            print_json([{"scope": item, "stream": name} for item, name in found])
        else:
            print_table(counted(len(found), "stream"), ["scope", "stream"], found)


def _names(client: StreamClient, scope: str) -> list[str]:
    try:
        return sorted(client.controller.list_streams(scope))
    except ScopeNotFound as error:
        raise ScopeNotFound(f"scope '{scope}' does not exist; see pravega-spark stream list") from error


def _with_events(controller: str, client: StreamClient, sizes: list[StreamSize]) -> list[StreamSize]:
    from pravega_spark.gateway.service import ServiceGateway  # Arrow takes longer to import than most commands take.

    gateway = ServiceGateway(controller)
    try:
        return [replace(one, events=_events_of(gateway, client, one)) for one in sizes]
    finally:
        gateway.close()


def _events_of(gateway: StreamGateway, client: StreamClient, one: StreamSize) -> int | None:
    """None also for a stream that was deleted since it was measured."""
    try:
        head, tail = client.head_cut(one.scope, one.stream), client.tail_cut(one.scope, one.stream)
        return amount_between(gateway, one.scope, one.stream, head, tail).events
    except NotFound:
        return None


def _print_sizes(sizes: list[StreamSize], as_json: bool, *, events: bool, rates: bool) -> None:
    if as_json:
        print_json([size.to_json() for size in sizes])
        return
    total = sum(size.size_bytes for size in sizes)
    rows = [
        (
            *(size.scope, size.stream, size.segments, text_of_bytes(size.size_bytes), size.size_bytes),
            *([size.events] if events else []),
            *([size.bytes_per_s] if rates else []),
        )
        for size in sizes
    ]
    title = f"{counted(len(sizes), 'stream')}, {text_of_bytes(total)}"
    more = (["events, about"] if events else []) + (["bytes/s"] if rates else [])
    print_table(title, ["scope", "stream", "segments", "size", "bytes", *more], rows)


@dataclass(frozen=True, slots=True)
class _Activity:
    """The counts that were asked for beside the facts."""

    events: Amount | None = None
    rates: dict[int, float] = field(default_factory=dict)
    """Bytes a second by segment; empty if not asked for."""
    lag: QueryLag | None = None

    def to_json(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        if self.events is not None:
            made["events"] = self.events.events
        if self.rates:
            made["bytes_per_s"] = {str(item): rate for item, rate in self.rates.items()}
        if self.lag is not None:
            made["lag"] = self.lag.to_json()
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
        activity = _Activity(amount, written_per_s(client, scope, name, watched, time.sleep) if rates else {}, lag)
    if as_json:
        print_json({**facts.to_json(), **activity.to_json()})
    else:
        _print_facts(facts, activity)


def _counted(controller: str, facts: StreamFacts, events: bool, query: str) -> tuple[Amount | None, QueryLag | None]:
    from pravega_spark.gateway.service import ServiceGateway  # Arrow takes longer to import than most commands take.

    gateway = ServiceGateway(controller)
    try:
        amount = amount_between(gateway, facts.scope, facts.stream, facts.head, facts.tail) if events else None
        return amount, query_lag(gateway, facts.scope, facts.stream, query, facts.tail) if query else None
    finally:
        gateway.close()


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
    return shown
