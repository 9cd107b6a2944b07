"""Pravega's own Java reader tells its time window from the times that writers note, on our store and on Pravega's."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Final

import pytest

from controller_service.watermarks.watermark import decode_watermark
from pravega_common.model.scaling import ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.names import mark_stream
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.event.event_writer import EventWriter
from tests.interop.java_client import JavaClient, running_java_client
from tests.interop.real_pravega import RealPravega
from tests.support.cluster import running_cluster
from tests.support.eventually import eventually_blocking

pytestmark = pytest.mark.timeout(600)

SCOPE: Final = "windows"
TIMES: Final = (1_000, 2_000, 3_000)
events_per_time: Final = 8
wait_max_s: Final = 120.0
read_wait_ms: Final = 200

Note = Callable[[int], None]
"""Writes the events of a time and then notes it."""


@pytest.fixture(scope="module", params=["own", pytest.param("real", marks=pytest.mark.long)])
def controller_uri(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "real":
        real: RealPravega = request.getfixturevalue("real_pravega")
        yield real.controller_uri
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PRAVEGA_CONTROLLER_WATERMARKS__PERIOD_MS", "200")
        with running_cluster(tmp_path_factory.mktemp("windows")) as cluster:
            yield cluster.controller_uri


@pytest.fixture(scope="module")
def client(controller_uri: str) -> Iterator[StreamClient]:
    with StreamClient(controller_uri) as made:
        made.controller.create_scope(SCOPE)
        yield made


@pytest.fixture(scope="module")
def java_client(client: StreamClient, controller_uri: str) -> Iterator[JavaClient]:
    with running_java_client(controller_uri, SCOPE) as made:
        yield made


@contextmanager
def noting_in_python(client: StreamClient, _: JavaClient, stream: str) -> Iterator[Note]:
    with EventWriter(client, SCOPE, stream) as writer:

        def note(time: int) -> None:
            for number in range(events_per_time):
                writer.write(b"%d" % time, f"key-{number}")
            writer.note_time(time)

        yield note


@contextmanager
def noting_in_java(_: StreamClient, java_client: JavaClient, stream: str) -> Iterator[Note]:
    writer = java_client.writer(stream)

    def note(time: int) -> None:
        for number in range(events_per_time):
            writer.writeEvent(f"key-{number}", b"%d" % time)
        writer.flush()
        writer.noteTime(time)

    yield note
    writer.close()


@pytest.mark.parametrize("noting", [noting_in_python, noting_in_java])
def test_the_time_of_every_event_lies_in_the_window_of_a_java_reader(
    client: StreamClient,
    java_client: JavaClient,
    noting: Callable[[StreamClient, JavaClient, str], AbstractContextManager[Note]],
) -> None:
    stream = f"{noting.__name__}-{uuid.uuid4().hex[:8]}".replace("_", "-")
    client.controller.create_stream(SCOPE, stream, StreamConfiguration(ScalingPolicy.fixed(2)))
    group = f"group-{uuid.uuid4().hex}"
    java_client.create_group(group, stream)
    with noting(client, java_client, stream) as note:
        before: int | None = None
        for time in TIMES:
            note(time)
            eventually_blocking(partial(has_watermark, client, stream, time), "its watermark", wait_max_s)
            # A reader asks its group where all stand when it begins, and later every few seconds.
            reader = java_client.reader(f"reader-{time}", group)
            seen = read_until_behind(reader, java_client.stream(stream), time)
            reader.close()
            assert [event for event, _, _ in seen] == [time] * events_per_time
            for _, lower, upper in seen:
                assert lower == before and upper in (time, None)
            assert (time, before, time) in seen
            before = time


def has_watermark(client: StreamClient, stream: str, time: int) -> bool:
    """Whether the newest watermark says that all writers are behind a time."""
    times = [decode_watermark(event.data).lower_time for event in read_events(client, SCOPE, mark_stream(stream))]
    return time in times[-1:]


def read_until_behind(reader: Any, stream: Any, time: int) -> list[tuple[int, int | None, int | None]]:
    """Each event's time with the bounds that held when it was read; returns when all to come is later than ``time``."""
    seen: list[tuple[int, int | None, int | None]] = []

    def is_behind() -> bool:
        data = reader.readNextEvent(read_wait_ms).getEvent()
        window = reader.getCurrentTimeWindow(stream)
        lower, upper = window.getLowerTimeBound(), window.getUpperTimeBound()
        if data is None:
            return (lower, upper) == (time, None)
        seen.append((int(bytes(data)), lower, upper))
        return False

    eventually_blocking(is_behind, "the window behind the last event", wait_max_s)
    return seen
