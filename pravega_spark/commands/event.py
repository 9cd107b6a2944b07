"""``event write|read``: writes events from a pipe, reads events into a pipe."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated

import typer

from pravega_common.errors import InvalidArgument
from pravega_spark.commands.arguments import CONTROLLER_DEFAULT, START_HELP, ControllerOption, StreamArgument
from pravega_spark.commands.connection import connected, connected_gateway, existing_stream
from pravega_spark.commands.cuts import resolve_position
from pravega_spark.commands.event_formats import Format, Parser, printer_of
from pravega_spark.commands.event_pipe import EventPrinter, write_pipe
from pravega_spark.commands.output import counted, print_json, say
from pravega_spark.rows.columns import sink_columns
from pravega_spark.sink.direct_writer import DirectWriter

FormatOption = Annotated[Format, typer.Option("--format", help="How events are separated in the pipe.")]


def add_to(application: typer.Typer) -> None:
    group = typer.Typer(help="Write events from a pipe, read them into one.", no_args_is_help=True)
    group.command()(write)
    group.command()(read)
    application.add_typer(group, name="event")


def write(
    stream: StreamArgument,
    event_format: FormatOption = Format.LINES,
    key_field: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The member of each JSON event that is its routing key (a.b for nested). Every event must have it; "
            "null is no key.",
        ),
    ] = "",
    key: Annotated[str | None, typer.Option(help="One routing key for all events.")] = None,
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="At the end print a JSON document with the count.")] = False,
) -> None:
    """Write standard input into a stream. Events are durable when this ends, at least once each.

    Without a key, events of one input keep their order only in a stream of one segment.
    """
    if key_field and key is not None:
        raise InvalidArgument(f"--key-field {key_field} and --key {key} exclude each other: an event has one key")
    parser = Parser(event_format, key_field, key)
    show = _Counter()
    with connected(controller) as client, connected_gateway(controller) as gateway:
        scope, name = existing_stream(client, stream, for_writing=True)
        try:
            columns = sink_columns([("event", "binary"), ("routing_key", "string")])
            count = write_pipe(
                sys.stdin.fileno(),
                parser,
                lambda batches: DirectWriter(gateway, scope, name, columns).write(batches),
                show.update,
            )
        except KeyboardInterrupt:
            say(f"\nstopped: {show.text(parser.events_seen)}")
            raise typer.Exit(130) from None
        except InvalidArgument as error:
            raise InvalidArgument(f"{error} ({show.text(parser.events_seen)})") from error
    show.end()
    if as_json:
        print_json({"stream": stream, "events": count})
    else:
        say(f"{counted(count, 'event')} written to {stream}")


class _Counter:
    """A line on a terminal that counts the durable events."""

    def __init__(self) -> None:
        self.count = 0
        self._shows = sys.stderr.isatty()

    def update(self, count: int) -> None:
        self.count = count
        if self._shows:
            print(f"\r{counted(count, 'event')}", end="", file=sys.stderr, flush=True)

    def text(self, seen: int) -> str:
        are = "is" if self.count == 1 else "are"
        return f"{counted(self.count, 'event')} {are} durable, {seen - self.count:,} more may be"

    def end(self) -> None:
        if self._shows:
            print("\r", end="", file=sys.stderr)


def read(
    stream: StreamArgument,
    start: Annotated[
        str,
        typer.Option("--from", metavar="earliest|latest|TIME|CUT", help=START_HELP),
    ] = "earliest",
    end: Annotated[str, typer.Option("--to", metavar="latest|TIME|CUT", help="Where to end.")] = "latest",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what is written later.")] = False,
    events_max: Annotated[int, typer.Option("--max", min=0, metavar="N", help="Stop after N events; 0: no limit.")] = 0,
    event_format: FormatOption = Format.LINES,
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Read a stream to standard output, in order per routing key."""
    if follow and end != "latest":
        raise InvalidArgument(f"--follow has no end, so it does not go with --to {end[:40]}")
    if as_json and event_format is Format.LENGTH:
        raise InvalidArgument("--json and --format length exclude each other")
    printer = printer_of(Format.JSON if as_json else event_format)
    output = sys.stdout.buffer
    with connected(controller) as client, connected_gateway(controller) as gateway:
        scope, name = existing_stream(client, stream)
        reader = EventPrinter(gateway, scope, name, printer, _flushed if follow else output.write, events_max)
        try:
            first = resolve_position(client, controller, scope, name, start, as_end=False)
            if follow:
                reader.follow(first)
            else:
                reader.read(first, resolve_position(client, controller, scope, name, end, as_end=True))
            output.flush()
        except BrokenPipeError:
            # The reader of the pipe has enough. Python would complain again when it closes standard output.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            with contextlib.suppress(BrokenPipeError):
                output.flush()
            raise typer.Exit(130) from None


def _flushed(data: bytes | memoryview) -> None:
    """Writes and flushes: a follower wants every event at once."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
