"""Makes a part of an object once, though several threads ask for it first."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pravega_common.runtime.made_once import MadeOnce


class Parts:
    def __init__(self) -> None:
        self.made = 0
        self.fails = False
        self.both = threading.Barrier(2)

    @MadeOnce
    def part(self) -> object:
        """A part."""
        self.made += 1
        try:
            self.both.wait(timeout=0.2)  # Nobody else comes here meanwhile.
        except threading.BrokenBarrierError:
            self.both.reset()
        if self.fails:
            raise ValueError("not now")
        return object()

    @MadeOnce
    def pair(self) -> tuple[object, Parts]:
        return self.part, self


def test_two_threads_get_the_same() -> None:
    parts, other = Parts(), Parts()
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda _: parts.part, range(2))
    assert one is two is parts.part and parts.made == 1
    assert parts.pair == (one, parts)
    assert "part" not in vars(other) and other.part is not one
    assert Parts.part.__doc__ == "A part."


def test_one_that_cannot_be_made_is_made_by_the_next_use() -> None:
    parts = Parts()
    parts.fails = True
    with pytest.raises(ValueError, match="not now"):
        _ = parts.part
    parts.fails = False
    assert parts.part is parts.part and parts.made == 2
