"""``stream cut|truncate|retain``: show positions, and cut off the data before them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from pravega_common.byte_text import text_of_bytes
from pravega_common.errors import InvalidArgument, StreamSealed
from pravega_common.model.retention import RetentionPolicy
from pravega_common.model.scaling import ScaleType
from pravega_common.model.segments import SegmentOffsets
from pravega_common.names import short_segment_name, split_scoped_name
from pravega_common.runtime.system_time import system_time_ms
from pravega_common.stream_cut import StreamCut
from pravega_spark.commands.arguments import CONTROLLER_DEFAULT, ControllerOption, JsonOption, YesOption
from pravega_spark.commands.connection import connected, connected_gateway, existing_stream
from pravega_spark.commands.cuts import check_valid, cut_json, resolve_cut, resolve_position
from pravega_spark.commands.output import confirm, print_json, print_table
from pravega_spark.commands.quantities import ms_of_hours, parse_bytes, parse_time_ms, text_of_time
from pravega_spark.commands.retention_policies import policy_of
from pravega_spark.commands.stream_facts import retention_text, retention_type
from pravega_streams.client import StreamClient

if TYPE_CHECKING:
    # Arrow takes longer to import than most commands of this group take to answer.
    from pravega_spark.commands.trimming import Trimmer
    from pravega_spark.gateway.service import ServiceGateway


def add_to(group: typer.Typer) -> None:
    for command in (cut, truncate, retain):
        group.command()(command)


OptionalStream = Annotated[str, typer.Argument(metavar="[SCOPE/STREAM]", show_default=False)]
RequiredStream = Annotated[str, typer.Argument(metavar="SCOPE/STREAM", show_default=False)]


def cut(
    stream: OptionalStream = "",
    where: Annotated[
        str,
        typer.Argument(metavar="[head|tail|TIME|CUT]", help="The position; a CUT is checked.", show_default="tail"),
    ] = "",
    decode: Annotated[
        str, typer.Option(metavar="CUT", help="Only show the segments and offsets of a stream cut.")
    ] = "",
    query: Annotated[
        str,
        typer.Option(metavar="CHECKPOINT", help="The position of a streaming query that is finished: its checkpoint."),
    ] = "",
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Print a position of a stream as the text of a stream cut, or decode such a text."""
    if query and decode:
        raise InvalidArgument("give either --query CHECKPOINT or --decode CUT, not both")
    if where and (query or decode):
        raise InvalidArgument(f"'{where}' is the position in a stream; leave it out with --query and --decode")
    if query:
        _print_committed(query, stream, as_json)
        return
    if bool(decode) == bool(stream):
        raise InvalidArgument("give either SCOPE/STREAM, or --query CHECKPOINT, or --decode CUT")
    if decode:
        decoded = StreamCut.from_text(decode.strip())
        if decoded.is_unbounded:
            raise InvalidArgument("'UNBOUNDED' names no position")
        _show(decoded.scope, decoded.stream, dict(decoded.offsets), as_json)
        return
    with connected(controller) as client:
        scope, name = existing_stream(client, stream)
        found = resolve_position(client, controller, scope, name, where or "tail", as_end=False)
    if as_json:
        print_json(cut_json(scope, name, found))
    else:
        print(StreamCut(scope, name, found).as_text())


def _print_committed(checkpoint: str, stream: str, as_json: bool) -> None:
    """Print the cuts at which a query goes on, a line each; asks no cluster."""
    from pravega_spark.source.checkpoint import committed_position

    committed = committed_position(checkpoint)
    position = {stream: committed.of(stream)} if stream else committed.position
    named = [(*split_scoped_name(name), cut) for name, cut in position.items()]
    if as_json:
        print_json([cut_json(*item) for item in named] if not stream else cut_json(*named[0]))
    else:
        print("\n".join(StreamCut(*item).as_text() for item in named))


def _show(scope: str, stream: str, found: SegmentOffsets, as_json: bool) -> None:
    if as_json:
        print_json(cut_json(scope, stream, found))
        return
    rows = [(short_segment_name(item), str(item), found[item]) for item in sorted(found)]
    print_table(f"stream cut of {scope}/{stream}", ["segment", "id", "offset"], rows)


def truncate(
    stream: RequiredStream,
    at: Annotated[str, typer.Option(metavar="CUT|head|tail", help="Forget everything before this position.")] = "",
    query: Annotated[
        str,
        typer.Option(metavar="CHECKPOINT", help="Forget what a streaming query has finished: its checkpoint folder."),
    ] = "",
    before: Annotated[
        str,
        typer.Option(metavar="TIME", help="Forget what was written before a time (2026-01-31T12:00Z) or age (12h)."),
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show where.")] = False,
    yes: YesOption = False,
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Forget the beginning of a stream. What is cut off cannot be read again."""
    if [bool(at), bool(query), bool(before)].count(True) != 1:
        raise InvalidArgument("give exactly one of --at CUT, --query CHECKPOINT and --before TIME")
    with _opened(controller, stream) as opened:
        if at:
            wanted, why = resolve_cut(opened.client, opened.scope, opened.stream, at), f"at {at[:40]}"
        elif query:
            wanted, why = _committed(opened, query)
        else:
            time_ms = parse_time_ms(before, "--before", system_time_ms())
            wanted, why = opened.trimmer.since(time_ms), f"before {text_of_time(time_ms)}"
        _truncate(opened, wanted, why, _Manner(dry_run, yes, as_json))


def retain(
    stream: RequiredStream,
    keep_bytes: Annotated[str, typer.Option("--bytes", metavar="N", help="Keep at least this much, as in 10GiB.")] = "",
    hours: Annotated[float, typer.Option(min=0, metavar="N", help="Keep at least this long.")] = 0,
    keep_all: Annotated[bool, typer.Option("--all", help="Keep everything from now on.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Truncate now, and leave the configuration as it is.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --once: only show where.")] = False,
    yes: YesOption = False,
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Set how much of a stream is kept: as its retention policy, which the controller applies, or once and now."""
    if [bool(keep_bytes), hours != 0, keep_all].count(True) != 1:
        raise InvalidArgument("give exactly one of --bytes N, --hours N and --all")
    if once and keep_all:
        raise InvalidArgument("--all changes the configuration and cuts nothing off, so it does not go with --once")
    if dry_run and not once:
        raise InvalidArgument("--dry-run goes with --once")
    size_bytes = parse_bytes(keep_bytes, "--bytes") if keep_bytes else 0
    age_ms = ms_of_hours(hours, "--hours") if hours else 0
    manner = _Manner(dry_run, yes, as_json)
    with _opened(controller, stream) as opened:
        if not once:
            _set_policy(opened, policy_of(size_bytes, age_ms), as_json)
        elif size_bytes:
            wanted = opened.trimmer.keep_bytes(size_bytes)
            _truncate(opened, wanted, f"keeping {text_of_bytes(size_bytes)}", manner)
        else:
            time_ms = system_time_ms() - age_ms
            _truncate(opened, opened.trimmer.since(time_ms), f"before {text_of_time(time_ms)}", manner)


@dataclass(frozen=True, slots=True)
class _Manner:
    """Options of a truncation: what is asked, done and shown."""

    dry_run: bool
    yes: bool
    as_json: bool


@dataclass(frozen=True, slots=True)
class _Opened:
    """A stream that exists, with its clients."""

    client: StreamClient
    gateway: ServiceGateway
    scope: str
    stream: str

    @property
    def trimmer(self) -> Trimmer:
        from pravega_spark.commands.trimming import Trimmer

        return Trimmer(self.client, self.gateway, self.scope, self.stream)


@contextmanager
def _opened(controller: str, stream: str) -> Iterator[_Opened]:
    with connected(controller) as client, connected_gateway(controller) as gateway:
        scope, name = existing_stream(client, stream)
        yield _Opened(client, gateway, scope, name)


def _committed(opened: _Opened, checkpoint: str) -> tuple[SegmentOffsets, str]:
    """Returns the cut that a query has committed; the query goes on there when it starts again."""
    from pravega_spark.source.checkpoint import committed_position

    committed = committed_position(checkpoint)
    found = committed.of(f"{opened.scope}/{opened.stream}")
    check_valid(opened.client, opened.scope, opened.stream, found, f"the position of checkpoint {committed.checkpoint}")
    return found, f"after batch {committed.batch_id} of the query"


def _truncate(opened: _Opened, wanted: SegmentOffsets, why: str, manner: _Manner) -> None:
    client, scope, stream = opened.client, opened.scope, opened.stream
    size_bytes = _bytes_before(opened, wanted)
    counted = f"{text_of_bytes(size_bytes)} ({size_bytes:,} bytes) {why}"
    is_new = size_bytes > 0 or wanted.keys() != client.head_cut(scope, stream).keys()
    if is_new:
        _open_segments(opened)
    truncates = is_new and not manner.dry_run
    if truncates:
        if not manner.yes:
            confirm(f"{scope}/{stream}: forget {counted}?", unasked=f"truncating '{scope}/{stream}'")
        client.controller.truncate_stream(scope, stream, wanted)
    text = StreamCut(scope, stream, wanted).as_text()
    if manner.as_json:
        print_json({"stream": f"{scope}/{stream}", "cut": text, "bytes": size_bytes, "truncated": truncates})
        return
    print(f"{scope}/{stream}: {'would forget' if manner.dry_run else 'forgot'} {counted}")
    if manner.dry_run:
        print(text)


def _bytes_before(opened: _Opened, wanted: SegmentOffsets) -> int:
    """Counts the bytes from the head of the stream to a cut; ``InvalidArgument`` if it does not lie between head and
    tail."""
    from pravega_spark.source.stream_positions import StreamPositions

    head = opened.client.head_cut(opened.scope, opened.stream)
    _check_not_before(opened, head, wanted)
    _check_not_behind(opened, wanted)
    positions = StreamPositions(opened.gateway, opened.scope, opened.stream, fail_on_data_loss=False)
    return sum(span.length for span in positions.spans(head, wanted))


def _check_not_before(opened: _Opened, head: SegmentOffsets, wanted: SegmentOffsets) -> None:
    """Raises ``InvalidArgument`` for a cut that lies before the head in any of its segments.

    ``StreamPositions`` moves such a cut to the head, and a plain Pravega answers it with an internal error, as it does
    many things: so the cut is compared here.
    """
    left = set(opened.gateway.segments_between(opened.scope, opened.stream, head, {}))
    if any(item not in left or offset < head.get(item, offset) for item, offset in wanted.items()):
        raise InvalidArgument(
            f"the position lies before the head of {opened.scope}/{opened.stream}: that was cut off already"
        )


def _check_not_behind(opened: _Opened, wanted: SegmentOffsets) -> None:
    """Raises ``InvalidArgument`` for a cut with an offset that its segment does not have yet.

    Controllers do not compare offsets with lengths, and such a head hides what is written next, up to itself.
    """
    infos = opened.gateway.segment_infos(opened.scope, opened.stream, wanted)
    for item, info in sorted(infos.items()):
        if wanted[item] > info.length:
            raise InvalidArgument(
                f"the position is at offset {wanted[item]} of segment {short_segment_name(item)} of "
                f"{opened.scope}/{opened.stream}, which has {info.length} bytes: it was changed, or is of an earlier "
                "stream of that name"
            )


def _set_policy(opened: _Opened, policy: RetentionPolicy | None, as_json: bool) -> None:
    controller, scope, stream = opened.client.controller, opened.scope, opened.stream
    count = _open_segments(opened)
    configuration = replace(controller.stream_configuration(scope, stream), retention=policy)
    if configuration.scaling.scale_type is ScaleType.FIXED:
        # An update scales a fixed stream back to the number in its policy: keep what was scaled by hand.
        configuration = replace(configuration, scaling=replace(configuration.scaling, min_segments=count))
    controller.update_stream(scope, stream, configuration)
    if as_json:
        retention = {"type": retention_type(policy), "keep_min": policy.minimum if policy else 0}
        print_json({"stream": f"{scope}/{stream}", "retention": retention})
    else:
        print(f"{scope}/{stream}: {retention_text(policy)}; the controller applies this from time to time")


def _open_segments(opened: _Opened) -> int:
    """Counts them. ``StreamSealed`` where there is no such segment: controllers change nothing of such a stream."""
    count = len(opened.client.controller.current_segments(opened.scope, opened.stream))
    if not count:
        stream = f"{opened.scope}/{opened.stream}"
        raise StreamSealed(
            f"stream '{stream}' is sealed: its policy stays as it is, and nothing of it is cut off; once nobody needs "
            f"it: pravega-spark stream delete {stream}"
        )
    return count
