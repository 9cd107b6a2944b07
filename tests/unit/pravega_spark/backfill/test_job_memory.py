"""Tests which folder may go on with a load job: killed runs, other machines, replaced streams and clusters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pravega_common.errors import DataCorruption, InvalidArgument, UnknownOutcome
from pravega_common.runtime.failpoints import FailpointError, arm, disarm_all, raise_on_hit
from pravega_spark.backfill.job_memory import (
    AFTER_CLAIM,
    AFTER_METADATA,
    AFTER_QUERY,
    CLAIMED,
    METADATA,
    QUERY,
    RECORD,
    JobMemory,
    JobMisplaced,
    Target,
)
from pravega_spark.ledger.job_claims import JobClaim, JobClaims, claims_segment, from_bytes, to_bytes
from tests.support.fakes.plain_pravega import PlainPravega, Table

GOLDEN = (
    b'{"version":1,"job_id":"j","query_id":"q","stream":"s/t","first_segment":3,"folder":"/f","host":"h","rows":7,'
    b'"last_batch":2,"is_exact":false,"touched_ms":5}'
)
CLAIM = JobClaim("j", "q", "s/t", 3, "/f", "h", 7, 2, is_exact=False, touched_ms=5)


@dataclass
class Folder:
    """A job's folder in memory."""

    path: str
    records: dict[str, dict[str, Any]] = field(default_factory=dict)

    def read(self, name: str) -> dict[str, Any] | None:
        return self.records.get(name)

    def create(self, name: str, content: dict[str, Any]) -> None:
        self.records[name] = content


@dataclass
class Cluster:
    """A cluster with one stream, which is named by the id of its first segment, and the queries of its sinks."""

    first_segment: int | None = 0
    next_segment: int = 0
    queries: set[str] = field(default_factory=set)
    store: PlainPravega = field(default_factory=PlainPravega)

    def create(self) -> None:
        self.first_segment = self.next_segment

    def replace_stream(self) -> None:
        self.next_segment += 4
        self.first_segment = None

    def claims(self) -> JobClaims:
        return JobClaims(Table(self.store, claims_segment("s")), lambda: 5)

    def run(self, folder: Folder, *, is_of_files: bool = True) -> JobClaim:
        """The begin of a run, as ``run_load`` has it."""
        target = Target("s/t", "tcp://c:1", lambda: self.first_segment, self.create, self.queries.__contains__)
        memory = JobMemory("j", folder, self.claims(), target, is_of_files=is_of_files)
        own = memory.query_id()
        folder.records.setdefault(RECORD, {})
        return memory.claimed(own)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_job_goes_on_in_its_folder(cluster: Cluster) -> None:
    folder = Folder("/a/j")
    first = cluster.run(folder)
    cluster.claims().note_rows(first, 10, 1, is_exact=True)
    again = cluster.run(folder)
    assert (again.query_id, again.rows, again.last_batch) == (first.query_id, 10, 1)
    # The query takes over the id that it finds in its checkpoint.
    assert folder.records[METADATA] == {"id": first.query_id}
    cluster.claims().note_rows(again, 5, 3, is_exact=False)
    third = cluster.run(folder)
    assert (third.rows, third.last_batch, third.is_exact) == (15, 3, False)


def test_another_folder_may_not_write_again(cluster: Cluster) -> None:
    first = cluster.run(Folder("/a/j"))
    cluster.claims().note_rows(first, 240_000, 9, is_exact=True)
    other = Folder("/b/j")
    for _ in range(2):
        with pytest.raises(JobMisplaced, match=r"loaded 240,000 rows into s/t .* /a/j of .* --checkpoint"):
            cluster.run(other)
    # Another stream's job of the same name is another job.
    assert cluster.claims().read("s/u", "j") is None


def test_what_is_no_files_needs_no_folder(cluster: Cluster) -> None:
    """The sink knows the one batch of such a job by the claim's id."""
    first = cluster.run(Folder("/a/j"), is_of_files=False)
    assert cluster.run(Folder("/b/j"), is_of_files=False).query_id == first.query_id


def test_writers_are_known_by_their_jobs(cluster: Cluster) -> None:
    assert cluster.claims().names() == {}
    claim = cluster.run(Folder("/a/j"))
    assert cluster.claims().names() == {claim.query_id: claim.job_id}


def test_a_folder_whose_checkpoint_is_gone(cluster: Cluster) -> None:
    folder = Folder("/a/j")
    cluster.run(folder)
    del folder.records[METADATA]
    with pytest.raises(JobMisplaced, match="checkpoint /a/j/checkpoint of job 'j' is not there any more"):
        cluster.run(folder)


def test_a_replaced_stream(cluster: Cluster) -> None:
    folder = Folder("/a/j")
    before = cluster.run(folder)
    cluster.replace_stream()
    with pytest.raises(JobMisplaced, match="s/t was deleted since job 'j' began"):
        cluster.run(folder)
    assert cluster.first_segment is None, "a job that is refused makes no stream"
    cluster.create()
    with pytest.raises(JobMisplaced, match=r"deleted and made again since job 'j' began .* delete /a/j"):
        cluster.run(folder)
    # The way out of the error: the old stream's claim does not bind the new one.
    after = cluster.run(Folder("/a/j"))
    assert after.query_id != before.query_id
    assert after.rows == 0


@pytest.mark.parametrize("is_of_files", [True, False])
def test_a_replaced_cluster(cluster: Cluster, is_of_files: bool) -> None:
    folder = Folder("/a/j")
    cluster.run(folder, is_of_files=is_of_files)
    with pytest.raises(JobMisplaced, match=r"tcp://c:1 has no record of job 'j', but /a/j remembers"):
        Cluster().run(folder, is_of_files=is_of_files)


@pytest.mark.parametrize("step", [AFTER_QUERY, AFTER_CLAIM, AFTER_METADATA])
def test_a_first_run_that_dies_goes_on(cluster: Cluster, step: str) -> None:
    folder = Folder("/a/j")
    arm(step, raise_on_hit(step))
    try:
        with pytest.raises(FailpointError):
            cluster.run(folder)
    finally:
        disarm_all()
    made = cluster.run(folder)
    assert made.query_id == folder.records[QUERY]["query_id"] == folder.records[METADATA]["id"]
    assert CLAIMED in folder.records


@pytest.mark.parametrize("is_of_files", [True, False])
@pytest.mark.parametrize("step", [AFTER_CLAIM, AFTER_METADATA])
def test_a_stream_that_was_replaced_after_a_first_run_died(cluster: Cluster, step: str, is_of_files: bool) -> None:
    """The claim is of the former stream: a run that took it for one of the new stream was the last one of its job."""
    folder = Folder("/a/j")
    arm(step, raise_on_hit(step))
    try:
        with pytest.raises(FailpointError):
            cluster.run(folder, is_of_files=is_of_files)
    finally:
        disarm_all()
    cluster.replace_stream()
    cluster.create()
    for _ in range(2):
        with pytest.raises(JobMisplaced, match=r"deleted and made again since job 'j' began .* delete /a/j"):
            cluster.run(folder, is_of_files=is_of_files)
    assert CLAIMED not in folder.records
    after = Folder("/a/j")
    claims = [cluster.run(after, is_of_files=is_of_files) for _ in range(2)]
    assert [claim.first_segment for claim in claims] == [cluster.first_segment] * 2


def test_of_two_machines_one_gets_the_id(cluster: Cluster) -> None:
    """The other claims between the question and the write of the first."""
    won: list[JobClaim] = []

    def watch(call: str, when: str) -> None:
        if (call, when) == ("put", "before") and not won:
            won.append(JobClaim("j", "other", "s/t", 0, "/b/j", "b"))
            cluster.claims().put(won[0], None)

    cluster.claims().read("s/t", "j")
    cluster.store.watch = watch
    with pytest.raises(JobMisplaced, match="known in /b/j of b alone"):
        cluster.run(Folder("/a/j"))


def test_a_claim_whose_answer_is_lost_is_found_again(cluster: Cluster) -> None:
    def watch(call: str, when: str) -> None:
        if (call, when) == ("put", "after"):
            cluster.store.watch = lambda call, when: None
            raise UnknownOutcome("no answer")

    cluster.store.watch = watch
    folder = Folder("/a/j")
    made = cluster.run(folder)
    assert cluster.claims().read("s/t", "j") == replace(made, touched_ms=5)
    assert cluster.run(folder).query_id == made.query_id


def test_a_job_of_0_1_0_is_adopted_where_the_sink_knows_it(cluster: Cluster) -> None:
    folder = Folder("/a/j", {RECORD: {}, METADATA: {"id": "old"}})
    with pytest.raises(JobMisplaced, match="no record of job 'j'"):
        cluster.run(folder)
    cluster.queries.add("old")
    assert cluster.run(folder).query_id == "old"
    assert cluster.run(Folder("/b/j", {RECORD: {}}), is_of_files=False).query_id == "old"
    # Of a source that is no files the sink was named after the job.
    assert Cluster().run(Folder("/b/j", {RECORD: {}}), is_of_files=False).query_id == "j"


@pytest.mark.parametrize("name", [QUERY, CLAIMED])
@pytest.mark.parametrize("version", [0, 2, None])
def test_a_memory_of_another_version_is_refused(cluster: Cluster, name: str, version: int | None) -> None:
    folder = Folder("/a/j")
    query_id = cluster.run(folder).query_id
    assert folder.records[QUERY] == folder.records[CLAIMED] == {"version": 1, "query_id": query_id}
    folder.records[name] = {"version": version, "query_id": query_id}
    with pytest.raises(JobMisplaced, match=f"{name} has version {version}, this program reads 1"):
        cluster.run(folder)


def test_the_bytes_of_a_claim() -> None:
    assert to_bytes(CLAIM) == GOLDEN
    assert from_bytes(GOLDEN) == CLAIM
    assert len(to_bytes(replace(CLAIM, folder="f" * 100_000))) < 4_000
    for damaged in (GOLDEN[:-1], GOLDEN.replace(b"rows", b"sows"), b"[]", b""):
        with pytest.raises(DataCorruption, match="claim of a job cannot be read"):
            from_bytes(damaged)
    with pytest.raises(InvalidArgument, match="version 2, this program reads 1"):
        from_bytes(GOLDEN.replace(b'"version":1', b'"version":2'))
