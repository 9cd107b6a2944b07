"""``stream list``. What only its options need is imported with them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pravega_common.byte_text import text_of_bytes
from pravega_common.errors import NotFound, ScopeNotFound
from pravega_common.names import is_internal_scope, is_internal_stream
from pravega_spark.commands.arguments import CONTROLLER_DEFAULT, ControllerOption, JsonOption, rate_time_s
from pravega_spark.commands.connection import connected, connected_gateway
from pravega_spark.commands.output import counted, print_json, print_table
from pravega_streams.client import StreamClient

if TYPE_CHECKING:
    from pravega_spark.commands.stream_activity import StreamSize
    from pravega_spark.gateway.contract import StreamGateway


def add_to(group: typer.Typer) -> None:
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
    lag: Annotated[bool, typer.Option("--lag", help="Also how far the subscribers are behind.")] = False,
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
        is_measured = sizes or events or rates
        measured = _measured(controller, client, found, events, rates) if is_measured else []
        lags = _Lags(client, found) if lag else _NoLags()
    if is_measured:
        _print_sizes(measured, lags, as_json, events=events, rates=rates)
    elif as_json:
        print_json([{"scope": item, "stream": name, **lags.to_json(item, name)} for item, name in found])
    else:
        rows = [(*one, *lags.cells(*one)) for one in found]
        print_table(counted(len(found), "stream"), ["scope", "stream", *lags.columns], rows)


class _NoLags:
    """Adds nothing to what is printed of a stream."""

    columns: Sequence[str] = ()

    def cells(self, scope: str, stream: str) -> tuple[str, ...]:
        return ()

    def to_json(self, scope: str, stream: str) -> dict[str, Any]:
        return {}


class _Lags(_NoLags):
    """Adds how far the subscribers of a stream are behind."""

    columns = ("lag", "subscriber")

    def __init__(self, client: StreamClient, streams: Sequence[tuple[str, str]]) -> None:
        from pravega_spark.commands.stream_lag import lags_of

        self._found = lags_of(client, streams)

    def cells(self, scope: str, stream: str) -> tuple[str, ...]:
        from pravega_spark.commands.stream_lag import lag_cells

        return lag_cells(self._found.get((scope, stream)))

    def to_json(self, scope: str, stream: str) -> dict[str, Any]:
        from pravega_spark.commands.stream_lag import lag_json

        found = self._found.get((scope, stream))
        return {} if found is None else lag_json(found)


def _measured(
    controller: str, client: StreamClient, streams: list[tuple[str, str]], events: bool, rates: bool
) -> list[StreamSize]:
    from pravega_spark.commands.stream_activity import stream_size, written_per_s_of_each

    measured = [size for one in streams if (size := stream_size(client, *one)) is not None]
    if events:
        measured = _with_events(controller, client, measured)
    if rates:
        per_s = written_per_s_of_each(client, [(one.scope, one.stream) for one in measured], time.sleep)
        measured = [replace(one, bytes_per_s=per_s.get((one.scope, one.stream))) for one in measured]
    return measured


def _names(client: StreamClient, scope: str) -> list[str]:
    try:
        return sorted(client.controller.list_streams(scope))
    except ScopeNotFound as error:
        raise ScopeNotFound(f"scope '{scope}' does not exist; see pravega-spark stream list") from error


def _with_events(controller: str, client: StreamClient, sizes: list[StreamSize]) -> list[StreamSize]:
    with connected_gateway(controller) as gateway:
        return [replace(one, events=_events_of(gateway, client, one)) for one in sizes]


def _events_of(gateway: StreamGateway, client: StreamClient, one: StreamSize) -> int | None:
    """None also for a stream that was deleted since it was measured."""
    from pravega_spark.commands.stream_activity import amount_between

    try:
        head, tail = client.head_cut(one.scope, one.stream), client.tail_cut(one.scope, one.stream)
        return amount_between(gateway, one.scope, one.stream, head, tail).events
    except NotFound:
        return None


def _print_sizes(sizes: list[StreamSize], lags: _NoLags, as_json: bool, *, events: bool, rates: bool) -> None:
    if as_json:
        print_json([{**size.to_json(), **lags.to_json(size.scope, size.stream)} for size in sizes])
        return
    total = sum(size.size_bytes for size in sizes)
    rows = [
        (
            *(size.scope, size.stream, size.segments, text_of_bytes(size.size_bytes), size.size_bytes),
            *([size.events] if events else []),
            *([size.bytes_per_s] if rates else []),
            *lags.cells(size.scope, size.stream),
        )
        for size in sizes
    ]
    title = f"{counted(len(sizes), 'stream')}, {text_of_bytes(total)}"
    more = (["events, about"] if events else []) + (["bytes/s"] if rates else [])
    print_table(title, ["scope", "stream", "segments", "size", "bytes", *more, *lags.columns], rows)
