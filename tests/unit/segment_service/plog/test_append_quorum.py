"""Deciding which appends are done, over the answers of three servers in every order."""

from __future__ import annotations

import pytest

from pravega_common.errors import FailedError, Unavailable, UnknownOutcome
from segment_service.plog.append_quorum import (
    AppendQuorum,
    MajorityLost,
    behind_appends_max,
    behind_bytes_max,
    behind_s_max,
    means_full,
)
from segment_service.plog.redis_connection import ConnectionLost, ReplyError

LOST = ConnectionLost("the connection broke")
REFUSED = Unavailable("the plog is not there any more")
FULL = ReplyError("OOM command not allowed")


class Plog:
    """A quorum of three, and what its writer heard."""

    def __init__(self, *members: int) -> None:
        self.quorum = AppendQuorum(3, members or (0, 1, 2), lambda error: isinstance(error, FailedError))
        self.heard: list[tuple[int, BaseException | None]] = []
        self.end = 0

    def send(self, count: int = 1, size: int = 10, now_s: float = 0.0) -> None:
        for _ in range(count):
            self.end += size
            at = self.end
            self.quorum.sent(at, now_s, lambda error, at=at: self.heard.append((at, error)))  # type: ignore[misc]

    def answer(self, server: int, *numbers: int) -> None:
        for number in numbers:
            self.quorum.answered(server, number, None)

    def fail(self, server: int, number: int, error: BaseException) -> None:
        self.quorum.answered(server, number, error)

    @property
    def done(self) -> list[int]:
        return [at for at, error in self.heard if error is None]

    @property
    def failed(self) -> list[type[BaseException]]:
        return [type(error) for _, error in self.heard if error is not None]


def test_an_append_is_done_with_the_second_answer_and_once() -> None:
    plog = Plog()
    plog.send()
    plog.answer(1, 0)
    assert plog.heard == []
    plog.answer(0, 0)
    assert plog.heard == [(10, None)]
    plog.answer(2, 0)
    assert plog.heard == [(10, None)]
    assert [plog.quorum.prefix(server) for server in range(3)] == [10, 10, 10]


def test_two_answers_of_one_server_are_no_majority() -> None:
    plog = Plog()
    plog.send(2)
    plog.answer(1, 0, 0)
    assert plog.heard == []
    assert plog.quorum.members == (0, 2)


def test_appends_are_done_in_their_order_whatever_order_servers_answer_in() -> None:
    plog = Plog()
    plog.send(3)
    plog.answer(2, 0, 1, 2)
    plog.answer(0, 0)
    assert plog.done == [10]
    plog.answer(1, 0, 1, 2)
    assert plog.done == [10, 20, 30]
    assert plog.quorum.committed_end == 30


def test_an_answer_out_of_its_turn_puts_the_server_out() -> None:
    plog = Plog()
    plog.send(2)
    plog.answer(0, 1)
    assert plog.quorum.members == (1, 2)
    plog.answer(0, 0)
    plog.answer(1, 0)
    assert plog.heard == []
    plog.answer(2, 0)
    assert plog.done == [10]


def test_an_answer_to_nothing_puts_the_server_out() -> None:
    plog = Plog()
    plog.answer(0, 0)
    assert plog.quorum.members == (1, 2)


def test_what_a_server_had_when_it_went_out_still_counts() -> None:
    plog = Plog()
    plog.send(2)
    plog.answer(0, 0)
    plog.fail(0, 1, LOST)
    plog.answer(1, 0, 1)
    assert plog.done == [10]
    plog.answer(2, 0, 1)
    assert plog.done == [10, 20]
    assert (plog.quorum.prefix(0), plog.quorum.is_whole, plog.quorum.is_lost) == (10, False, False)


def test_a_server_that_refused_one_append_takes_no_further_one() -> None:
    plog = Plog()
    plog.send(2)
    plog.fail(0, 0, FULL)
    plog.answer(0, 1)
    plog.answer(1, 0, 1)
    assert plog.heard == []
    plog.send()
    plog.answer(2, 0, 1, 2)
    assert plog.done == [10, 20]
    assert plog.quorum.members == (1, 2)


def test_without_a_majority_every_unanswered_append_ends_unknown() -> None:
    plog = Plog()
    plog.send(3)
    plog.answer(0, 0)
    plog.answer(1, 0)
    plog.fail(1, 1, LOST)
    assert plog.failed == []
    plog.fail(2, 0, LOST)
    assert (plog.done, plog.failed) == ([10], [MajorityLost, MajorityLost])
    assert plog.quorum.is_lost
    plog.answer(0, 1, 2)
    assert len(plog.heard) == 3


def test_an_append_is_refused_only_if_every_server_refused_it() -> None:
    plog = Plog()
    plog.send(2)
    for server in range(3):
        assert plog.heard == []
        plog.fail(server, 0, REFUSED)
    assert [error for _, error in plog.heard][:1] == [REFUSED]
    assert plog.failed[1:] == [MajorityLost]


def test_two_refusals_and_a_copy_are_unknown() -> None:
    plog = Plog()
    plog.send()
    plog.fail(0, 0, REFUSED)
    plog.fail(1, 0, REFUSED)
    assert plog.heard == []
    plog.answer(2, 0)
    assert plog.failed == [MajorityLost]
    assert isinstance(plog.heard[0][1], UnknownOutcome)


def test_a_copy_on_a_server_that_went_out_makes_a_refusal_unknown() -> None:
    plog = Plog()
    plog.send()
    plog.answer(0, 0)
    plog.send()
    plog.fail(0, 1, LOST)
    plog.fail(1, 0, REFUSED)
    assert plog.failed == [MajorityLost, MajorityLost]


def test_a_refusal_by_the_two_that_it_was_sent_to_is_one() -> None:
    plog = Plog(0, 2)
    plog.send()
    plog.fail(2, 0, FULL)
    plog.fail(0, 0, FULL)
    assert plog.heard == [(10, FULL)]


@pytest.mark.parametrize(("first", "second", "is_full"), [(FULL, LOST, True), (LOST, FULL, False), (LOST, LOST, False)])
def test_full_servers_are_told_from_others(first: BaseException, second: BaseException, is_full: bool) -> None:
    plog = Plog(0, 1)
    plog.send()
    plog.fail(0, 0, first)
    plog.fail(1, 0, second)
    ((_, error),) = plog.heard
    assert error is not None
    assert means_full(error) is is_full


def test_a_server_is_late_only_behind_the_majority() -> None:
    plog = Plog()
    plog.send(size=behind_bytes_max + 1)
    assert plog.quorum.late(behind_s_max * 2) == []
    plog.answer(0, 0)
    assert plog.quorum.late(behind_s_max * 2) == []
    plog.answer(1, 0)
    assert plog.quorum.late(0.0) == [2]
    plog.answer(2, 0)
    assert plog.quorum.late(behind_s_max * 2) == []


def test_a_server_is_late_in_bytes_in_appends_and_in_seconds() -> None:
    plog = Plog()
    plog.send(size=behind_bytes_max)
    plog.answer(0, 0)
    plog.answer(1, 0)
    assert plog.quorum.late(behind_s_max) == []
    assert plog.quorum.late(behind_s_max + 0.1) == [2]
    plog = Plog()
    plog.send(behind_appends_max + 1)
    for number in range(behind_appends_max):
        plog.answer(0, number)
        plog.answer(2, number)
    assert plog.quorum.late(0.0) == []
    plog.answer(0, behind_appends_max)
    plog.answer(2, behind_appends_max)
    assert plog.quorum.late(0.0) == [1]


def test_a_writer_may_append_while_it_hears_of_an_append() -> None:
    quorum = AppendQuorum(3, (0, 1, 2), lambda _: False)
    heard: list[int] = []
    quorum.sent(10, 0.0, lambda _: heard.append(quorum.sent(20, 0.0, lambda _: heard.append(-1))))
    quorum.answered(0, 0, None)
    quorum.answered(1, 0, None)
    assert heard == [1]
    quorum.answered(2, 0, None)
    quorum.answered(2, 1, None)
    quorum.answered(0, 1, None)
    assert heard == [1, -1]
