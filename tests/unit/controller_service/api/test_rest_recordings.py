"""The recorded REST calls, made again: same statuses and same bodies."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest

from controller_service.api.rest.health import HealthRegistry
from controller_service.config import ControllerConfig
from controller_service.service import Controller
from pravega_common.errors import NotFound
from pravega_common.services.base import Service
from tests.support.controller_in_memory import ControllerParts, StaticHosts
from tests.support.repository import TRANSCRIPTS

recording = TRANSCRIPTS / "probe-rest.http.jsonl"

DIFFERENT = {
    # A body without a scaling policy: 500 with a page of HTML there.
    ("POST", "/v1/scopes/rs/streams", 500): 400,
}


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in ("timestamp", "start")}
    if isinstance(value, list):
        items = [without_times(item) for item in value]
        return sorted(items, key=str)
    return value


@pytest.fixture
async def rest_controller(parts: ControllerParts) -> Any:
    controller = parts.controller(rest="127.0.0.1:0")
    await controller.start()
    yield controller
    await controller.stop()


async def test_answers_are_those_of_a_real_controller(rest_controller: Controller) -> None:
    rest = rest_controller.rest
    assert rest is not None
    await rest_controller.store.create_scope("prk")
    different: list[tuple[object, ...]] = []
    async with aiohttp.ClientSession(f"http://127.0.0.1:{rest.port}") as session:
        for line in recording.read_text().splitlines():
            call = json.loads(line)
            expected = DIFFERENT.get((call["method"], call["path"], call["status"]), call["status"])
            async with session.request(call["method"], call["path"], json=call["request"]) as answer:
                body = await answer.text()
            if answer.status != expected:
                different.append((call["method"], call["path"], call["request"], call["status"], answer.status))
            elif call["content_type"] == "application/json" and "health" not in call["path"] and expected < 300:
                recorded = json.loads(call["response"])
                if without_times(json.loads(body)) != without_times(recorded):
                    different.append((call["method"], call["path"], body, call["response"]))
    assert not different, "\n".join(map(str, different))


async def test_health_names_every_part(rest_controller: Controller) -> None:
    rest = rest_controller.rest
    assert rest is not None
    async with aiohttp.ClientSession(f"http://127.0.0.1:{rest.port}") as session:
        async with session.get("/v1/health") as answer:
            health = await answer.json()
        for part in ("GRPCServer", "grpc-server"):
            async with session.get(f"/v1/health/status/{part}") as answer:
                assert await answer.json() == "UP"
        async with session.get("/metrics") as answer:
            assert "python_info" in await answer.text()
    assert health["status"] == "UP"
    assert health["readiness"] is True
    assert {"request-queue", "transactions", "rest-server"} <= health["children"].keys()
    assert {"clusterListener", "segmentContainerMonitor", "retentionService", "GRPCServer"} <= health["children"].keys()


async def test_event_processors_are_one_part() -> None:
    health = HealthRegistry()
    processors = [Service(f"event-processor-{name}") for name in ("commits", "requests")]
    for service in processors:
        health.add(service)
    health.all_added()
    await processors[0].start()
    assert health.overall().children.keys() == {"eventProcessor"}
    whole = health.result("eventProcessor")
    assert (whole.status, whole.readiness, whole.liveness) == ("STARTING", False, True)
    assert whole.children.keys() == {"event-processor-commits", "event-processor-requests"}
    assert health.result("event-processor-commits").readiness
    await processors[1].start()
    assert health.result("eventProcessor").status == "UP" and health.overall().readiness
    for service in processors:
        await service.stop()
    assert health.result("eventProcessor").status == "DOWN"


async def test_details_tell_which_part_is_not_up() -> None:
    health = HealthRegistry()
    retention, processor = Service("retention"), Service("event-processor-commits")
    health.add(retention, lambda: {"rounds": 3})
    health.add(processor)
    health.all_added()
    await retention.start()
    assert health.overall().details == {
        "parts": {"retentionService": "UP", "eventProcessor": "STARTING"},
        "problems": [],
    }
    assert health.result("retention").details == {"state": "running", "rounds": 3}
    assert health.result("eventProcessor").details == {"parts": {"event-processor-commits": "NEW"}}
    await processor.start()
    processor.fail(OSError("no more"))
    with pytest.raises(OSError, match="no more"):
        await processor.wait_stopped()
    assert health.overall().details["parts"]["eventProcessor"] == "DOWN"
    assert health.result("event-processor-commits").details == {"state": "failed", "failure": "OSError('no more')"}
    await retention.stop()


def stopping(health: dict[str, Any]) -> list[dict[str, Any]]:
    """The problems that stop the work; a busy machine may add that the loop is late."""
    return [problem for problem in health["details"]["problems"] if problem["stops_work"]]


async def test_a_controller_says_why_it_is_not_ready(rest_controller: Controller) -> None:
    """Every part is up, and still nothing can be done."""
    rest, hosts = rest_controller.rest, rest_controller.backends.hosts
    assert rest is not None and isinstance(hosts, StaticHosts)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{rest.port}") as session:

        async def asked(path: str) -> tuple[int, Any]:
            async with session.get(f"/v1/health{path}") as answer:
                return answer.status, await answer.json()

        assert await asked("/readiness") == (200, True)
        hosts.ownerless = (1, 3)
        assert await asked("/readiness") == (503, False)
        status, health = await asked("")
        assert (status, health["status"], health["readiness"], health["liveness"]) == (200, "DOWN", False, True)
        (problem,) = stopping(health)
        assert problem["code"] == "containers-without-store" and "1, 3" in problem["text"]
        hosts.ownerless = ()
        rest_controller.membership._lease_ends_s -= 100
        _, health = await asked("")
        assert [problem["code"] for problem in stopping(health)] == ["lease-lost"]
        rest_controller.loop_lag._recent.append(20.0)
        assert await asked("/liveness") == (503, False)


def test_a_part_that_is_not_there_has_no_health() -> None:
    with pytest.raises(NotFound, match="eventProcessor"):
        HealthRegistry().result("eventProcessor")


def test_rest_may_be_off() -> None:
    assert ControllerParts().controller().rest is None
    assert ControllerConfig.from_values({"controller": {"rest": ""}}).controller.rest == ""


async def test_the_systems_own_scope_stays(rest_controller: Controller) -> None:
    rest = rest_controller.rest
    assert rest is not None
    async with (
        aiohttp.ClientSession(f"http://127.0.0.1:{rest.port}") as session,
        session.delete("/v1/scopes/_system") as answer,
    ):
        assert answer.status == 412
