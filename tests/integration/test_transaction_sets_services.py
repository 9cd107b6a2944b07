"""Commits transaction sets on running services whose controllers and stores are killed meanwhile."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.model.transaction_sets import CommitStatus, RegisterStatus, SetDecision, SetMember, SetState, Sink
from pravega_common.model.transactions import TransactionState
from pravega_common.runtime.failpoints import environment_of
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.transaction import Transaction
from tests.support.cluster import running_cluster
from tests.support.eventually import eventually_blocking

S, T, U = "scope", "events", "others"
SINK = Sink("query", f"{S}/*")
lease_ms = 90_000
events_per_task = 20
finish_time_max_s = 60.0
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with running_cluster(tmp_path_factory.mktemp("sets"), containers=2) as started:
        yield started


@pytest.fixture
def client(cluster: StandaloneProcess) -> Iterator[StreamClient]:
    with StreamClient(cluster.controller_uri) as made:
        made.controller.create_scope(S)
        yield made


def make_streams(client: StreamClient, *streams: str) -> None:
    for stream in streams:
        client.controller.create_stream(S, stream, StreamConfiguration(ScalingPolicy.fixed(2)))


def write(client: StreamClient, stream: str, label: str, partition: int) -> SetMember:
    """A task's transaction with its events, ``<label>/<partition>/<number>``, in order under one key."""
    begun = client.controller.create_transaction(S, stream, lease_ms)
    transaction = Transaction(client, S, stream, begun, lease_ms)
    texts = [f"{label}/{partition}/{number}".encode() for number in range(events_per_task)]
    for text in texts:
        transaction.write(text, str(partition))
    transaction.flush()
    size = sum(map(len, texts))
    return SetMember(S, stream, begun.transaction_id, partition, events_per_task, size)


def write_batch(client: StreamClient, label: str, run: str, batch: int, streams: tuple[str, ...]) -> list[SetMember]:
    def task(partition: int) -> SetMember:
        member = write(client, streams[partition % len(streams)], label, partition)
        answer = client.sets.register(SINK, run, batch, [member])
        assert answer.status is RegisterStatus.REGISTERED, answer
        return member

    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(task, range(4)))


def commit(client: StreamClient, run: str, batch: int, members: list[SetMember], sink: Sink = SINK) -> SetDecision:
    size = sum(member.bytes for member in members)
    return client.sets.commit(sink, run, batch, members, events_per_task * len(members), size)


def wait_finished(client: StreamClient, batch: int, sink: Sink = SINK) -> None:
    eventually_blocking(
        lambda: client.sets.get(sink, batch)[0].state is SetState.FINISHED, f"batch {batch}", finish_time_max_s
    )


def readable(client: StreamClient, stream: str) -> list[str]:
    return [event.data.decode() for event in read_events(client, S, stream)]


def expect_batches(client: StreamClient, streams: tuple[str, ...], labels: list[str]) -> None:
    """Every event once; those of one partition, which share a key, in the order of their batches."""
    for index, stream in enumerate(streams):
        events = readable(client, stream)
        assert Counter(Counter(events).values()) in (Counter({1: len(events)}), Counter())
        for partition in range(index, 4, len(streams)):
            of_partition = [event for event in events if event.split("/")[1] == str(partition)]
            expected = [f"{label}/{partition}/{number}" for label in labels for number in range(events_per_task)]
            assert of_partition == expected


def test_batches_through_kills_and_a_scale(cluster: StandaloneProcess, client: StreamClient) -> None:
    streams = (T, U)
    make_streams(client, *streams)
    labels = []
    for batch in range(6):
        label = f"b{batch}"
        members = write_batch(client, label, "r1", batch, streams)
        orphan = write(client, T, f"orphan{batch}", 1)
        assert client.sets.register(SINK, "r1", batch, [orphan]).status is RegisterStatus.REGISTERED
        if batch == 2:
            segments = client.controller.current_segments(S, T)
            client.controller.scale_stream(
                S, T, [item.segment_id for item in segments], [(0.0, 0.3), (0.3, 0.7), (0.7, 1.0)]
            )
        victim = {1: "controller", 3: "segment-store-0", 4: "controller"}.get(batch)
        killer = threading.Timer(0.005 * batch, cluster.kill, [victim]) if victim else None
        if killer is not None:
            killer.start()
        decision = commit(client, "r1", batch, members)
        assert decision.status in (CommitStatus.COMMITTED, CommitStatus.ALREADY_COMMITTED)
        assert {member.transaction_id for member in decision.recorded.members} == {
            member.transaction_id for member in members
        }
        if killer is not None:
            killer.join()
        labels.append(label)
        wait_finished(client, batch)
        expect_batches(client, streams, labels)
        assert client.controller.transaction_state(S, T, orphan.transaction_id) in (
            TransactionState.ABORTING,
            TransactionState.ABORTED,
        )


def test_a_restarted_query_and_its_zombie(client: StreamClient) -> None:
    make_streams(client, "restarted")
    sink = Sink("restarted", f"{S}/restarted")
    old = write(client, "restarted", "old", 0)
    new = write(client, "restarted", "new", 0)
    assert client.sets.register(sink, "r1", 0, [old]).status is RegisterStatus.REGISTERED
    assert client.sets.register(sink, "r2", 0, [new]).status is RegisterStatus.REGISTERED
    assert client.sets.register(sink, "r1", 0, [old]).status is RegisterStatus.REGISTERED
    assert commit(client, "r2", 0, [new], sink).status is CommitStatus.COMMITTED
    assert client.sets.register(sink, "r1", 0, [old]).status is RegisterStatus.FENCED
    assert commit(client, "r1", 0, [old], sink).status is CommitStatus.FENCED
    assert commit(client, "r2", 0, [new], sink).status is CommitStatus.ALREADY_COMMITTED
    differs = client.sets.commit(sink, "r3", 0, [], 1, 1)
    assert differs.status is CommitStatus.REPLAY_DIFFERS and "1 events" in differs.detail
    wait_finished(client, 0, sink)
    assert readable(client, "restarted") == [f"new/0/{number}" for number in range(events_per_task)]
    [record] = [record for record in client.sets.list_sinks() if record.sink == sink]
    assert (record.last_committed_batch_id, record.run_id) == (0, "r2")


def test_a_controller_that_dies_right_after_the_commit_point(tmp_path: Path) -> None:
    """No client comes back: the next controller makes the batch readable by itself."""
    dies = environment_of("transaction_set.commit_recorded=kill")
    with running_cluster(tmp_path, environment=dies, containers=2) as own, StreamClient(own.controller_uri) as client:
        client.controller.create_scope(S)
        make_streams(client, T, U)
        old_pid = own.pid("controller")
        members = write_batch(client, "b0", "r1", 0, (T, U))
        decision = commit(client, "r1", 0, members)
        # The client library repeats the call with the controller that was started again.
        assert decision.status is CommitStatus.ALREADY_COMMITTED
        own.wait_restarted("controller", old_pid)
        wait_finished(client, 0)
        expect_batches(client, (T, U), ["b0"])
