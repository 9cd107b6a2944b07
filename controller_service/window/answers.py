"""Defines the answers of the window's endpoints.

Field names are camel case in JSON. Times are milliseconds since 1970, sizes are bytes, key ranges are parts of [0, 1].
A field that is None is left out: it means "not known now", never zero, and ``unknown`` says why.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

SegmentFate = Literal["active", "sealed", "truncated"]


class WindowAnswer(BaseModel):
    """A JSON object of the window."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, extra="forbid", frozen=True)


# ---- the cluster ----------------------------------------------------------------------------------------------------


class FoundProblem(WindowAnswer):
    code: str = Field(description="Stable, for programs.")
    text: str
    remedy: str
    stops_work: bool


class ContainerFailure(WindowAnswer):
    container: int
    reason: str | None = None


class StoreLoadView(WindowAnswer):
    """The figures that a store sent with its lease of late; two answers make rates of the counters."""

    at_ms: int = Field(description="The store's clock; figures are some seconds old.")
    logged_bytes: int = Field(description="Counter since the start of the process: made durable in Tier 1.")
    read_bytes: int = Field(description="Counter: sent to readers.")
    tier2_put_bytes: int = Field(description="Counter: put to Tier 2.")
    unflushed_bytes: int = Field(description="Accepted and not in Tier 2.")
    unflushed_bytes_max: int = Field(description="Above it appends wait.")
    tier1_used_bytes: int = Field(description="Memory of the fullest Redis of Tier 1.")
    tier1_bytes_max: int = Field(description="Its limit; 0 for none.")
    cache_bytes: int
    cache_bytes_max: int
    connections: int


class StoreView(WindowAnswer):
    """A segment store that has a lease, with the containers that are assigned to it."""

    id: str
    address: str
    containers: list[int]
    failures: list[ContainerFailure] = Field(description="Containers that stopped there and are assigned again.")
    load: StoreLoadView | None = Field(None, description="Absent for a store of an older version.")


class ClusterView(WindowAnswer):
    at_ms: int
    version: str
    status: str
    problems: list[FoundProblem] = Field(
        description="Problems of this controller, and at most 100 of stores; those that stop the work come first."
    )
    services: dict[str, str] = Field(description="The states of this controller's parts.")
    assignment_version: int
    container_count: int
    ownerless: list[int] = Field(description="Containers without a live store.")
    stores: list[StoreView]
    stores_left_out: int
    controllers: list[str] | None = None
    unknown: str | None = None


# ---- the picture of a stream -----------------------------------------------------------------------------------------


class EpochColumn(WindowAnswer):
    """An epoch of the picture."""

    epoch: int
    created_ms: int
    segments: int
    splits: int = Field(description="Segments split since the stream was created.")
    merges: int
    is_duplicate: bool = Field(description="Made by a commit that began before a scaling.")


class SegmentRectangle(WindowAnswer):
    """A segment of the picture: its keys, and the epochs that have it."""

    id: str = Field(description="The segment's number and the epoch that made it, with a dot between.")
    first_column: int = Field(description="The index of the first epoch of the picture that has it.")
    last_column: int = Field(description="The index of the last one; both are included.")
    key_start: float
    key_end: float
    fate: SegmentFate
    created_ms: int
    ended_ms: int | None = Field(None, description="When it was sealed; of a folded picture, at most.")
    bytes: int | None = Field(None, description="Written to it, also what is truncated by now.")
    start_offset: int | None = Field(None, description="Where an active segment may be read from.")


class StreamPicture(WindowAnswer):
    """The key space of a stream over some of its epochs, the oldest first."""

    oldest_epoch: int
    current_epoch: int
    epochs: list[EpochColumn]
    segments: list[SegmentRectangle]
    fold: int = Field(description="Epochs between two columns; 1 for a picture that has all of its epochs.")
    left_out: int = Field(description="Epochs at the old end that were asked for and would make it too large.")
    unknown: str | None = None


# ---- live figures ----------------------------------------------------------------------------------------------------


class SegmentLength(WindowAnswer):
    id: str
    bytes: int


class StreamLook(WindowAnswer):
    """The lengths of a stream's open segments at one moment: two looks at the same epoch give a rate."""

    scope: str
    stream: str
    at_ms: int
    state: str
    epoch: int
    segment_count: int
    bytes: int | None = Field(None, description="Ever written to the open segments.")
    segments: list[SegmentLength] | None = None
    unknown: str | None = None


class StreamsLook(WindowAnswer):
    streams: list[StreamLook]


# ---- lists -----------------------------------------------------------------------------------------------------------


class StreamRow(WindowAnswer):
    scope: str
    stream: str
    created_ms: int
    tags: list[str]
    is_internal: bool
    state: str | None = None
    epoch: int | None = None
    segment_count: int | None = None
    scaling: str | None = None
    retention: str | None = None
    unknown: str | None = None


class StreamListPage(WindowAnswer):
    """A page of streams; ``next`` is the token of the following one, absent at the end."""

    streams: list[StreamRow]
    names_looked_at: int
    next: str | None = None


# ---- events ----------------------------------------------------------------------------------------------------------


class EventSeen(WindowAnswer):
    offset: int = Field(description="Where its header begins in the segment.")
    length: int = Field(description="Bytes of the event without its header.")
    data: str = Field(description="Its first bytes, in Base64.")
    shown: int = Field(description="How many of them.")


class EventPage(WindowAnswer):
    """Successive events of one segment; ``next`` is the offset behind the last one."""

    segment: str
    start_offset: int
    length: int
    is_sealed: bool
    events: list[EventSeen]
    next: int
    unknown: str | None = None


# ---- one stream ------------------------------------------------------------------------------------------------------


class CutPosition(WindowAnswer):
    id: str
    offset: int


class Cut(WindowAnswer):
    """A stream cut; of one with many segments the first positions."""

    segments: int
    positions: list[CutPosition]


class Subscriber(WindowAnswer):
    name: str = Field(description="scope/name of a reader group, or of a query's option subscriber.")
    updated_ms: int | None = Field(None, description="When it told its position; absent if it has not yet.")
    behind_bytes: int | None = Field(None, description="From its last position to the tail.")
    unknown: str | None = None


class WatermarkView(WindowAnswer):
    """The newest watermark; times are those that the writers noted, most often milliseconds since 1970."""

    lower_time: int
    upper_time: int
    written_ms: int


class StreamLag(WindowAnswer):
    """The subscribers of a stream, those first that told no position for the longest time, and its watermark."""

    scope: str
    stream: str
    at_ms: int
    subscribers: list[Subscriber]
    left_out: int = Field(description="Subscribers that this answer has no room for.")
    watermark: WatermarkView | None = Field(None, description="Absent without one: no writer noted a time.")
    problems: list[FoundProblem]
    unknown: list[str]


class CommitRound(WindowAnswer):
    """The transactions that are being made readable together."""

    transactions: int
    epoch: int
    is_rolling: bool
    started_ms: int


class TransactionCounts(WindowAnswer):
    open: int
    committing: int
    aborting: int
    oldest_open_ms: int | None = Field(None, description="When the oldest open one began.")
    is_partial: bool = Field(description="There are more; these are of the first ones.")
    waiting: int = Field(description="In the commit order.")
    round: CommitRound | None = None
    blocked: str | None = Field(None, description="Why commits stand still.")


class SinkActivity(WindowAnswer):
    query_id: str
    name: str | None = Field(
        None, description="The name of the query (`queryName`), as of its last batch; absent without one."
    )
    last_batch: int | None = None
    last_state: str | None = None
    last_events: int | None = None
    last_bytes: int | None = None
    last_transactions: int | None = Field(
        None, description="Transactions of the batch: each merges its segments into those of the stream."
    )
    last_started_ms: int | None = None
    pending_batch: int | None = None
    open_batches: int
    touched_ms: int


class Group(WindowAnswer):
    name: str
    state: str
    retention: str
    streams: int


class StreamDescription(WindowAnswer):
    """A stream's configuration and records. ``readers`` and ``sinks`` name what was left unlooked at."""

    scope: str
    stream: str
    at_ms: int
    state: str
    holder: str
    scaling: str
    retention: str
    tags: list[str]
    oldest_epoch: int
    current_epoch: int
    segment_count: int
    splits: int
    merges: int
    scaling_to_epoch: int | None = None
    head: Cut | None = Field(None, description="Absent for a stream that was never truncated.")
    tail: Cut | None = None
    size_bytes: int | None = Field(None, description="From the head to the tail.")
    retention_cuts: int
    last_retention_cut_ms: int | None = None
    unknown: list[str]


class StreamUse(WindowAnswer):
    """The transactions, sinks and reader groups of a stream."""

    transactions: TransactionCounts | None = None
    sinks: list[SinkActivity]
    groups: list[Group]
    unknown: list[str]
