"""Appends of one plog in any order: what is sent follows without a gap, each append ends once, bounds hold."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pravega_common.errors import Unavailable
from segment_service.plog import append_turns
from segment_service.plog.append_turns import AppendTurns, held_appends_max, held_bytes_max
from segment_service.plog.plog_client import AppendRefused
from tests.support.eventually import eventually


class Plog:
    """What a group does with the turns of a plog."""

    def __init__(self) -> None:
        self.turns = AppendTurns()
        self.sent: list[tuple[int, int]] = []
        self.errors: list[tuple[int, BaseException]] = []

    def append(self, start: int, size: int) -> None:
        def send() -> None:
            self.sent.append((start, size))

        def done(error: BaseException | None) -> None:
            assert error is not None
            self.errors.append((start, error))

        if start != self.turns.end:
            self.turns.hold(start, size, send, done)
            return
        self.turns.end += size
        send()
        if self.turns.held_bytes:
            self.turns.release()


@given(st.lists(st.integers(1, 400_000), min_size=1, max_size=90), st.randoms(use_true_random=False))
def test_appends_in_any_order(sizes: list[int], rng: object) -> None:
    async def run() -> None:
        plog = Plog()
        starts = [sum(sizes[:number]) for number in range(len(sizes))]
        calls = list(zip(starts, sizes, strict=True))
        rng.shuffle(calls)  # type: ignore[attr-defined]
        for start, size in calls:
            plog.append(start, size)
            assert plog.turns.held_appends <= held_appends_max
            assert plog.turns.held_bytes <= held_bytes_max
            ends = [begin + length for begin, length in plog.sent]
            assert [begin for begin, _ in plog.sent] == [0, *ends[:-1]][: len(ends)], "a gap was sent"
            assert plog.turns.end == (ends[-1] if ends else 0)
        for _ in range(len(sizes)):  # whoever was refused asks again, in order
            refused, plog.errors = sorted(start for start, _ in plog.errors), []
            for start in refused:
                plog.append(start, sizes[starts.index(start)])
        assert plog.sent == list(zip(starts, sizes, strict=True))
        assert (plog.turns.held_appends, plog.turns.held_bytes) == (0, 0)

    asyncio.run(run())


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), max_size=120))
def test_appends_that_overlap(calls: list[tuple[int, int]]) -> None:
    async def run() -> None:
        plog = Plog()
        for start, size in calls:
            plog.append(start, size)
        ends = [start + size for start, size in plog.sent]
        assert [start for start, _ in plog.sent] == [0, *ends[:-1]][: len(ends)]
        assert all(isinstance(error, AppendRefused) for _, error in plog.errors)
        assert len(plog.sent) + len(plog.errors) + plog.turns.held_appends == len(calls)
        held = sum(run.end - run.start for run in plog.turns._runs)
        assert held == plog.turns.held_bytes

    asyncio.run(run())


async def test_an_append_whose_turn_does_not_come_was_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_turns, "held_s_max", 0.0)
    plog = Plog()
    plog.append(10, 5)
    plog.append(15, 5)
    plog.append(40, 5)
    await eventually(lambda: len(plog.errors) == 3, "the waits end")
    assert [start for start, _ in plog.errors] == [10, 15, 40]
    assert all(isinstance(error, Unavailable) for _, error in plog.errors)
    assert (plog.turns.held_appends, plog.turns.held_bytes, plog.sent) == (0, 0, [])
    plog.append(0, 10)
    plog.append(10, 5)
    assert plog.sent == [(0, 10), (10, 5)]
