"""Defines the bodies and query parameters of Pravega's REST API (docs/controller-api.md 8) and checks them.

The field names are those of the API in snake case. A body with a field that the API does not have is refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from pravega_common.model.scaling import scaling_number_max
from pravega_common.model.scope_quota import quota_count_max, quota_rate_max, quota_rate_min

INT64_MAX = 2**63 - 1

Whole = Annotated[int, Field(ge=0, le=INT64_MAX)]
QuotaCount = Annotated[int, Field(ge=0, le=quota_count_max)]
QuotaRate = Annotated[int, Field(ge=quota_rate_min, le=quota_rate_max)]
PolicyNumber = Annotated[int, Field(ge=0, le=scaling_number_max)]
ScaleKind = Literal["FIXED_NUM_SEGMENTS", "BY_RATE_IN_KBYTES_PER_SEC", "BY_RATE_IN_EVENTS_PER_SEC"]
HealthStatus = Literal["NEW", "STARTING", "UP", "DOWN", "FAILED", "UNKNOWN"]


class RestBody(BaseModel):
    """A JSON object; what is None is left out of an answer and may be left out, or be null, in a request."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, strict=True, extra="forbid", frozen=True)


class RestQuery(BaseModel):
    """The parameters behind the question mark, which are texts."""

    model_config = ConfigDict(extra="ignore", frozen=True)


# ---- scopes ----------------------------------------------------------------------------------------------------------


class ScopeProperty(RestBody):
    scope_name: str


class ScopesList(RestBody):
    scopes: list[ScopeProperty]


class ScopeLimits(RestBody):
    """The quota of a scope; what is left out is not limited."""

    streams: QuotaCount | None = Field(None, description="Streams, those of reader groups included.")
    segments: QuotaCount | None = Field(None, description="Segments of the streams' current epochs, and of tables.")
    bytes_in: QuotaRate | None = Field(None, description="Bytes a second that are written, of all stores together.")
    bytes_out: QuotaRate | None = Field(None, description="Bytes a second that are read, of all stores together.")


class ScopeUsed(RestBody):
    streams: Whole
    segments: Whole


class ScopeQuotaProperty(RestBody):
    """The quota of a scope, and what is used of it; nothing is counted without a quota."""

    limits: ScopeLimits
    used: ScopeUsed | None = None


# ---- streams ---------------------------------------------------------------------------------------------------------


class ScalingConfig(RestBody):
    type: ScaleKind
    target_rate: PolicyNumber | None = Field(None, description="KB or events a second of a segment, 1 or more.")
    scale_factor: PolicyNumber | None = Field(None, description="The most parts of a hot segment; left out: 2.")
    min_segments: Annotated[int, Field(ge=1)]


class TimeBasedRetention(RestBody):
    days: Whole | None = None
    hours: Whole | None = None
    minutes: Whole | None = None


class RetentionConfig(RestBody):
    """A retention policy: the least that a stream keeps and, with subscribers, the most."""

    type: Literal["LIMITED_DAYS", "LIMITED_SIZE_MB"]
    value: Whole | None = Field(None, description="Days or MiB. 0 days: as timeBasedRetention says.")
    time_based_retention: TimeBasedRetention | None = None
    max_value: Whole | None = Field(None, description="Days or MiB. 0 days: as maxTimeBasedRetention says.")
    max_time_based_retention: TimeBasedRetention | None = None


class UpdateStreamRequest(RestBody):
    """The whole configuration: what is left out has its default afterwards."""

    scaling_policy: ScalingConfig
    retention_policy: RetentionConfig | None = None
    stream_tags: list[str] | None = None
    timestamp_aggregation_timeout: Whole | None = Field(None, description="Milliseconds.")
    rollover_size_bytes: Whole | None = Field(None, description="0: the store's default.")


class CreateStreamRequest(UpdateStreamRequest):
    stream_name: str


class StreamProperty(RestBody):
    scope_name: str
    stream_name: str
    scaling_policy: ScalingConfig
    retention_policy: RetentionConfig | None = None
    tags: list[str]
    timestamp_aggregation_timeout: Whole
    rollover_size_bytes: Whole


class StreamsList(RestBody):
    streams: list[StreamProperty]


class StreamsFilter(RestQuery):
    filter_type: Literal["showInternalStreams", "tag"] | None = Field(
        None, description="showInternalStreams: only those whose names start with '_'. tag: those that have the tag."
    )
    filter_value: str = Field("", description="The tag.")


class SealedState(RestBody):
    """Sealing is the one change of state that can be asked for."""

    stream_state: Literal["SEALED"]


# ---- scaling events --------------------------------------------------------------------------------------------------


class TimeSpan(RestQuery):
    since: Whole = Field(alias="from", description="Milliseconds since 1970.")
    until: Whole = Field(alias="to", description="Milliseconds since 1970, not before 'from'.")


class SegmentOfEpoch(RestBody):
    number: int
    epoch: int
    start: int = Field(description="When it was made, in milliseconds since 1970.")
    key_start: float
    key_end: float


class ScalingEvent(RestBody):
    """An epoch, with the splits and merges of segments since the stream was made."""

    timestamp: int
    segments: list[SegmentOfEpoch]
    splits: int
    merges: int


# ---- reader groups ---------------------------------------------------------------------------------------------------


class ReaderGroupName(RestBody):
    reader_group_name: str


class ReaderGroupsList(RestBody):
    reader_groups: list[ReaderGroupName] | None = Field(None, description="No list at all if there is no group.")


class ReaderGroupProperty(RestBody):
    scope_name: str
    reader_group_name: str
    stream_list: list[str]
    online_reader_ids: list[str] = Field(description="Empty: only the group's own stream knows them.")


# ---- health ----------------------------------------------------------------------------------------------------------


class HealthResult(RestBody):
    name: str
    status: HealthStatus
    readiness: bool
    liveness: bool
    details: dict[str, Any]
    children: dict[str, HealthResult]
