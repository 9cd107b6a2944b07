"""Tests that commands are immutable values, as frozen dataclasses are."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest

from pravega_common.wire import commands as c


def test_equal_by_their_fields_and_class() -> None:
    assert c.SegmentSealed(1, "a/b/0") == c.SegmentSealed(request_id=1, segment="a/b/0")
    assert c.SegmentSealed(1, "a/b/0") != c.SegmentSealed(2, "a/b/0")
    assert c.SegmentSealed(1, "a/b/0") != c.SegmentDeleted(1, "a/b/0")
    assert c.KeepAlive() == c.KeepAlive()
    assert len({c.SegmentSealed(1, "a/b/0"), c.SegmentSealed(1, "a/b/0")}) == 1


def test_a_field_with_a_default_may_be_left_out() -> None:
    assert c.Hello(17, 5) == c.Hello(17, 5, extensions=0)


@pytest.mark.parametrize("make", [lambda: c.Hello(17), lambda: c.Hello(1, 2, 3, 4), lambda: c.Hello(1, 2, no=3)])  # type: ignore[call-arg]
def test_missing_and_unknown_fields_are_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(TypeError):
        make()


def test_a_command_does_not_change() -> None:
    hello = c.Hello(17, 5)
    with pytest.raises(FrozenInstanceError):
        hello.high_version = 3  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del hello.high_version
    assert not hasattr(hello, "__dict__")


def test_shown_with_its_fields() -> None:
    assert repr(c.SegmentSealed(1, "a/b/0")) == "SegmentSealed(request_id=1, segment='a/b/0')"


def test_copies_are_equal() -> None:
    hello = c.Hello(17, 5, 1)
    assert copy.copy(hello) == pickle.loads(pickle.dumps(hello)) == hello


def test_fields_match_by_position() -> None:
    match c.SegmentSealed(1, "a/b/0"):
        case c.SegmentSealed(request_id, segment):
            assert (request_id, segment) == (1, "a/b/0")
        case _:
            pytest.fail("no match")
