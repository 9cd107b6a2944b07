"""Runs the job: a query that writes a stream while it is scaled, and one that reads it and is stopped in between."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.segments import SegmentRange
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_spark.gateway.service import ServiceGateway
from pravega_streams.errors import ControllerRefused
from tests.drills.scale.plan import Change, Plan, number_digits

STREAM = "scaled"
poll_s = 0.2
scale_attempts_max = 10
standstill_max_s = 180.0
"""Without a single event written or read the job has failed."""


class JobFailed(Exception):
    """Neither query moved for too long, or the job did not do what its plan says."""


class Run:
    """One run of a query: how many rows its batches had, by batch id."""

    def __init__(self, query: StreamingQuery) -> None:
        self.query = query
        self._rows: dict[int, int] = {}
        self._started_s = time.monotonic()
        self.seconds = 0.0

    def look(self) -> int:
        """Rows so far. Raises what the query raised."""
        error = self.query.exception()
        if error is not None:
            raise error
        for progress in self.query.recentProgress:
            if progress["numInputRows"]:
                self._rows[progress["batchId"]] = progress["numInputRows"]
        if self.query.isActive:
            self.seconds = time.monotonic() - self._started_s
        return self.rows

    @property
    def rows(self) -> int:
        return sum(self._rows.values())

    @property
    def batches(self) -> int:
        return len(self._rows)

    @property
    def batch_rows_max(self) -> int:
        return max(self._rows.values(), default=0)


@dataclass
class Outcome:
    """The queries' own figures; ``audit`` counts the true ones from the rows that were read."""

    written: Run
    live: Run
    rest: Run
    scalings: list[dict[str, Any]] = field(default_factory=list)


Tell = Callable[[int, int, str], None]
"""Called with the events written and read, and what has just happened ('' for nothing)."""


class Job:
    def __init__(
        self, spark: SparkSession, controller: str, scope: str, folder: Path, plan: Plan, tell: Tell, **sink: str
    ) -> None:
        """``folder`` gets the checkpoints, and in ``read`` what was read; ``sink``: more options of the writer."""
        self._spark = spark
        self._folder = folder
        self._plan = plan
        self._tell = tell
        self._sink = sink
        self._store = {"controller": controller, "scope": scope, "stream": STREAM}
        self._scope = scope
        self._gateway = ServiceGateway(controller)
        self._running: list[StreamingQuery] = []
        self._moved = (0, time.monotonic())

    @property
    def read_folder(self) -> Path:
        return self._folder / "read"

    def run(self) -> Outcome:
        """Returns when everything is written and read."""
        try:
            self._gateway.create_scope(self._scope)
            policy = ScalingPolicy.fixed(self._plan.segments)
            self._gateway.create_stream(self._scope, STREAM, StreamConfiguration(policy))
            return self._run()
        finally:
            for query in self._running:
                query.stop()
            self._gateway.close()

    def _run(self) -> Outcome:
        plan = self._plan
        live = Run(self._start_reading({"processingTime": "0 seconds"}))
        written = Run(self._start_writing())
        outcome = Outcome(written, live, live)
        changes = list(plan.changes)
        while written.look() < plan.batches * plan.events_per_batch:
            if changes and written.rows >= changes[0].at * plan.events:
                self._scale(outcome, changes.pop(0))
            if live.look() >= plan.live_until * plan.events and live.query.isActive:
                self._stop_live(outcome)
            self._wait(outcome, live.rows)
        written.query.stop()
        if changes:
            raise JobFailed(
                f"everything was written before the stream could be scaled to {changes[0].segments} segments"
            )
        if live.query.isActive:
            self._stop_live(outcome)
        self._told(outcome, "all is written; the reading query goes on, with AvailableNow")
        outcome.rest = Run(self._start_reading({"availableNow": True}, approx_bytes_per_trigger=plan.bytes_per_trigger))
        while outcome.rest.query.isActive:
            outcome.rest.look()
            self._wait(outcome, live.rows + outcome.rest.rows)
        outcome.rest.look()
        self._told(outcome, "all is read")
        return outcome

    def _start_writing(self) -> StreamingQuery:
        """Numbers in order, those of a key in one partition: so the sink keeps their order."""
        plan = self._plan
        partitions = self._spark.sparkContext.defaultParallelism
        if plan.keys % partitions:
            raise JobFailed(f"{plan.keys} keys would be spread over the {partitions} partitions of the input")
        numbers = (
            self._spark.readStream.format("rate-micro-batch")
            .options(rowsPerBatch=plan.events_per_batch, numPartitions=partitions)
            .load()
            .where(f"value < {plan.events}")
        )
        event = f"concat(lpad(cast(value as string), {number_digits}, '0'), '{plan.text_after_number}')"
        rows = numbers.selectExpr(f"{event} as event", f"concat('key-', value % {plan.keys}) as routing_key")
        writer = rows.writeStream.format("pravega").options(**self._store, **self._sink)
        return self._started(writer, "writing", {"processingTime": "0 seconds"})

    def _start_reading(self, trigger: dict[str, Any], **limits: int) -> StreamingQuery:
        plan = self._plan
        rows = (
            self._spark.readStream.format("pravega")
            .options(**self._store, start_stream_cut="earliest", max_events_per_trigger=plan.events_per_trigger)
            .options(**limits)
            .load()
            .selectExpr("cast(event as string) as event", "segment_id", "offset")
            .selectExpr(
                f"cast(substring(event, 1, {number_digits}) as bigint) as number",
                f"substring(event, {number_digits + 1}) = '{plan.text_after_number}' as is_whole",
                "segment_id",
                "offset",
            )
        )

        def keep(batch: DataFrame, batch_id: int) -> None:
            """A batch that is repeated replaces itself."""
            batch.write.mode("overwrite").parquet(str(self.read_folder / f"batch={batch_id:06}"))

        return self._started(rows.writeStream.foreachBatch(keep), "reading", trigger)

    def _started(self, writer: Any, name: str, trigger: dict[str, Any]) -> StreamingQuery:
        checkpoint = str(self._folder / f"{name}-checkpoint")
        query: StreamingQuery = writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()
        self._running.append(query)
        return query

    def _scale(self, outcome: Outcome, change: Change) -> None:
        """In the middle of whatever the queries do: transactions of the present batch are open."""
        ranges = [(index / change.segments, (index + 1) / change.segments) for index in range(change.segments)]
        started_s = time.monotonic()
        present, made = self._replaced(ranges)
        scaling = {
            "events_written": outcome.written.rows,
            "events_read": outcome.live.rows,
            "segments_before": len(present),
            "segments": len(made),
            "seconds": round(time.monotonic() - started_s, 3),
        }
        outcome.scalings.append(scaling)
        direction = "up" if len(made) > len(present) else "down"
        self._told(outcome, f"scaled {direction}, from {len(present)} to {len(made)} segments")

    def _replaced(self, ranges: list[tuple[float, float]]) -> tuple[list[int], list[SegmentRange]]:
        """The open segments, and those that came for them.

        Refused when a commit has replaced the segments meanwhile, by rolling a transaction that began before the last
        scaling; then the present ones are asked for again.
        """
        for attempt in range(scale_attempts_max):
            present = [item.segment_id for item in self._gateway.current_segments(self._scope, STREAM)]
            try:
                return present, self._gateway.scale_stream(self._scope, STREAM, present, ranges)
            except ControllerRefused:
                if attempt == scale_attempts_max - 1:
                    raise
            # A commit is replacing the segments, and nobody announces its end.
            time.sleep(poll_s)
        raise AssertionError

    def _stop_live(self, outcome: Outcome) -> None:
        outcome.live.query.stop()
        outcome.live.look()
        self._told(outcome, "the reading query is stopped")

    def _told(self, outcome: Outcome, what: str) -> None:
        rest = outcome.rest.rows if outcome.rest is not outcome.live else 0
        self._tell(min(outcome.written.rows, self._plan.events), outcome.live.rows + rest, what)

    def _wait(self, outcome: Outcome, read: int) -> None:
        self._told(outcome, "")
        moved, at_s = self._moved
        now_s = time.monotonic()
        if outcome.written.rows + read != moved:
            self._moved = (outcome.written.rows + read, now_s)
        elif now_s - at_s > standstill_max_s:
            raise JobFailed(f"nothing was written or read for {standstill_max_s:.0f} s")
        # Spark's progress has no event in Python that this process could await.
        time.sleep(poll_s)
