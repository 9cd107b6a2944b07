"""Asks a store in memory about many segments at once, over a real socket."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import cast

import pytest

from pravega_common.wire import commands as c
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.controller.client import ControllerClient
from pravega_streams.segment import segment_client
from pravega_streams.segment.segment_client import SegmentClient
from tests.support.fakes.wire_store import FakeStore

COUNT = 600
NAMES = [f"s/t/{number}.#epoch.0" for number in range(COUNT)]


class Infos:
    """Answers for the even segments; ``faults`` come first, one a question."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.faults: dict[str, str | c.Command] = {}

    def __call__(self, command: c.Command) -> str | c.Command | None:
        if not isinstance(command, c.GetStreamSegmentInfo):
            return None
        name, rid = command.segment, command.request_id
        self.asked[name] += 1
        fault = self.faults.pop(name, None)
        if fault == "wrong host":
            return c.WrongHost(rid, name, "", "")
        if fault is not None:
            return fault
        number = NAMES.index(name)
        if number % 2:
            return c.NoSuchSegment(rid, name, "", -1)
        return c.StreamSegmentInfo(rid, name, True, False, False, 0, number * 10, number)


class Controller:
    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def endpoint(self, scope: str, stream: str, segment_id: int) -> Endpoint:
        return self._endpoint


@pytest.fixture
def store() -> Iterator[FakeStore]:
    made = FakeStore()
    yield made
    made.close()


@pytest.fixture
def client(store: FakeStore) -> Iterator[SegmentClient]:
    made = SegmentClient(cast("ControllerClient", Controller(store.endpoint)), call_time_s=5)
    yield made
    made.close()


@pytest.mark.parametrize("fault", ["", "close", "close after", "wrong host"])
def test_many_segments_are_asked_together(
    store: FakeStore, client: SegmentClient, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the connection is lost in the middle, or a segment has moved meanwhile."""
    monkeypatch.setattr(segment_client, "infos_per_round_max", 100)
    answers = store.before = Infos()
    if fault:
        answers.faults[NAMES[250]] = fault
    found = client.infos(NAMES)
    assert {name: (info.start_offset, info.length) for name, info in found.items()} == {
        name: (number, number * 10) for number, name in enumerate(NAMES) if number % 2 == 0
    }
    assert store.connection_count == (1 if fault in ("", "wrong host") else 2)
    # The client goes on, and finds no answer of another question.
    assert client.info(NAMES[10]).length == 100
    assert client.infos([]) == {}
