"""What the commands share: where the controller is, names of streams, and the two forms of output."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Table

from pravega_common.names import split_scoped_name, validate_scope_name, validate_stream_name
from pravega_spark.commands.reachability import check_listens
from pravega_streams.client import StreamClient
from pravega_streams.errors import StreamNotFound

CONTROLLER_DEFAULT: Final = "tcp://localhost:9090"
plain_width_chars: Final = 160
"""Width of tables that do not go to a terminal."""

ControllerOption = Annotated[
    str, typer.Option("--controller", envvar="PRAVEGA_CONTROLLER", help="The controller, tcp://host:port[,host:port…].")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
StreamArgument = Annotated[str, typer.Argument(metavar="SCOPE/STREAM", help="The stream.", show_default=False)]


@contextmanager
def connected(controller: str) -> Iterator[StreamClient]:
    """The clients of a cluster; ``Unavailable`` at once if nobody listens at any of the addresses."""
    check_listens(controller)
    with StreamClient(controller) as client:
        yield client


def parse_stream(text: str) -> tuple[str, str]:
    """Scope and stream of ``scope/stream``; ``InvalidArgument`` names what is wrong."""
    scope, stream = split_scoped_name(text)
    return validate_scope_name(scope), validate_stream_name(stream)


def existing_stream(client: StreamClient, text: str) -> tuple[str, str]:
    """Like ``parse_stream``, for a stream that must be there: ``StreamNotFound`` says how to make it."""
    scope, stream = parse_stream(text)
    if not client.controller.stream_exists(scope, stream):
        raise StreamNotFound(f"stream '{text}' does not exist; create it with: pravega-spark stream create {text}")
    return scope, stream


# ---- output ----------------------------------------------------------------------------------------------------------


def console() -> Console:
    """Of standard output; wide enough for whole rows where it is no terminal."""
    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=plain_width_chars)


def say(text: str) -> None:
    """A line for people, beside what goes through the pipe."""
    print(text, file=sys.stderr)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, sort_keys=False))


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Numbers are set to the right, with separators."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for index, column in enumerate(columns):
        is_number = bool(rows) and all(isinstance(row[index], int | float) for row in rows)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(value) for value in row))
    console().print(table)


def print_facts(title: str, facts: Sequence[tuple[str, object]]) -> None:
    """Names and values, one a line."""
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, cell(value))
    console().print(table)


def cell(value: object) -> str:
    """As a table shows it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def text_of_bytes(count: int) -> str:
    """``1.5 GiB``; the exact number below a KiB."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
