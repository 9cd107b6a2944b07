"""Runs the scale drill with few events; ``scripts/drill scale`` runs it with ten million."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pravega_common.names import segment_epoch
from pravega_spark.standalone.process import StandaloneProcess
from tests.drills.scale.audit import audit
from tests.drills.scale.job import Job
from tests.drills.scale.plan import Plan

events = 200_000


@pytest.mark.slow
def test_each_event_once_and_in_order(spark: SparkSession, services: StandaloneProcess, tmp_path: Path) -> None:
    plan = Plan.of(events)
    told: list[str] = []
    job = Job(
        spark,
        services.controller_uri,
        f"scale-{uuid.uuid4().hex[:8]}",
        tmp_path,
        plan,
        lambda written, read, what: told.append(what),
    )
    outcome = job.run()
    found = audit(job.read_folder, plan)
    assert found.exact, found
    assert found.events == events
    assert [item["segments"] for item in outcome.scalings] == [change.segments for change in plan.changes]
    assert len({segment_epoch(item) for item in found.segments}) > len(plan.changes)
    assert outcome.live.rows and outcome.rest.batches > 1
