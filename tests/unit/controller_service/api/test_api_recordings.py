"""The recorded calls of real clients, made again: same status codes and same answers, as far as they are promised."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from pravega_common.proto import controller_pb2 as pb
from tests.support.controller_in_memory import ControllerParts
from tests.support.repository import TRANSCRIPTS

recordings = TRANSCRIPTS
service = pb.DESCRIPTOR.services_by_name["ControllerService"]

INVALID_ARGUMENT = 3

CHAINS: dict[str, dict[str, tuple[str, ...]]] = {
    "python client": {
        "py-admin": (),
        "py-writer": (),
        "py-txn": (),
        "py-rgread": (),
        "py-bytestream": (),
        "py-largeevent": (),
        "py-sealdel": (),
    },
    "java client": {
        # One page per tag chunk there, one page for all streams here.
        "java-admin": ("listStreamsInScopeForTag",),
        # Two reports at once make one of them fail there, with an error that clients repeat.
        "java-writer": ("noteTimestampFromWriter",),
        # Always empty there, although its documentation says otherwise.
        "java-txn": ("listCompletedTransactions",),
        "java-rg": (),
        "java-scale": (),
        "java-cuts": (),
        "java-kvt": (),
        "java-revisioned": (),
        "java-bytes": (),
        "java-large": (),
        "java-retention": (),
        # Of a transaction whose stream is deleted: unknown here.
        "java-sealdel": ("pingTransaction",),
    },
    "probe kvt": {
        "probe-grpc-kvt": (
            # Ends at 0.9999999999999999 there, which its own clients refuse.
            "getCurrentSegmentsKeyValueTable",
            # The real server damages a scope whose deletion it refuses.
            "createStream",
            "createKeyValueTable",
            "getCurrentSegments",
        )
    },
    "probe sealed": {"probe-grpc-sealed": ("getCurrentSegments", "getEpochSegments")},
}
"""Scenarios that were recorded one after the other on one server, each with the methods that differ on purpose."""


def calls_of(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (recordings / f"{name}.grpc.jsonl").read_text().splitlines()]


class Replay:
    """Makes recorded calls, with the ids that this controller gave in place of the recorded ones."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel
        self._ids: dict[Any, Any] = {}

    async def call(self, method: str, request: Any) -> tuple[int, Any]:
        output = getattr(pb, service.methods_by_name[method].output_type.name)
        stub = self._channel.unary_unary(
            f"/{service.full_name}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=output.FromString,
        )
        try:
            return 0, await stub(request, timeout=30)
        except grpc.aio.AioRpcError as error:
            return error.code().value[0], None

    def request_of(self, call: dict[str, Any]) -> Any:
        message = getattr(pb, service.methods_by_name[call["method"]].input_type.name).FromString(
            bytes.fromhex(call["request_hex"])
        )
        self._translate(message)
        return message

    def _translate(self, message: Any) -> None:
        for field in ("readerGroupId",):
            if hasattr(message, field):
                setattr(message, field, self._ids.get(getattr(message, field), getattr(message, field)))
        if hasattr(message, "continuationToken"):
            token = message.continuationToken.token
            if token in self._ids:
                message.continuationToken.token = self._ids[token]
        if hasattr(message, "txnId"):
            known = self._ids.get((message.txnId.highBits, message.txnId.lowBits))
            if known is not None:
                message.txnId.highBits, message.txnId.lowBits = known

    def learn(self, recorded: Any, given: Any) -> None:
        """Remember which of our ids stands for a recorded one, and make both answers comparable."""
        if hasattr(recorded, "continuationToken"):
            self._ids[recorded.continuationToken.token] = given.continuationToken.token
            recorded.ClearField("continuationToken")
            given.ClearField("continuationToken")
        if isinstance(recorded, pb.CreateTxnResponse):
            self._ids[(recorded.txnId.highBits, recorded.txnId.lowBits)] = (given.txnId.highBits, given.txnId.lowBits)
            # The upper half of the high bits is the epoch.
            assert recorded.txnId.highBits >> 32 == given.txnId.highBits >> 32
            assert given.txnId.lowBits >= 0
            recorded.ClearField("txnId")
            given.ClearField("txnId")
        if hasattr(recorded, "config") and hasattr(recorded.config, "readerGroupId"):
            self._ids[recorded.config.readerGroupId] = given.config.readerGroupId
            recorded.config.ClearField("readerGroupId")
            given.config.ClearField("readerGroupId")


def comparable(message: Any) -> Any:
    """Order within listings and heads is not promised, nor is when a commit is done."""
    if isinstance(message, pb.TxnState):
        return message.state in (pb.TxnState.COMMITTING, pb.TxnState.COMMITTED), message.state in (
            pb.TxnState.ABORTING,
            pb.TxnState.ABORTED,
        )
    for field in ("scopes", "streams", "segments", "kvtables"):
        values = getattr(message, field, None)
        if values is not None and not isinstance(message, pb.ScaleResponse):
            return sorted(map(str, values)), getattr(message, "status", 0)
    return message


@pytest.fixture
async def replay() -> AsyncIterator[Replay]:
    controller = ControllerParts().controller()
    await controller.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{controller.grpc.port}") as channel:
            yield Replay(channel)
    finally:
        await controller.stop()


@pytest.mark.parametrize("chain", CHAINS)
async def test_answers_are_those_of_a_real_controller(chain: str, replay: Replay) -> None:
    different = []
    for name, exempt in CHAINS[chain].items():
        for number, call in enumerate(calls_of(name)):
            difference = await replay_call(replay, call, exempt)
            if difference:
                different.append(f"{name}:{number + 1} {call['method']}: {difference}")
    assert not different, "\n".join(different)


async def replay_call(replay: Replay, call: dict[str, Any], exempt: tuple[str, ...]) -> str:
    request = replay.request_of(call)
    status, answer = await replay.call(call["method"], request)
    if call["method"] in exempt:
        return ""
    # What can never succeed is refused so that clients give up at once, where the real one lets them retry.
    as_good = status == INVALID_ARGUMENT and call["status"] in (2, 13)
    if status != call["status"] and not as_good:
        return f"status {status} instead of {call['status']} for {request}"
    if status == 0:
        recorded = type(answer).FromString(bytes.fromhex(call["response_hex"][0]))
        replay.learn(recorded, answer)
        if comparable(recorded) != comparable(answer):
            return f"{answer}instead of {recorded}for {request}"
    return ""
