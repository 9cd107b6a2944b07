"""Sends a controller what cannot be: it answers at once with the status of the reference, and changes nothing.

Every call of the API has a row in ``tests/support/bad_requests.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from controller_service.segment_access.wire_access import WireSegmentAccess
from controller_service.service import Controller
from controller_service.store.in_memory import InMemoryVersionedStore
from controller_service.store.table_backend import TableVersionedStore
from pravega_common.proto import controller_pb2 as pb
from pravega_streams.table.table_client import TableClient
from tests.support.bad_requests import BAD_REQUESTS, GROUP_ID, LONG, BadRequest, S, configuration, group_configuration
from tests.support.controller_in_memory import ControllerParts
from tests.support.store_in_process import running_store

SERVICE = pb.DESCRIPTOR.services_by_name["ControllerService"]
answer_time_max_s = 5.0
"""Far below the minute for which a client repeats a call whose answer it lost, and far above what an answer takes."""


@dataclass
class Served:
    controller: Controller
    channel: grpc.aio.Channel

    async def call(self, method: str, request: Any) -> tuple[grpc.StatusCode, Any, str]:
        """The status, the answer if there is one, and the description if there is none."""
        stub: Any = self.channel.unary_unary(
            f"/{SERVICE.full_name}/{method}",
            request_serializer=lambda message: message if isinstance(message, bytes) else message.SerializeToString(),
            response_deserializer=getattr(pb, SERVICE.methods_by_name[method].output_type.name).FromString,
        )
        try:
            return grpc.StatusCode.OK, await stub(request, timeout=answer_time_max_s), ""
        except grpc.aio.AioRpcError as error:
            return error.code(), None, error.details() or ""

    async def must(self, method: str, request: Any) -> Any:
        status, answer, detail = await self.call(method, request)
        assert status is grpc.StatusCode.OK, (method, status, detail)
        return answer


@pytest.fixture(params=["in memory", "over a socket"])
async def parts(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ControllerParts]:
    if request.param == "in memory":
        yield ControllerParts()
        return
    async with running_store(tmp_path) as store:
        tables = TableVersionedStore(TableClient(store.client))
        yield ControllerParts(tables=tables, faulty_access=WireSegmentAccess(store.client))


@pytest.fixture
async def served(parts: ControllerParts) -> AsyncIterator[Served]:
    controller = parts.controller(rest="127.0.0.1:0")
    await controller.start()
    options = [("grpc.max_send_message_length", 64 * 1024 * 1024)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{controller.grpc.port}", options=options) as channel:
        made = Served(controller, channel)
        await make_world(made)
        yield made
    await controller.stop()


async def make_world(served: Served) -> None:
    await served.must("createScope", pb.ScopeInfo(scope=S))
    for stream, count in (("stream", 2), ("other", 1), ("sealed", 1)):
        scaling = pb.ScalingPolicy(minNumSegments=count)
        answer = await served.must("createStream", configuration(stream, scaling=scaling))
        assert answer.status == pb.CreateStreamStatus.SUCCESS
    updated = await served.must("updateStream", configuration("stream", scaling=pb.ScalingPolicy(minNumSegments=3)))
    assert updated.status == pb.UpdateStreamStatus.SUCCESS
    await served.must("sealStream", pb.StreamInfo(scope=S, stream="sealed"))
    group = await served.must("createReaderGroup", group_configuration(readerGroupName="group", retentionType=2))
    assert group.status == pb.CreateReaderGroupResponse.SUCCESS and group.config.readerGroupId == GROUP_ID


def difference(row: BadRequest, status: grpc.StatusCode, answer: Any) -> object:
    """None if the answer is the row's."""
    if isinstance(row.answer, grpc.StatusCode):
        return None if status is row.answer else status
    if status is not grpc.StatusCode.OK:
        return status
    name, _, value = row.answer.partition("=")
    if value:
        shown = getattr(answer, name)
        text = str(list(shown) if value == "[]" else shown)
        return None if text == value else text
    field = next(field for field in answer.DESCRIPTOR.fields if field.name in ("status", "result", "state"))
    given = field.enum_type.values_by_number[getattr(answer, field.name)].name
    return None if given == row.answer else given


def test_every_call_has_a_row() -> None:
    assert {row.method for row in BAD_REQUESTS} == {method.name for method in SERVICE.methods}


async def test_each_is_answered_at_once(served: Served) -> None:
    different = []
    for row in BAD_REQUESTS:
        status, answer, detail = await served.call(row.method, row.request)
        found = difference(row, status, answer)
        if found is not None:
            different.append(f"{row}: {found} instead of {row.answer} {detail[:200]}")
        if "Traceback" in detail or "\n" in detail:
            different.append(f"{row}: a trace: {detail[:200]}")
    assert not different, "\n".join(different)


async def test_nothing_is_changed() -> None:
    parts = ControllerParts()
    controller = parts.controller()
    await controller.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{controller.grpc.port}") as channel:
        served = Served(controller, channel)
        await make_world(served)
        before = contents(parts)
        changed = []
        for row in BAD_REQUESTS:
            await served.call(row.method, row.request)
            after = contents(parts)
            if after != before:
                changed.append((str(row), sorted(set(after.items()) ^ set(before.items()), key=str)))
                before = after
        assert not changed, "\n".join(map(str, changed))
    await controller.stop()


def contents(parts: ControllerParts) -> dict[tuple[str, str], Any]:
    """Every entry of every table, and every segment."""
    assert isinstance(parts.tables, InMemoryVersionedStore)
    entries: dict[tuple[str, str], Any] = {
        (table, key): found.value for table, held in parts.tables._tables.items() for key, found in held.items()
    }
    entries |= {("table", name): "" for name in parts.tables._tables}
    return entries | {("segment", name): repr(found) for name, found in parts.access.segments.items()}


async def test_bytes_that_are_no_message_are_refused(served: Served) -> None:
    for method in SERVICE.methods:
        status, _, _ = await served.call(method.name, b"\xff\xff\xff")
        assert status is grpc.StatusCode.INVALID_ARGUMENT, method.name
    await served.must("listScopes", pb.ScopesRequest())


async def test_others_are_answered_meanwhile(served: Served) -> None:
    """Bad requests hold no connection, slot or lock that good ones need."""
    bad = [served.call(row.method, row.request) for row in BAD_REQUESTS[::3]]
    good = [served.must("getCurrentSegments", pb.StreamInfo(scope=S, stream="stream")) for _ in range(50)]
    answers = (await asyncio.gather(*bad, *good))[len(bad) :]
    assert all(len(answer.segmentRanges) == 3 for answer in answers)


async def test_a_transaction_of_another_stream_is_unknown(served: Served) -> None:
    made = await served.must(
        "createTransaction", pb.CreateTxnRequest(streamInfo=pb.StreamInfo(scope=S, stream="stream"), lease=60_000)
    )
    elsewhere = pb.TxnRequest(streamInfo=pb.StreamInfo(scope=S, stream="other"), txnId=made.txnId)
    assert (await served.must("commitTransaction", elsewhere)).status == pb.TxnStatus.FAILURE
    assert (await served.must("abortTransaction", elsewhere)).status == pb.TxnStatus.FAILURE
    assert (await served.must("checkTransactionState", elsewhere)).state == pb.TxnState.UNKNOWN
    here = pb.TxnRequest(streamInfo=pb.StreamInfo(scope=S, stream="stream"), txnId=made.txnId)
    assert (await served.must("checkTransactionState", here)).state == pb.TxnState.OPEN


# ---- REST ------------------------------------------------------------------------------------------------------------

FIXED = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 1}
NEW = {"streamName": "new", "scalingPolicy": FIXED}
STREAMS = f"/v1/scopes/{S}/streams"
REST_ROWS: tuple[tuple[str, str, Any, int], ...] = (
    *(("POST", "/v1/scopes", {"scopeName": name}, 400) for name in ("", "_x", "a/b", "é", LONG)),
    ("POST", "/v1/scopes", {"scopeName": S}, 409),
    ("POST", "/v1/scopes", {}, 400),
    ("POST", "/v1/scopes", [], 400),
    ("POST", "/v1/scopes", {"scopeName": None}, 400),
    ("GET", "/v1/scopes/missing", None, 404),
    ("GET", f"/v1/scopes/{LONG}", None, 404),
    ("GET", f"/v1/scopes/{'n' * 7_000}", None, 404),
    ("GET", "/v1/scopes/a%00b%0A", None, 400),
    ("GET", "/v1/scopes/%FF", None, 404),
    ("DELETE", "/v1/scopes/missing", None, 404),
    ("DELETE", f"/v1/scopes/{S}", None, 412),
    ("DELETE", "/v1/scopes/_system", None, 412),
    ("GET", "/v1/scopes/missing/streams", None, 404),
    ("GET", f"{STREAMS}?filter_type=unknown", None, 400),
    ("GET", f"{STREAMS}?filter_type=tag&filter_value={LONG}", None, 200),
    *(("POST", STREAMS, {**NEW, "streamName": name}, 400) for name in ("", "_x", "a/b", "é", LONG)),
    ("POST", STREAMS, {**NEW, "streamName": "stream"}, 409),
    ("POST", "/v1/scopes/missing/streams", NEW, 404),
    ("POST", STREAMS, {"streamName": "new"}, 400),
    *(
        ("POST", STREAMS, {**NEW, "scalingPolicy": {**FIXED, **wrong}}, 400)
        for wrong in (
            {"minSegments": 0},
            {"minSegments": -1},
            {"minSegments": 4_501},
            {"minSegments": 2**31},
            {"minSegments": 10**30},
            {"minSegments": 1.5},
            {"targetRate": -1},
            {"type": "BY_HAND"},
        )
    ),
    *(
        ("POST", STREAMS, {**NEW, "retentionPolicy": wrong}, 400)
        for wrong in (
            {"type": "LIMITED_DAYS", "value": -1},
            {"type": "LIMITED_SIZE_MB", "value": 2**62},
            {"type": "LIMITED_DAYS", "timeBasedRetention": {"days": -1}},
            {"type": "LIMITED_DAYS", "timeBasedRetention": "1 day"},
            {"type": "FOR_EVER"},
        )
    ),
    ("POST", STREAMS, {**NEW, "streamTags": [str(number) for number in range(128)]}, 400),
    ("POST", STREAMS, {**NEW, "streamTags": [LONG]}, 400),
    ("POST", STREAMS, {**NEW, "rolloverSizeBytes": -1}, 400),
    ("GET", f"{STREAMS}/missing", None, 404),
    ("PUT", f"{STREAMS}/missing", {"scalingPolicy": FIXED}, 404),
    ("PUT", f"{STREAMS}/stream", {"scalingPolicy": {**FIXED, "minSegments": 0}}, 400),
    ("PUT", f"{STREAMS}/stream", {}, 400),
    ("PUT", f"{STREAMS}/sealed", {"scalingPolicy": FIXED}, 500),
    ("DELETE", f"{STREAMS}/missing", None, 404),
    ("DELETE", f"{STREAMS}/stream", None, 412),
    ("PUT", f"{STREAMS}/missing/state", {"streamState": "SEALED"}, 404),
    ("PUT", f"{STREAMS}/stream/state", {"streamState": "ACTIVE"}, 400),
    ("PUT", f"{STREAMS}/stream/state", {}, 400),
    ("GET", f"{STREAMS}/missing/scaling-events?from=0&to=1", None, 404),
    *(
        ("GET", f"{STREAMS}/stream/scaling-events{query}", None, 400)
        for query in ("", "?from=1", "?from=2&to=1", "?from=-1&to=1", "?from=x&to=y", f"?from=0&to={10**30}")
    ),
    ("GET", "/v1/scopes/missing/readergroups", None, 404),
    ("GET", f"/v1/scopes/{S}/readergroups/missing", None, 404),
    ("DELETE", f"/v1/scopes/{S}/readergroups/missing", None, 404),
    *(
        ("GET", f"/v1/health{aspect}/missing", None, 404)
        for aspect in ("", "/status", "/readiness", "/liveness", "/details")
    ),
    ("GET", "/v1/nothing", None, 404),
    ("PATCH", "/v1/scopes", None, 405),
)


async def test_rest_answers_at_once(served: Served) -> None:
    assert served.controller.rest is not None
    different = []
    timeout = aiohttp.ClientTimeout(total=answer_time_max_s)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{served.controller.rest.port}", timeout=timeout) as session:
        for method, path, body, wanted in REST_ROWS:
            async with session.request(method, path, json=body) as answer:
                text = await answer.text()
                if answer.status != wanted or "Traceback" in text:
                    different.append((method, path[:80], str(body)[:80], wanted, answer.status, answer.reason))
    assert not different, "\n".join(map(str, different))
