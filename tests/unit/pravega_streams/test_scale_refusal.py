"""Checks that a refused scale names the value and the limit, on a controller of this process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from controller_service.service import Controller
from pravega_common.errors import InvalidArgument, PravegaError, StreamNotFound, StreamSealed, UnknownOutcome
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import segment_id
from pravega_common.proto import controller_pb2 as pb
from pravega_spark.application import make_application
from pravega_streams import errors
from pravega_streams.controller.client import ControllerClient
from tests.support.controller_in_memory import ControllerParts
from tests.support.eventually import eventually_blocking

LATER = segment_id(3, 1)


class Asked(ControllerClient):
    """A client that counts its calls, and fails to look at a stream while ``is_blind``."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri, attempts=1)
        self.calls: list[str] = []
        self.is_blind = False
        self.loses_answers = False
        """Whether the first answer to a scale is lost, and the call repeated once that is done."""
        self.plan_moves_by = 0
        """Epochs by which commits of transactions move a scale on between its answer and its end, two each."""

    # The one way of every call, which has no public name.
    def _ask(self, method: str, request: Any) -> Any:
        self.calls.append(method)
        if self.is_blind and method == "getStreamConfiguration":
            raise UnknownOutcome("nobody answers")
        answer = super()._ask(method, request)
        if method == "scale" and self.plan_moves_by:
            answer.epoch -= self.plan_moves_by
            for item in answer.segments:
                item.segmentId.segmentId -= segment_id(0, self.plan_moves_by)
        if method == "scale" and self.loses_answers:
            asked = pb.ScaleStatusRequest(streamInfo=request.streamInfo, epoch=answer.epoch)
            done = pb.ScaleStatusResponse.SUCCESS
            eventually_blocking(lambda: super(Asked, self)._ask("checkScale", asked).status == done)
            answer = super()._ask(method, request)
        return answer


@pytest.fixture
async def controller() -> AsyncIterator[Controller]:
    """With ``s/t``: segments 0 and 1, never fewer."""
    controller = ControllerParts().controller()
    # The command's runner takes the process's standard output, to which the controller would log.
    with capture_logs():
        await controller.start()
        await controller.store.create_scope("s")
        policy = StreamConfiguration(ScalingPolicy.fixed(2))
        await controller.parts.workflows.create.create("s", "t", policy)
        yield controller
        await controller.stop()


@pytest.fixture
async def client(controller: Controller) -> AsyncIterator[Asked]:
    made = Asked(uri_of(controller))
    yield made
    made.close()


def uri_of(controller: Controller) -> str:
    return f"tcp://127.0.0.1:{controller.grpc.port}"


async def refusal(
    client: Asked, sealed: Sequence[int], ranges: Sequence[tuple[float, float]], stream: str = "t"
) -> PravegaError:
    with pytest.raises(PravegaError) as caught:
        await asyncio.to_thread(client.scale_stream, "s", stream, sealed, ranges)
    return caught.value


@pytest.mark.parametrize(
    ("sealed", "ranges", "complaint"),
    [
        ([], [(0.0, 1.0)], "seals 0 segments and makes 1: each must be 1 or more"),
        ([0], [], "seals 1 segments and makes 0: each must be 1 or more"),
        ([0, 0], [(0.0, 0.5)], "seals a segment twice: 0.#epoch.0, 0.#epoch.0"),
        ([0], [(0.5, 0.4)], "key range [0.5, 0.4) must satisfy 0 <= low < high <= 1"),
        ([0], [(0.0, 1.5)], "key range [0.0, 1.5) must satisfy 0 <= low < high <= 1"),
        ([0], [(0.0, float("nan"))], "key range [0.0, nan) must satisfy 0 <= low < high <= 1"),
        ([0], [(0.0, 0.3), (0.0, 0.5)], "key ranges [0.0, 0.3) and [0.0, 0.5) overlap"),
        ([0], [(0.0, 0.3), (0.2, 0.5)], "key ranges [0.0, 0.3) and [0.2, 0.5) overlap"),
    ],
)
async def test_what_fits_no_stream_is_not_asked(
    client: Asked, sealed: list[int], ranges: list[tuple[float, float]], complaint: str
) -> None:
    found = await refusal(client, sealed, ranges)
    assert isinstance(found, InvalidArgument) and complaint in str(found)
    assert client.calls == []


@pytest.mark.parametrize(
    ("sealed", "ranges", "complaint"),
    [
        (
            [7, 0, LATER],
            [(0.0, 0.5)],
            "(PRECONDITION_FAILED): not open: segment 7.#epoch.0, 3.#epoch.1; open: 0.#epoch.0, 1.#epoch.0",
        ),
        (
            [0],
            [(0.0, 0.2), (0.2, 0.4)],
            "(FAILURE): the new ranges make up [0.0, 0.4), the segments to seal [0.0, 0.5)",
        ),
        (
            [0],
            [(0.0, 0.1 + 0.2), (0.3, 0.5)],
            "[0.0, 0.30000000000000004) and [0.3, 0.5) overlap",
        ),
        (
            [0],
            [(0.0, 0.5 - 1e-12)],
            "(FAILURE): the new ranges make up [0.0, 0.499999999999), the segments to seal [0.0, 0.5)",
        ),
        (
            [0, 1],
            [(0.0, 1.0)],
            "(PRECONDITION_FAILED): 1 segments would be left, the stream's policy is to have at least 2",
        ),
    ],
)
async def test_the_value_and_the_limit_are_named(
    client: Asked, sealed: list[int], ranges: list[tuple[float, float]], complaint: str
) -> None:
    found = await refusal(client, sealed, ranges)
    assert isinstance(found, InvalidArgument | errors.ControllerRefused)
    assert complaint in str(found)
    assert client.calls.count("scale") <= 1


async def test_a_stream_that_is_sealed_or_missing(client: Asked) -> None:
    assert isinstance(await refusal(client, [0], [(0.0, 1.0)], "nope"), StreamNotFound)
    await asyncio.to_thread(client.seal_stream, "s", "t")
    found = await refusal(client, [0], [(0.0, 0.5)])
    assert isinstance(found, StreamSealed) and "scale of s/t refused" in str(found)


async def test_what_cannot_be_seen_is_not_made_up(client: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    client.is_blind = True
    found = await refusal(client, [7], [(0.0, 0.5)])
    assert isinstance(found, errors.ControllerRefused)
    assert re.search(r"PRECONDITION_FAILED.*could not be looked at: nobody answers", str(found))


async def test_the_command_names_the_limit(controller: Controller) -> None:
    command = ["stream", "scale", "s/t", "--split", "0:4500", "--controller", uri_of(controller)]
    result = await asyncio.to_thread(CliRunner().invoke, make_application(), command)
    assert isinstance(result.exception, errors.ControllerRefused)
    assert "4501 segments would be open, at most 4500 may" in str(result.exception)


async def test_a_scale_that_was_done_is_done_when_its_answer_was_lost(client: Asked) -> None:
    client.loses_answers = True
    upper, lower = segment_id(2, 1), segment_id(3, 1)
    for sealed, ranges, made in (
        ([0, 1], [(0.25, 1.0), (0.0, 0.25)], [(0.25, 1.0), (0.0, 0.25)]),
        ([upper], [(0.25, 0.5), (0.5, 1.0)], [(0.25, 0.5), (0.5, 1.0)]),
        ([lower, segment_id(4, 2)], [(0.0, 0.5)], [(0.0, 0.5)]),
    ):
        found = await asyncio.to_thread(client.scale_stream, "s", "t", sealed, ranges)
        assert [(item.key_low, item.key_high) for item in found] == made
    client.loses_answers = False
    for sealed, ranges in (
        ([0], [(0.0, 0.25)]),
        ([0, 1], [(0.0, 0.5), (0.5, 1.0)]),
        ([0, 1, upper], [(0.25, 1.0), (0.0, 0.25)]),
    ):
        refused = await refusal(client, sealed, ranges)
        assert isinstance(refused, errors.ControllerRefused) and "not open: segment" in str(refused)


async def test_segments_of_a_scale_that_commits_moved_on_are_named_as_they_were_made(client: Asked) -> None:
    """The plan that is answered at once has those of an epoch that a commit of transactions then took."""
    for sealed, ranges in (
        ([0], [(0.0, 0.25), (0.25, 0.5)]),
        ([segment_id(2, 1)], [(0.0, 0.1), (0.1, 0.25)]),
        ([segment_id(3, 1)], [(0.25, 0.3), (0.3, 0.5)]),
    ):
        await asyncio.to_thread(client.scale_stream, "s", "t", sealed, ranges)
    client.plan_moves_by = 2
    made = await asyncio.to_thread(client.scale_stream, "s", "t", [1], [(0.5, 0.7), (0.7, 1.0)])
    current = await asyncio.to_thread(client.current_segments, "s", "t")
    assert made == current[-2:] and {item.segment_id for item in made} == {segment_id(8, 4), segment_id(9, 4)}


async def test_a_scale_that_was_answered_and_then_given_up_is_no_success(client: Asked) -> None:
    """As by an update of the stream's configuration, which replaces its segments first."""
    await asyncio.to_thread(client.scale_stream, "s", "t", [0], [(0.0, 0.25), (0.25, 0.5)])
    client.plan_moves_by = 1
    refused = await refusal(client, [segment_id(2, 1)], [(0.0, 0.1), (0.1, 0.25)])
    assert isinstance(refused, errors.ControllerRefused)
    assert "given up: another change of the stream came first" in str(refused)
