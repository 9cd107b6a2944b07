"""Policies that no stream can have are refused at once, with the value and the limit, and nothing is changed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import grpc
import pytest

from controller_service.api.grpc.messages import check_configuration
from controller_service.api.rest.bodies import UpdateStreamRequest
from controller_service.api.rest.policies import configuration_of, stream_property
from controller_service.service import Controller
from pravega_common.errors import InvalidArgument
from pravega_common.model.retention import NO_MAXIMUM, RetentionPolicy
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto_forms import configuration_to
from tests.support.controller_in_memory import ControllerParts

S, T = "scope", "stream"
FINE = StreamConfiguration(ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 5, 2, 1), RetentionPolicy.by_time(1_000))
IMPOSSIBLE = [
    (StreamConfiguration(ScalingPolicy.fixed(1), RetentionPolicy.by_time(-1)), "-1"),
    (StreamConfiguration(ScalingPolicy.fixed(1), RetentionPolicy.by_size(-7)), "-7"),
    (StreamConfiguration(ScalingPolicy.fixed(1), RetentionPolicy.by_size(7, -8)), "-8"),
    (StreamConfiguration(ScalingPolicy(ScaleType.EVENTS_PER_SECOND, -5, 2, 1)), "-5"),
    (StreamConfiguration(ScalingPolicy(ScaleType.KILOBYTES_PER_SECOND, 5, -1, 1)), "-1"),
]
NEVER_SCALING = [
    (ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 0, 2, 1), "target rate: 0"),
    (ScalingPolicy(ScaleType.KILOBYTES_PER_SECOND, 0, 2, 1), "target rate: 0"),
    (ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 5, 0, 1), "scale factor: 0"),
]


@pytest.fixture
async def serving(parts: ControllerParts) -> AsyncIterator[Controller]:
    controller = parts.controller(rest="127.0.0.1:0")
    await controller.start()
    await controller.store.create_scope(S)
    assert await controller.parts.workflows.create.create(S, T, FINE)
    yield controller
    await controller.stop()


@pytest.mark.parametrize(("configuration", "value"), IMPOSSIBLE)
async def test_create_and_update_refuse_it(serving: Controller, configuration: StreamConfiguration, value: str) -> None:
    await assert_refused(serving, configuration, value, "0..")


@pytest.mark.parametrize(("policy", "named"), NEVER_SCALING)
async def test_a_policy_by_a_rate_of_nothing_is_refused(serving: Controller, policy: ScalingPolicy, named: str) -> None:
    await assert_refused(serving, StreamConfiguration(policy), named, "1..2147483647")


async def assert_refused(serving: Controller, configuration: StreamConfiguration, *named: str) -> None:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{serving.grpc.port}") as channel:
        for method, stream in (("createStream", "new"), ("updateStream", T)):
            call: Any = channel.unary_unary(
                f"/{pb.DESCRIPTOR.services_by_name['ControllerService'].full_name}/{method}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=bytes,
            )
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(configuration_to(S, stream, configuration), timeout=5)
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            detail = refused.value.details() or ""
            assert all(part in detail for part in named)
    assert await serving.store.entry(S, "new") is None
    standing = await (await serving.store.open(S, T)).configuration()
    assert standing.configuration == FINE and standing.updates_promised == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"retentionPolicy": {"type": "LIMITED_DAYS", "value": -1}},
        {"retentionPolicy": {"type": "LIMITED_DAYS", "value": 1 << 62}},
        {"retentionPolicy": {"type": "LIMITED_DAYS"}},
        {"retentionPolicy": {"type": "LIMITED_DAYS", "value": 0, "timeBasedRetention": {"days": 0}}},
        {"retentionPolicy": {"type": "LIMITED_SIZE_MB"}},
        {"retentionPolicy": {"type": "LIMITED_SIZE_MB", "value": 5, "timeBasedRetention": {"days": 1}}},
        {"scalingPolicy": {"type": "BY_RATE_IN_EVENTS_PER_SEC", "minSegments": 1}},
        {"scalingPolicy": {"type": "BY_RATE_IN_KBYTES_PER_SEC", "targetRate": 0, "scaleFactor": 2, "minSegments": 1}},
        {"scalingPolicy": {"type": "BY_RATE_IN_EVENTS_PER_SEC", "targetRate": -5, "scaleFactor": 2, "minSegments": 1}},
        {"scalingPolicy": {"type": "BY_RATE_IN_EVENTS_PER_SEC", "targetRate": 5, "scaleFactor": -1, "minSegments": 1}},
        {"scalingPolicy": {"type": "BY_RATE_IN_EVENTS_PER_SEC", "targetRate": 5, "scaleFactor": 0, "minSegments": 1}},
        {"scalingPolicy": {"type": "BY_RATE_IN_EVENTS_PER_SEC", "targetRate": 5, "scaleFactor": 2, "minSegments": 0}},
        {
            "scalingPolicy": {
                "type": "BY_RATE_IN_EVENTS_PER_SEC",
                "targetRate": 1 << 40,
                "scaleFactor": 1,
                "minSegments": 1,
            }
        },
    ],
)
async def test_rest_refuses_it(serving: Controller, wrong: dict[str, Any]) -> None:
    body = {"streamName": "new", "scalingPolicy": {"type": "FIXED_NUM_SEGMENTS", "minSegments": 1}, **wrong}
    assert serving.rest is not None
    async with aiohttp.ClientSession(f"http://127.0.0.1:{serving.rest.port}") as session:
        async with session.post(f"/v1/scopes/{S}/streams", json=body) as answer:
            assert answer.status == 400
        async with session.put(f"/v1/scopes/{S}/streams/{T}", json=body) as answer:
            assert answer.status == 400


@pytest.mark.parametrize("policy", [policy for policy, _ in NEVER_SCALING])
async def test_a_stream_that_has_such_a_policy_keeps_it_and_takes_others(
    serving: Controller, policy: ScalingPolicy
) -> None:
    await serving.parts.workflows.create.create_within(S, "old", StreamConfiguration(policy))
    update = serving.parts.workflows.update.update
    tagged = StreamConfiguration(dataclasses.replace(policy, min_segments=2), tags=("tag",))
    await update("1", S, "old", tagged)
    assert (await (await serving.store.open(S, "old")).configuration()).configuration == tagged
    await update("2", S, "old", FINE)
    with pytest.raises(InvalidArgument):
        await update("3", S, "old", tagged)


def test_rest_splits_in_two_without_a_factor() -> None:
    scaling = {"type": "BY_RATE_IN_EVENTS_PER_SEC", "targetRate": 5, "minSegments": 1}
    body = UpdateStreamRequest.model_validate_json(json.dumps({"scalingPolicy": scaling}))
    assert configuration_of(body).scaling == FINE.scaling


def test_the_bounds_themselves_are_fine() -> None:
    check_configuration(FINE)
    check_configuration(StreamConfiguration(ScalingPolicy.fixed(1), RetentionPolicy.by_time(0, NO_MAXIMUM)))
    with pytest.raises(InvalidArgument, match=str(NO_MAXIMUM)):
        check_configuration(StreamConfiguration(ScalingPolicy.fixed(1), RetentionPolicy.by_size(NO_MAXIMUM + 1)))


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        (RetentionPolicy.by_size(500_000), 1 << 20),
        (RetentionPolicy.by_size(2 << 20), 2 << 20),
        (RetentionPolicy.by_size((2 << 20) + 1), 3 << 20),
        (RetentionPolicy.by_time(36_000), 60_000),
        (RetentionPolicy.by_time(86_400_000), 86_400_000),
        (RetentionPolicy.by_time(86_399_999), 86_400_000),
        (RetentionPolicy.by_time(90_061_000), 90_120_000),
    ],
)
def test_a_policy_that_is_read_and_written_back_keeps_no_less(policy: RetentionPolicy, kept: int) -> None:
    described = stream_property(S, T, StreamConfiguration(ScalingPolicy.fixed(1), policy))
    told = described.model_dump(mode="json", by_alias=True, include={"scaling_policy", "retention_policy"})
    body = UpdateStreamRequest.model_validate_json(json.dumps(told))
    assert configuration_of(body).retention == RetentionPolicy(policy.retention_type, kept)
