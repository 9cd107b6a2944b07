"""Tests that the head of a stream is where its stores begin, whoever truncated them."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace

import pytest

from pravega_common.model.segments import SegmentInfo
from pravega_common.names import segment_name
from pravega_streams.client import StreamClient

STARTS = {segment_name("s", "t", 0): 1_000, segment_name("s", "t", 1): 0}
"""The first bytes left of two segments; the third one is deleted."""


def infos(names: Iterable[str]) -> dict[str, SegmentInfo]:
    return {name: SegmentInfo(name, STARTS[name], 5_000, False, 0) for name in names if name in STARTS}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> StreamClient:
    made = StreamClient("tcp://localhost:1")
    controller = SimpleNamespace(head_cut=lambda scope, stream: {0: 0, 1: 20, 2: 30})
    monkeypatch.setattr(made, "controller", controller)
    monkeypatch.setattr(made, "segments", SimpleNamespace(infos=infos))
    return made


def test_what_a_client_cut_off_at_the_store_lies_before_the_head(client: StreamClient) -> None:
    """As a byte stream does. A controller may be ahead of a store, and a segment may be deleted meanwhile."""
    assert client.head_cut("s", "t") == {0: 1_000, 1: 20, 2: 30}
