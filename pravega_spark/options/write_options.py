"""Defines the options of a batch or streaming write as typed fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pravega_spark.ledger.batch import UnresolvedPolicy
from pravega_spark.options.stream_options import StreamOptions

MismatchPolicy = Literal["fail", "skip"]
"""The values of option ``on_replay_mismatch``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(StreamOptions):
    """The checked options of one sink."""

    route_by: Literal["key", "segment"]
    exactly_once: bool
    transaction_timeout_ms: int
    read_after_write_consistency: bool
    transaction_status_poll_interval_ms: int
    on_replay_mismatch: MismatchPolicy
    on_unresolved_batch: UnresolvedPolicy
    max_streams_per_task: int
    event_time_column: str | None
    txn_app_id: str | None
    txn_version: int | None
    job_id: str | None
    sink_secret_file: str | None
    checkpointlocation: str | None
    queryname: str | None

    @property
    def destination(self) -> str:
        """The name of what a sink writes to: ``scope/stream``, or ``scope/*`` when its rows say the stream."""
        return "/".join(self.streams[0]) if self.streams else f"{self.scope}/*"
