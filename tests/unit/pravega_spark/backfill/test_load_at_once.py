"""Tests that rows of a source that is no files are written once, whichever of the two records of it is left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from pravega_common.errors import Unavailable
from pravega_spark.backfill.definition import LoadJob
from pravega_spark.backfill.load import LoadResult, _load_at_once
from pravega_spark.ledger.job_claims import JobClaim, JobClaims, claims_segment
from pravega_spark.sink.commit_protocol import ReplayDiffers
from tests.support.fakes.plain_pravega import PlainPravega, Table

JOB = LoadJob("-", "jdbc", "s/t")


@dataclass
class Database:
    """A source of rows with the stream that they are written to; stands for Spark, its reader and its writer, too."""

    rows: int
    stream: int = 0
    sinks: dict[str, int] = field(default_factory=dict)
    reads: int = 0
    fails: bool = False
    chosen: str = ""

    def __getattr__(self, step: str) -> Any:
        """Takes the steps of reading and writing that change nothing here."""
        return self if step in ("read", "write") else lambda *given, **options: self

    def load(self) -> Database:
        self.reads += 1
        return self

    def option(self, name: str, value: str) -> Database:
        assert name == "job_id"
        self.chosen = value
        return self

    def save(self) -> None:
        """Commits as the sink does: nothing of a batch that it has on record."""
        if self.chosen not in self.sinks:
            self.sinks[self.chosen] = self.rows
            self.stream += self.rows
        elif self.sinks[self.chosen] != self.rows:
            raise ReplayDiffers("the batch was committed with other rows")
        if self.fails:
            raise Unavailable("the driver died")

    @property
    def get(self) -> dict[str, int]:
        """Observes the rows of a write."""
        return {"rows": self.rows}


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Database:
    made = Database(rows=7)
    monkeypatch.setattr("pyspark.sql.Observation", lambda name: made)
    for function in ("count", "lit"):
        monkeypatch.setattr(f"pyspark.sql.functions.{function}", lambda column: made)
    return made


@pytest.fixture
def claims() -> JobClaims:
    made = JobClaims(Table(PlainPravega(), claims_segment("s")), lambda: 5)
    made.put(JobClaim("j", "q", "s/t", 3, "/f", "h"), None)
    return made


def run(database: Any, claims: JobClaims) -> LoadResult:
    """A run of the job, which reads its claim when it begins."""
    claim = claims.read("s/t", "j")
    assert claim is not None
    return _load_at_once(database, claims, claim, JOB, {}, database.sinks.get(claim.query_id))


def die_behind_the_commit(database: Database, claims: JobClaims) -> None:
    """A run whose driver dies once its rows are committed, and before its claim says so."""
    database.fails = True
    with pytest.raises(Unavailable, match="the driver died"):
        run(database, claims)
    database.fails = False


def test_what_the_claim_has_as_written_is_not_written_when_the_sink_has_forgotten_it(
    database: Database, claims: JobClaims
) -> None:
    """The sink's record ends 90 days after its last use, the claim does not."""
    assert run(database, claims) == LoadResult(7, 1)
    database.sinks.clear()
    assert run(database, claims) == LoadResult(0, 0, rows_before=7)
    assert (database.stream, database.reads) == (7, 1), "the source is not even read again"


def test_a_run_that_died_between_its_commit_and_its_claim_is_told_by_the_sink(
    database: Database, claims: JobClaims
) -> None:
    die_behind_the_commit(database, claims)
    assert run(database, claims) == LoadResult(0, 0, rows_before=7)
    assert database.stream == 7
    assert run(database, claims) == LoadResult(0, 0, rows_before=7)


def test_a_run_that_died_after_its_commit_ends_though_the_source_has_grown(
    database: Database, claims: JobClaims
) -> None:
    """The sink would refuse a replay with other rows, in this run and in every one to come."""
    die_behind_the_commit(database, claims)
    database.rows = 9
    assert run(database, claims) == LoadResult(0, 0, rows_before=7)
    assert (database.stream, database.reads) == (7, 1)
    assert run(database, claims) == LoadResult(0, 0, rows_before=7)
