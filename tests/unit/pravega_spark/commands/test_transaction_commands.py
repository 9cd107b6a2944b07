"""Tests ``stream transaction``, and the doctor and the health page about it, on a controller of this process."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from controller_service.service import Controller
from controller_service.sets import transaction_set_service as set_service
from controller_service.sets.transaction_set import MemberRecord, Verdict
from controller_service.transactions import commit_transactions
from controller_service.transactions.records import transaction_segments
from pravega_common.errors import InvalidArgument
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.model.transactions import TransactionState
from pravega_common.runtime.failpoints import FailpointError, arm, disarm_all, raise_on_hit
from pravega_spark.application import make_application
from pravega_spark.commands.diagnosis import blocked_commits
from pravega_spark.commands.findings import Finding
from pravega_streams.controller.address import ControllerAddress
from tests.support.controller_in_memory import ControllerParts
from tests.support.eventually import eventually

lease_ms = 30_000


class Shop:
    """A controller with a stream ``s/t`` of two segments."""

    def __init__(self, parts: ControllerParts, controller: Controller) -> None:
        self.parts = parts
        self.controller = controller
        self.uri = f"tcp://127.0.0.1:{controller.grpc.port}"

    async def begin(self) -> uuid.UUID:
        identifier = (await self.controller.transactions.create("s", "t", lease_ms)).id
        for segment in transaction_segments("s", "t", identifier, [0, 1]):
            self.parts.access.append(segment, 10)
        return identifier

    async def lose(self, identifier: uuid.UUID, number: int) -> None:
        await self.parts.access.delete_segments(transaction_segments("s", "t", identifier, [number]))

    async def commit(self, identifier: uuid.UUID) -> None:
        assert await self.controller.transactions.commit("s", "t", identifier)

    async def blocked(self) -> None:
        await eventually(lambda: bool(self.controller.transactions.blocked), "the stream is blocked")

    async def ends(self, identifier: uuid.UUID, wanted: TransactionState) -> None:
        for _ in range(1_000):
            if await self.controller.transactions.transaction_state("s", "t", identifier) is wanted:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"the transaction does not become {wanted.value}")

    async def run(self, *words: str) -> Any:
        command = [*words, "--controller", self.uri]
        return await asyncio.to_thread(CliRunner().invoke, make_application(), command)

    async def json(self, *words: str) -> Any:
        result = await self.run(*words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    parts = ControllerParts()
    controller = parts.controller()
    await controller.start()
    await controller.store.create_scope("s")
    policy = StreamConfiguration(ScalingPolicy.fixed(2))
    await controller.parts.workflows.create.create("s", "t", policy)
    # The runner takes the process's standard output, to which the controller would log.
    with capture_logs():
        yield Shop(parts, controller)
        disarm_all()
        await controller.stop()


async def test_a_lost_transaction_is_seen_and_given_up(shop: Shop) -> None:
    lost, behind, open_one = [await shop.begin() for _ in range(3)]
    await shop.lose(lost, 1)
    await shop.commit(lost)
    await shop.commit(behind)
    await shop.blocked()
    listed = await shop.json("stream", "transaction", "list", "s/t")
    assert {item["transaction"]: item["state"] for item in listed["transactions"]} == {
        str(lost): "committing",
        str(behind): "committing",
        str(open_one): "open",
    }
    assert (listed["waiting"], listed["merging"]) == (2, 0)
    [obstacle] = listed["obstacles"]
    assert (obstacle["kind"], obstacle["transaction"]) == ("lost_transaction", str(lost))
    shown = await shop.run("stream", "transaction", "list", "s/t")
    assert f"pravega-spark stream transaction abort s/t {lost}" in shown.output

    asked = await shop.run("stream", "transaction", "abort", "s/t", str(lost))
    assert isinstance(asked.exception, InvalidArgument) and "--yes" in str(asked.exception)
    refused = await shop.run("stream", "transaction", "abort", "s/t", str(behind), "--yes")
    assert isinstance(refused.exception, InvalidArgument) and "is committing" in str(refused.exception)

    given_up = await shop.json("stream", "transaction", "abort", "s/t", str(lost), "--yes")
    assert given_up["given_up"]
    await shop.ends(behind, TransactionState.COMMITTED)
    await shop.ends(lost, TransactionState.ABORTED)
    aborted = await shop.json("stream", "transaction", "abort", "s/t", str(open_one))
    assert not aborted["given_up"]
    await shop.ends(open_one, TransactionState.ABORTED)
    assert (await shop.json("stream", "transaction", "list", "s/t"))["obstacles"] == []


async def test_a_loss_in_the_middle_of_a_commit_is_accepted(shop: Shop) -> None:
    half = await shop.begin()
    refused = await shop.run("stream", "transaction", "accept-loss", "s/t", "--yes")
    assert isinstance(refused.exception, InvalidArgument) and "nothing to accept" in str(refused.exception)
    hit = asyncio.Event()

    def lose_one() -> None:
        if not hit.is_set():
            hit.set()
            for segment in transaction_segments("s", "t", half, [0]):
                shop.parts.access.segments.pop(segment)
        raise_on_hit("lost")()

    arm(commit_transactions.ROUND_RECORDED, lose_one)
    await shop.commit(half)
    await hit.wait()
    disarm_all()
    await shop.blocked()
    assert [item["kind"] for item in (await shop.json("stream", "transaction", "list", "s/t"))["obstacles"]] == [
        "short_merge"
    ]
    accepted = await shop.json("stream", "transaction", "accept-loss", "s/t", "--yes")
    assert "10 are lost" in accepted["losses"][0]
    await shop.ends(half, TransactionState.COMMITTED)


async def commits(controller: str) -> Finding:
    return await asyncio.to_thread(blocked_commits, ControllerAddress.parse(controller))


async def test_a_record_that_a_committed_set_lost_is_seen_and_given_up(shop: Shop) -> None:
    sets, store = shop.controller.sets, shop.controller.transactions.records
    identifier = await shop.begin()
    arm(set_service.COMMIT_RECORDED, raise_on_hit("decided"))
    with pytest.raises(FailpointError):
        await sets.commit("q", "s/t", "run", 0, [MemberRecord("s/t", identifier.hex, 0, 1, 10)], 1, 10)
    await store.remove("s", "t", [identifier])
    [obstacle] = (await shop.json("stream", "transaction", "list", "s/t"))["obstacles"]
    assert (obstacle["kind"], obstacle["transaction"]) == ("lost_transaction", str(identifier))
    assert (await commits(shop.uri)).is_ok is False
    given_up = await shop.json("stream", "transaction", "abort", "s/t", str(identifier), "--yes")
    assert given_up["given_up"]
    await shop.ends(identifier, TransactionState.ABORTED)
    following = MemberRecord("s/t", (await shop.begin()).hex, 0, 1, 10)
    assert (await sets.commit("q", "s/t", "run", 1, [following], 1, 10)).verdict is Verdict.COMMITTED


async def test_health_and_doctor_name_the_stream(shop: Shop) -> None:
    lost = await shop.begin()
    assert (await commits(shop.uri)).is_ok
    await shop.lose(lost, 0)
    await shop.commit(lost)
    await shop.blocked()
    finding = await commits(shop.uri)
    assert finding.is_ok is False
    assert "s/t" in finding.detail and str(lost) in finding.remedy
    health = shop.controller.health.overall()
    assert health.readiness
    assert lost.hex in health.children["transactions"].details["blockedStreams"]["s/t"]


async def test_a_plain_pravega_has_no_such_calls() -> None:
    parts = ControllerParts()
    controller = parts.controller(extensions=False)
    await controller.start()
    try:
        assert (await commits(f"tcp://127.0.0.1:{controller.grpc.port}")).is_ok is None
    finally:
        await controller.stop()
