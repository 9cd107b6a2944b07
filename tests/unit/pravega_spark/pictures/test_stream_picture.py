"""The picture of a stream, from the fake store."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from pravega_common.errors import ConfigurationError, InvalidArgument, StreamNotFound
from pravega_common.names import segment_id
from pravega_spark import show
from pravega_spark.pictures import stream_history
from pravega_spark.pictures.stream_history import read_history
from pravega_spark.pictures.stream_picture import draw_stream, shade, shades
from tests.unit.pravega_spark.streams import SCOPE, FakeStreams

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def streams(tmp_path: Path) -> FakeStreams:
    made = FakeStreams(tmp_path)
    made.create("t", 2)
    made.append("t", 0, [b"x" * 92] * 10)
    made.append("t", 1, [b"x" * 92])
    made.scale("t", [0], [(0.0, 0.25), (0.25, 0.5)])
    return made


def test_segments_and_their_epochs(streams: FakeStreams) -> None:
    history = read_history(streams.gateway, SCOPE, "t")
    assert (history.first_epoch, history.last_epoch, history.has_older) == (0, 1, False)
    assert [
        (item.name, item.first_epoch, item.last_epoch, item.fate, item.held_bytes) for item in history.segments
    ] == [
        ("0.#epoch.0", 0, 0, "sealed", 1000),
        ("1.#epoch.0", 0, 1, "open", 100),
        ("2.#epoch.1", 1, 1, "open", 0),
        ("3.#epoch.1", 1, 1, "open", 0),
    ]
    assert [(item.key_low, item.key_high) for item in history.segments][1:3] == [(0.5, 1.0), (0.0, 0.25)]


def test_what_is_truncated(streams: FakeStreams) -> None:
    streams.append("t", segment_id(2, 1), [b"y"])
    cut = {segment_id(2, 1): 0, segment_id(3, 1): 0, 1: 100}
    streams.gateway.truncate_stream(SCOPE, "t", cut)
    history = read_history(streams.gateway, SCOPE, "t")
    fates = {item.name: item.fate for item in history.segments}
    assert fates["1.#epoch.0"] == "open", "an open segment stays open, whatever can be read of it"
    assert fates.get("0.#epoch.0", "truncated") == "truncated"


def test_only_the_newest_epochs(streams: FakeStreams, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_history, "epochs_max", 1)
    history = read_history(streams.gateway, SCOPE, "t")
    assert (history.first_epoch, history.last_epoch, history.has_older) == (1, 1, True)
    assert "older epochs are left out" in draw_stream(history).svg


def test_a_sealed_stream_has_nothing_open(streams: FakeStreams) -> None:
    streams.gateway.seal_stream(SCOPE, "t")
    assert {item.fate for item in read_history(streams.gateway, SCOPE, "t").segments} == {"sealed"}


def test_the_drawing(streams: FakeStreams, tmp_path: Path) -> None:
    made = show(f"{SCOPE}/t", controller=streams.controller)
    assert str(made) == "Stream s/t: epochs 0 to 1, 4 segments, 3 of them open, 1.1 KiB"
    drawn = ElementTree.fromstring(made.svg)
    titles = [item.text or "" for item in drawn.iter(f"{SVG}title")]
    assert titles[0] == str(made)
    assert titles[1] == "0.#epoch.0: keys 0 to 0.5, epochs 0 to 0, sealed, 1000 B"
    assert made._repr_html_() == made.svg
    made.save(tmp_path / "t.svg")
    assert (tmp_path / "t.svg").read_text() == made.svg


def test_shades_halve() -> None:
    assert [shade(held, 64) for held in (64, 33, 32, 4, 1, 0)] == [
        shades[6],
        shades[6],
        shades[5],
        shades[2],
        shades[1],
        shades[0],
    ]


def test_what_cannot_be_drawn(streams: FakeStreams) -> None:
    where = {"controller": streams.controller}
    with pytest.raises(StreamNotFound):
        show(f"{SCOPE}/none", **where)
    with pytest.raises(ConfigurationError, match="t"):
        show("t", **where)
    with pytest.raises(ConfigurationError, match="colour"):
        show(f"{SCOPE}/t", colour="red", **where)
    with pytest.raises(InvalidArgument, match="was given int"):
        show(17)
