"""What a controller decided and has not done in time may be done yet: nobody is told that it was not done."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pravega_common.errors import UnknownOutcome
from pravega_common.model.segments import SegmentRange
from pravega_common.model.transactions import NewTransaction, TransactionState
from pravega_common.proto import controller_pb2 as pb
from pravega_streams.controller import client as controller_client
from pravega_streams.controller.client import ControllerClient
from pravega_streams.errors import TransactionFailed
from pravega_streams.event import transaction
from pravega_streams.event.transaction import Transaction


class Scaling(ControllerClient):
    """Stands for a controller that has begun a scale."""

    def _ask(self, method: str, request: Any) -> Any:
        if method == "scale":
            return pb.ScaleResponse(status=pb.ScaleResponse.STARTED)
        assert method == "checkScale"
        return pb.ScaleStatusResponse(status=pb.ScaleStatusResponse.IN_PROGRESS)


def test_a_scale_that_takes_longer_may_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_client, "scale_time_max_s", 0.1)
    client = Scaling("tcp://127.0.0.1:1")
    with pytest.raises(UnknownOutcome, match=r"scale of s/t did not finish within 0\.1 s; it goes on"):
        client.scale_stream("s", "t", [0], [(0.0, 1.0)])
    client.close()


def begun(states: Iterator[TransactionState]) -> Transaction:
    """A transaction whose commit is taken, and whose state is asked for again and again then."""
    controller = SimpleNamespace(commit_transaction=lambda *_: None, transaction_state=lambda *_: next(states))
    client: Any = SimpleNamespace(controller=controller, segments=SimpleNamespace(endpoints=None))
    made = NewTransaction(uuid.UUID(int=7), (SegmentRange("s", "t", 0, 0.0, 1.0),))
    return Transaction(client, "s", "t", made, 30_000)


def test_a_commit_that_takes_longer_may_be_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "commit_time_max_s", 0.1)
    with pytest.raises(UnknownOutcome, match=r"is to be committed, and not readable after 0 s; ask for its state"):
        begun(itertools.repeat(TransactionState.COMMITTING)).commit()


@pytest.mark.parametrize("end", [TransactionState.ABORTING, TransactionState.ABORTED])
def test_a_commit_that_an_operator_gave_up_is_not_waited_for(end: TransactionState) -> None:
    states = iter([TransactionState.COMMITTING, end])
    with pytest.raises(TransactionFailed, match=rf"is {end.name}: .*lost data"):
        begun(states).commit()
    assert next(states, None) is None


def test_a_commit_that_is_waited_for_is_asked_about_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a store is away the commits of all transactions stand, and each of their writers waits."""
    now_s, asked = 0.0, 0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    def states() -> Iterator[TransactionState]:
        nonlocal asked
        while True:
            asked += 1
            yield TransactionState.COMMITTING

    monkeypatch.setattr(transaction, "time", SimpleNamespace(monotonic=lambda: now_s, sleep=sleep))
    with pytest.raises(UnknownOutcome, match="not readable after 120 s"):
        begun(states()).commit()
    assert asked < 300
