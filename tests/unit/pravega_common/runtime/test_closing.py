"""Closes parts with their object, and refuses those that come too late."""

from __future__ import annotations

import pytest

from pravega_common.errors import InvalidArgument
from pravega_common.runtime.closing import Closing


def test_parts_are_closed_once_the_last_one_first() -> None:
    closed: list[str] = []
    closing = Closing("the thing")
    assert closing.keep(1, lambda: closed.append("first")) == 1
    assert closing.keep("two", lambda: closed.append("last")) == "two"
    for _ in range(2):
        closing.close()
    assert closed == ["last", "first"]
    with pytest.raises(InvalidArgument, match="the thing is closed; make another one"):
        closing.keep(3, lambda: closed.append("late"))
    closing.close()
    assert closed == ["last", "first"]


def test_a_part_that_cannot_be_closed_keeps_no_other_open() -> None:
    closed: list[str] = []

    def fail() -> None:
        raise OSError("lost")

    closing = Closing("the thing")
    closing.keep(1, lambda: closed.append("first"))
    closing.keep(2, fail)
    with pytest.raises(OSError, match="lost"):
        closing.close()
    assert closed == ["first"]
