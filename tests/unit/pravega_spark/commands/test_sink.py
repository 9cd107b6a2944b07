"""Checks what is said of a sink that is not found: where a name was given, that an id is wanted."""

from __future__ import annotations

from pravega_common.model.transaction_sets import SetState, Sink, SinkStatus, TransactionSet
from pravega_spark.commands.sink import unknown_sink


def record(query_id: str, label: str, destination: str = "s/t") -> SinkStatus:
    decided = TransactionSet(SetState.COMMITTED, 7, "run", (), 1, 13)
    return SinkStatus(Sink(query_id, destination, label=label), 7, "run", 0, decided)


def test_a_name_identifies_no_sink() -> None:
    records = [record("6f1c-1", "q5"), record("8a2b-2", "q5"), record("9c3d-3", "other"), record("0d4e-4", "")]
    assert str(unknown_sink("q5", "", records)) == (
        "'q5' is the name of a query, which another may have too: give the id of the sink, as in pravega-spark sink "
        "list: 6f1c-1 or 8a2b-2"
    )
    many = [record(f"id-{number}", "q5") for number in range(9)]
    assert str(unknown_sink("q5", "", many)).endswith("sink list: id-0, id-1, id-2, id-3, id-4 or 4 more")


def test_what_is_on_record_nowhere() -> None:
    records = [record("6f1c-1", "q5", "s/u"), record("0d4e-4", "")]
    said = "is on record; see pravega-spark sink list"
    assert str(unknown_sink("nobody", "", records)) == f"no sink 'nobody' {said}"
    assert str(unknown_sink("q5", "s/t", records)) == f"no sink 'q5' into s/t {said}"
    assert str(unknown_sink("", "s/t", records)) == f"no sink '' into s/t {said}"
