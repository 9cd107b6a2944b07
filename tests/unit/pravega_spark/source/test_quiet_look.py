"""A look that found nothing is not worked out again while the stores say the same; everything else is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pravega_common.model.segments import SegmentInfo
from pravega_spark.gateway.provisioning import forget_provisioned
from pravega_spark.source.quiet_look import QuietLook
from pravega_spark.source.stream_reader import StreamReader
from pravega_spark.source.trigger_limits import TriggerLimits
from tests.unit.pravega_spark.source.queries import Query, numbered, reader, steps_of
from tests.unit.pravega_spark.streams import FakeStreams

INFO = SegmentInfo("s/t/0.#epoch.0", 0, 30, is_sealed=False)
AT_END = {"s/t": {0: 30}}


@pytest.mark.parametrize(
    ("available", "info"),
    [
        pytest.param({"s/t": {0: 40}}, replace(INFO, length=40), id="something to read"),
        pytest.param(AT_END, replace(INFO, is_sealed=True), id="successors to come"),
    ],
)
def test_such_a_look_is_made_again(available: dict[str, dict[int, int]], info: SegmentInfo) -> None:
    quiet = QuietLook()
    quiet.looked(AT_END, available, {"s/t": {0: info}})
    assert not quiet.is_repeated(AT_END, {"s/t": {0: info}})


def test_what_must_be_the_same() -> None:
    quiet, infos = QuietLook(), {"s/t": {0: INFO}}
    assert not quiet.is_repeated(AT_END, infos)
    quiet.looked(AT_END, AT_END, infos)
    assert quiet.is_repeated(dict(AT_END), {"s/t": {0: replace(INFO)}})
    assert not quiet.is_repeated({"s/t": {0: 20}}, infos)
    assert not quiet.is_repeated({**AT_END, "s/u": {0: 0}}, {**infos, "s/u": {0: INFO}})
    for other in (replace(INFO, length=31), replace(INFO, start_offset=5), replace(INFO, is_sealed=True)):
        assert not quiet.is_repeated(AT_END, {"s/t": {0: other}})


@pytest.fixture
def streams(tmp_path: Path) -> FakeStreams:
    forget_provisioned()
    made = FakeStreams(tmp_path)
    made.create("t", 2)
    return made


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each plan that is worked out."""
    made: list[str] = []
    apply = TriggerLimits.apply

    def counting(*given: object) -> None:
        made.append("plan")
        apply(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(TriggerLimits, "apply", counting)
    return made


def test_an_idle_source_plans_once(streams: FakeStreams, plans: list[str]) -> None:
    streams.append("t", 0, numbered(0, 2))
    query = Query(reader(streams))
    assert query.all() == numbered(0, 2)
    before = len(plans)
    reported = query.source.reportLatestOffset()
    assert [query.step() for _ in range(5)] == [None] * 5
    assert (len(plans), query.source.reportLatestOffset()) == (before, reported)


def test_an_idle_source_finds_what_comes(streams: FakeStreams) -> None:
    query = Query(reader(streams))
    assert steps_of(query) == [[]] and query.step() is None
    streams.append("t", 1, numbered(0, 2))
    assert query.all() == numbered(0, 2)
    streams.gateway.scale_stream("s", "t", [0], [(0.0, 0.5)])
    assert query.step() is None or query.step() is None
    (new,) = set(streams.gateway.tail_cut("s", "t")) - {1}
    streams.append("t", new, numbered(2, 4))
    assert query.all() == numbered(2, 4)


def test_an_end_is_looked_up_each_time(streams: FakeStreams, plans: list[str]) -> None:
    """What bounds a read may change, and the stores say nothing of it."""
    streams.append("t", 0, numbered(0, 2))
    query = Query(reader(streams, end_stream_cut="latest"))
    assert query.all() == numbered(0, 2)
    before = len(plans)
    assert isinstance(query.source, StreamReader)
    assert query.step() is None and query.step() is None
    assert len(plans) == before + 2
