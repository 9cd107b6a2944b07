"""Serves what the window shows (docs/window.md), read only."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from controller_service.api.rest.bodies import RestQuery, Whole
from controller_service.api.rest.operation import RestOperation
from controller_service.window.answers import (
    ClusterView,
    EventPage,
    StreamDescription,
    StreamLag,
    StreamListPage,
    StreamLook,
    StreamPicture,
    StreamsLook,
    StreamUse,
)
from controller_service.window.cluster_view import cluster_view
from controller_service.window.events import Start, StartKind, cut_chars_max, read_events
from controller_service.window.looks import look_at, look_at_many, streams_per_look_max
from controller_service.window.parts import WindowParts, answer_time_max_s, within
from controller_service.window.stream_facts import facts, picture
from controller_service.window.stream_lag import lag_of
from controller_service.window.stream_list import Wanted, list_streams
from controller_service.window.stream_use import use_of
from pravega_common.errors import InvalidArgument
from pravega_common.names import split_scoped_name

look_period_s: Final = 2.0
"""Between two looks of a live answer."""


class StreamsQuery(RestQuery):
    search: str = Field("", max_length=512, description="A part of scope/stream, in any case.")
    scope: str = Field("", max_length=512, description="Streams of this scope alone.")
    internal: bool = Field(False, description="Also streams of the system, whose names begin with _.")
    token: str = Field("", max_length=4096, description="The next of the page before.")


def _number(text: object) -> object:
    """Parameters are texts."""
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 20 else text


Number = Annotated[Whole, BeforeValidator(_number)]


class EpochsQuery(RestQuery):
    first: Number | None = Field(None, description="The first epoch to show; the oldest on record without it.")
    last: Number | None = Field(None, description="The last one; the current one without it.")


class EventsQuery(RestQuery):
    segment: str = Field(max_length=40, description="Its number and the epoch that made it, with a dot between.")
    start: StartKind = Field(
        "tail", description="The oldest events, the newest ones, or those from an offset, a time or a stream cut on."
    )
    offset: Number = Field(0, description="For start=offset: where an event begins.")
    time_ms: Number = Field(
        0, alias="timeMs", description="For start=time: events of that time or later, and a few before them."
    )
    cut: str = Field("", max_length=cut_chars_max, description="For start=cut: the text of a stream cut.")


class LagQuery(RestQuery):
    subscriber: str = Field("", max_length=512, description="Only this one: scope/name of a query or reader group.")


class NamesQuery(RestQuery):
    names: str = Field(
        max_length=streams_per_look_max * 1024,
        description=f"Up to {streams_per_look_max} names scope/stream, with commas between.",
    )


class WindowOperations:
    def __init__(self, parts: WindowParts) -> None:
        self._parts = parts

    def operations(self) -> Sequence[RestOperation]:
        window, tag = "/v1/window", "window"
        stream, live = window + "/scopes/{scope}/streams/{stream}", window + "/live/scopes/{scope}/streams/{stream}"
        many = window + "/live/streams"
        return (
            RestOperation("GET", window + "/cluster", "Tells how the cluster is.", self.cluster, tag=tag),
            RestOperation("GET", window + "/streams", "Lists streams.", self.streams, (400, 404), tag=tag),
            RestOperation("GET", stream, "Tells what is on record about a stream.", self.facts, (404,), tag=tag),
            RestOperation("GET", stream + "/use", "Tells what writes and reads a stream.", self.use, (404,), tag=tag),
            RestOperation("GET", stream + "/lag", "Tells how far readers are behind.", self.lag, (404,), tag=tag),
            RestOperation("GET", stream + "/events", "Reads events of a segment.", self.events, (400, 404), tag=tag),
            RestOperation(
                "GET", stream + "/picture", "Draws a stream's keys over its epochs.", self.picture, (400, 404), tag=tag
            ),
            RestOperation("GET", live, "Follows a stream's lengths.", self.follow, (404, 429), tag=tag, is_live=True),
            RestOperation(
                "GET", many, "Follows the lengths of streams.", self.follow_many, (400, 429), tag=tag, is_live=True
            ),
        )

    async def cluster(self) -> ClusterView:
        return await cluster_view(self._parts)

    async def streams(self, query: StreamsQuery) -> StreamListPage:
        wanted = Wanted(query.search, query.scope, query.internal)
        return await within(answer_time_max_s, list_streams(self._parts, wanted, query.token))

    async def facts(self, scope: str, stream: str) -> StreamDescription:
        return await within(answer_time_max_s, facts(self._parts, scope, stream))

    async def use(self, scope: str, stream: str) -> StreamUse:
        return await within(answer_time_max_s, use_of(self._parts, scope, stream))

    async def lag(self, scope: str, stream: str, query: LagQuery) -> StreamLag:
        return await within(answer_time_max_s, lag_of(self._parts, scope, stream, query.subscriber))

    async def picture(self, scope: str, stream: str, query: EpochsQuery) -> StreamPicture:
        return await within(answer_time_max_s, picture(self._parts, scope, stream, query.first, query.last))

    async def events(self, scope: str, stream: str, query: EventsQuery) -> EventPage:
        start = Start(query.start, query.offset, query.time_ms, query.cut)
        work = read_events(self._parts, scope, stream, query.segment, start)
        return await within(answer_time_max_s, work)

    async def follow(self, scope: str, stream: str) -> AsyncGenerator[StreamLook, None]:
        while True:
            yield await within(answer_time_max_s, look_at(self._parts, scope, stream))
            await self._parts.clock.sleep(look_period_s)

    async def follow_many(self, query: NamesQuery) -> AsyncGenerator[StreamsLook, None]:
        names = _names(query.names)
        while True:
            yield await within(answer_time_max_s, look_at_many(self._parts, names))
            await self._parts.clock.sleep(look_period_s)


def _names(text: str) -> list[tuple[str, str]]:
    """``InvalidArgument`` for too many names, or one of another form."""
    names = [name for name in text.split(",") if name]
    if not 1 <= len(names) <= streams_per_look_max:
        raise InvalidArgument(f"{len(names)} names: 1 to {streams_per_look_max} are followed together")
    return [split_scoped_name(name) for name in names]
