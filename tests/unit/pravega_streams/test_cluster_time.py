"""The client asks the controller for the time of the cluster, which a plain Pravega does not tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from pravega_common.errors import UnknownOutcome
from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto.controller_pb2_grpc import ControllerServiceServicer
from pravega_streams.controller.client import ControllerClient
from pravega_streams.errors import ControllerRefused
from tests.unit.pravega_streams.test_controller_client import serving


class Telling(ControllerServiceServicer):
    """Answers with this metadata, after the first ``failures`` calls."""

    def __init__(self, *metadata: tuple[str, str], failures: int = 0) -> None:
        self.metadata = metadata
        self.failures = failures

    def getControllerServerList(self, request: pb.ServerRequest, context: grpc.ServicerContext) -> pb.ServerResponse:
        self.failures -= 1
        if self.failures >= 0:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
        context.set_trailing_metadata(self.metadata)
        return pb.ServerResponse(nodeURI=[pb.NodeUri(endpoint="one", port=9090)])


class Refusing(ControllerServiceServicer):
    def __init__(self, details: str) -> None:
        self.details = details
        self.calls = 0

    def getControllerServerList(self, request: pb.ServerRequest, context: grpc.ServicerContext) -> pb.ServerResponse:
        self.calls += 1
        context.abort(grpc.StatusCode.UNKNOWN, self.details)


@contextmanager
def client_of(controller: ControllerServiceServicer, **transport: Any) -> Iterator[ControllerClient]:
    with serving(controller) as port:
        client = ControllerClient(f"tcp://127.0.0.1:{port}", sleep=lambda seconds: None, **transport)
        yield client
        client.close()


def test_the_time_is_in_the_metadata_behind_the_answer() -> None:
    with client_of(Telling(("other", "1"), ("pravega-time-ms", "1700000000123"), failures=2)) as client:
        assert client.time_ms() == 1_700_000_000_123


@pytest.mark.parametrize("metadata", [(), (("other", "1"),)])
def test_a_server_that_tells_no_time(metadata: tuple[tuple[str, str], ...]) -> None:
    with client_of(Telling(*metadata)) as client:
        assert client.time_ms() is None


def test_a_server_without_the_call() -> None:
    with client_of(ControllerServiceServicer()) as client:
        assert client.time_ms() is None


def test_a_stand_alone_pravega_is_asked_once() -> None:
    """It refuses the call always, with a status that is otherwise repeated (recording ``java-discovery``)."""
    controller = Refusing("Controller cluster not initialized")
    with client_of(controller) as client:
        assert client.time_ms() is None
    assert controller.calls == 1


def test_another_refusal_is_an_error() -> None:
    controller = Refusing("a bug")
    with client_of(controller, attempts=3) as client, pytest.raises(UnknownOutcome, match="a bug"):
        client.time_ms()
    assert controller.calls == 3


@pytest.mark.parametrize("told", ["", "soon", "-5", "1.5", "9" * 5_000])
def test_what_is_no_time_is_refused(told: str) -> None:
    with (
        client_of(Telling(("pravega-time-ms", told))) as client,
        pytest.raises(ControllerRefused, match="is no number of milliseconds"),
    ):
        client.time_ms()
