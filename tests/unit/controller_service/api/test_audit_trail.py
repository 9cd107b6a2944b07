"""Administrative calls over gRPC and REST are in the audit log with caller, subject and outcome; others are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from controller_service.api.grpc.audit_trail import AUDITED, subject_of
from controller_service.api.grpc.method_access import METHODS
from pravega_common.proto import commit_operations_pb2 as operations
from pravega_common.proto import controller_pb2 as pb
from tests.support.grpc_requests import request_of
from tests.unit.controller_service.api.test_access import CALLS, SERVICES, Closed, closed

__all__ = ["closed"]

Records = Callable[[], list[tuple[str, str, str, str]]]


@pytest.fixture
def records(closed: Closed, tmp_path: Path) -> Records:
    """Who, call, subject and outcome of the calls since the fixture was made, refused ones behind the others."""
    files = [tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.refused"]
    made = [file.read_text().count("\n") for file in files]

    def read() -> list[tuple[str, str, str, str]]:
        lines = [file.read_text().splitlines()[start:] for file, start in zip(files, made, strict=True)]
        found = [json.loads(line) for line in chain(*lines)]
        assert all("127.0.0.1" in record["peer"] for record in found)
        return [(record["who"], record["call"], record["on"], record["outcome"]) for record in found]

    return read


async def test_calls_are_recorded_with_what_came_of_them(closed: Closed, records: Records) -> None:
    stream = pb.StreamInfo(scope="s", stream="t")
    await closed.ask("admin", "createScope", pb.ScopeInfo(scope="s"))
    await closed.ask("writer", "sealStream", stream)
    await closed.ask("reader", "deleteStream", stream)
    await closed.ask(None, "deleteStream", stream)
    await closed.ask("writer", "truncateStream", pb.StreamCut(streamInfo=pb.StreamInfo(scope="s", stream="none")))
    service = SERVICES[-1]
    give_up = operations.GiveUpTransactionRequest(scope="s", stream="t", transaction_high=1, transaction_low=-1)
    await closed.call("writer", service, service.methods_by_name["GiveUpTransaction"], give_up)
    assert records() == [
        ("admin", "createScope", "s", "SCOPE_EXISTS"),
        ("writer", "sealStream", "s/t", "SUCCESS"),
        # In the file of refused calls:
        ("reader", "deleteStream", "s/t", "PERMISSION_DENIED"),
        ("-", "deleteStream", "s/t", "UNAUTHENTICATED"),
        ("writer", "truncateStream", "s/none", "PERMISSION_DENIED"),
        ("writer", "GiveUpTransaction", "s/t/00000000-0000-0001-ffff-ffffffffffff", "PERMISSION_DENIED"),
    ]


async def test_rest_requests_that_change_something_are_recorded(closed: Closed, records: Records) -> None:
    assert (await closed.get("admin", "/v1/scopes", "POST", json={"scopeName": "new"}))[0] == 201
    assert (await closed.get("reader", "/v1/scopes/s/streams/t", "DELETE"))[0] == 403
    assert (await closed.get(None, "/v1/scopes/s", "DELETE"))[0] == 401
    assert (await closed.get("admin", "/v1/scopes", "POST", data=b"{"))[0] == 415
    assert (await closed.get("admin", "/v1/scopes/s/streams"))[0] == 200
    assert records() == [
        ("admin", "POST /v1/scopes", "new", "201"),
        # In the file of refused calls:
        ("reader", "DELETE /v1/scopes/{scope}/streams/{stream}", "s/t", "403"),
        ("-", "DELETE /v1/scopes/{scope}", "s", "401"),
        ("admin", "POST /v1/scopes", "", "415"),
    ]


async def test_reads_and_the_work_of_writers_are_not_recorded(closed: Closed, records: Records) -> None:
    for service, method in CALLS:
        if method.name not in AUDITED:
            await closed.call("nothing", service, method, request_of(method))
    assert records() == []


def test_every_audited_call_exists_and_has_a_subject() -> None:
    names = {method.rpartition("/")[2] for method in METHODS}
    assert names >= AUDITED
    for _, method in CALLS:
        if method.name in AUDITED:
            assert subject_of(_filled(request_of(method))).startswith("s"), method.name


def _filled(request: Any) -> Any:
    """The request with "s" in each of its names."""
    for field in request.DESCRIPTOR.fields:
        if field.name in ("scope", "stream", "kvtName", "readerGroup", "readerGroupName") and not field.message_type:
            setattr(request, field.name, "s")
        elif field.name == "sink":
            request.sink.destination = "s/t"
        elif field.name in ("streamInfo", "stream"):
            _filled(getattr(request, field.name))
    return request
