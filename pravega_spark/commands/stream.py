"""``stream create|scale|seal|delete``."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

import typer

from pravega_common.errors import AlreadyExists, InvalidArgument, StreamSealed
from pravega_common.model.scaling import ScaleType, ScalingPolicy, scaling_number_max
from pravega_common.model.segments import SegmentRange
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import (
    short_segment_name,
    validate_user_name,
    validate_user_scope_name,
)
from pravega_spark.commands.arguments import (
    CONTROLLER_DEFAULT,
    ControllerOption,
    JsonOption,
    StreamArgument,
    YesOption,
)
from pravega_spark.commands.connection import connected, created_with_scope, existing_stream
from pravega_spark.commands.cuts import segment_json
from pravega_spark.commands.output import confirm, print_json, print_table
from pravega_spark.commands.retention_policies import retention_policy
from pravega_spark.commands.scaling import ScalePlan, plan_merge, plan_segments, plan_split
from pravega_spark.commands.stream_names import parse_stream
from pravega_streams.client import StreamClient

_FACTOR_DEFAULT: Final = 2
RateOption = Annotated[int, typer.Option(min=0, max=scaling_number_max, help="Scale by this rate a segment.")]


def add_to(group: typer.Typer) -> None:
    for command in (create, scale, seal, delete):
        group.command()(command)


def create(
    stream: StreamArgument,
    segments: Annotated[
        int, typer.Option(min=1, max=scaling_number_max, help="Number of segments, or the least number when scaling.")
    ] = 1,
    events_per_second: RateOption = 0,
    kilobytes_per_second: RateOption = 0,
    factor: Annotated[
        int | None,
        typer.Option(min=2, max=scaling_number_max, help="Number of segments that a busy one is split into (2)."),
    ] = None,
    retain_bytes: Annotated[str, typer.Option(help="Keep at least this much, as in 10GiB.")] = "",
    retain_hours: Annotated[float, typer.Option(min=0, help="Keep at least this long.")] = 0,
    tag: Annotated[list[str] | None, typer.Option(help="A tag; may be given several times.")] = None,
    if_missing: Annotated[bool, typer.Option("--if-missing", help="No error if the stream exists.")] = False,
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Create a stream, and its scope if that is missing."""
    scope, name = stream.partition("/")[0], stream.partition("/")[2]
    parse_stream(stream)
    validate_user_scope_name(scope)
    validate_user_name(name)
    configuration = StreamConfiguration(
        _scaling(segments, events_per_second, kilobytes_per_second, factor),
        retention_policy(retain_bytes, retain_hours),
        tuple(tag or ()),
    )
    with connected(controller) as client:
        is_new = created_with_scope(client, scope, name, configuration)
        if not is_new and not if_missing:
            raise AlreadyExists(f"stream '{stream}' exists already; use --if-missing, or choose another name")
        if as_json:
            print_json({"stream": stream, "created": is_new})
        else:
            print(f"{stream} {'created' if is_new else 'exists already'}")


def _scaling(segments: int, events_per_second: int, kilobytes_per_second: int, factor: int | None) -> ScalingPolicy:
    if events_per_second and kilobytes_per_second:
        raise InvalidArgument(
            f"--events-per-second {events_per_second} and --kilobytes-per-second {kilobytes_per_second} exclude each "
            "other: a stream scales by one rate"
        )
    if events_per_second:
        return ScalingPolicy(ScaleType.EVENTS_PER_SECOND, events_per_second, factor or _FACTOR_DEFAULT, segments)
    if kilobytes_per_second:
        return ScalingPolicy(ScaleType.KILOBYTES_PER_SECOND, kilobytes_per_second, factor or _FACTOR_DEFAULT, segments)
    if factor is not None:
        raise InvalidArgument(
            f"--factor {factor} needs --events-per-second or --kilobytes-per-second: a stream without a rate keeps its "
            "number of segments"
        )
    return ScalingPolicy.fixed(segments)


def scale(
    stream: StreamArgument,
    split: Annotated[str, typer.Option(metavar="SEGMENT[:N]", help="Split a segment into N (2).")] = "",
    merge: Annotated[str, typer.Option(metavar="A,B[,…]", help="Merge neighbours into one.")] = "",
    segments: Annotated[
        int | None, typer.Option(help="Replace all by N of equal width; fewer than its policy says change that.")
    ] = None,
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Replace open segments by others over the same keys."""
    if [bool(split), bool(merge), segments is not None].count(True) != 1:
        raise InvalidArgument("give exactly one of --split SEGMENT[:N], --merge A,B and --segments N")
    with connected(controller) as client:
        scope, name = existing_stream(client, stream)
        current = client.controller.current_segments(scope, name)
        if not current:
            raise StreamSealed(f"stream '{stream}' is sealed and has no open segments to scale")
        plan = _plan(current, split, merge, segments)
        made = _scaled(client, scope, name, plan, len(current), segments)
    if as_json:
        new = [
            {**segment_json(scope, name, item.segment_id), "key_low": item.key_low, "key_high": item.key_high}
            for item in made
        ]
        print_json({"stream": stream, "sealed": list(plan.sealed), "created": new})
    else:
        print(f"sealed {', '.join(short_segment_name(item) for item in plan.sealed)}")
        print_table("new segments", ["segment", "keys from", "to"], [_row(item) for item in made])


def _scaled(
    client: StreamClient, scope: str, stream: str, plan: ScalePlan, count_before: int, segments: int | None
) -> list[SegmentRange]:
    """Controllers refuse a scale that leaves fewer segments than the stream's policy says, so that has to give way.

    An update of a fixed policy to another number of segments is such a scale by itself (docs/controller-api.md 3.4).
    """
    controller = client.controller
    configuration = controller.stream_configuration(scope, stream)
    scaling, count = configuration.scaling, count_before - len(plan.sealed) + len(plan.ranges)
    if count >= scaling.min_segments:
        return controller.scale_stream(scope, stream, plan.sealed, plan.ranges)
    if segments is None:
        raise InvalidArgument(
            f"{count} segments would be left of {scope}/{stream}, and its policy is to have at least "
            f"{scaling.min_segments}; use --segments {count}, which changes the policy too"
        )
    controller.update_stream(scope, stream, replace(configuration, scaling=replace(scaling, min_segments=count)))
    if scaling.scale_type is ScaleType.FIXED and count != count_before:
        return controller.current_segments(scope, stream)
    return controller.scale_stream(scope, stream, plan.sealed, plan.ranges)


def _plan(current: list[SegmentRange], split: str, merge: str, segments: int | None) -> ScalePlan:
    if segments is not None:
        return plan_segments(current, segments)
    return plan_split(current, split) if split else plan_merge(current, merge)


def _row(item: SegmentRange) -> tuple[str, float, float]:
    return short_segment_name(item.segment_id), item.key_low, item.key_high


def seal(
    stream: StreamArgument,
    yes: YesOption = False,
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Close a stream for good: it can be read, but takes no more events."""
    with connected(controller) as client:
        scope, name = existing_stream(client, stream)
        if not yes:
            confirm(f"Seal {stream} for good?", unasked=f"sealing '{stream}' for good")
        client.controller.seal_stream(scope, name)
    _done(stream, "sealed", as_json)


def delete(
    stream: StreamArgument,
    seal_first: Annotated[bool, typer.Option("--seal", help="Seal it first if it is open.")] = False,
    yes: YesOption = False,
    controller: ControllerOption = CONTROLLER_DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Delete a sealed stream with all its data."""
    with connected(controller) as client:
        scope, name = existing_stream(client, stream)
        if not yes:
            confirm(f"Delete {stream} with all its data?", unasked=f"deleting '{stream}'")
        if seal_first:
            client.controller.seal_stream(scope, name)
        elif client.controller.current_segments(scope, name):
            raise InvalidArgument(f"stream '{stream}' is open; seal it first, or delete it with --seal")
        client.controller.delete_stream(scope, name)
    _done(stream, "deleted", as_json)


def _done(stream: str, what: str, as_json: bool) -> None:
    if as_json:
        print_json({"stream": stream, what: True})
    else:
        print(f"{stream} {what}")
