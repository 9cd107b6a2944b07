"""The audit of the store drill sees what is wrong."""

from __future__ import annotations

import pytest

from tests.drills.store.audit import EventId, Promises, Tally, audit
from tests.drills.store.faults import FAULTS
from tests.drills.store.main import parse, percentile


def event(number: int, key: str = "a", transaction: int = -1) -> EventId:
    return EventId("w", key, number, transaction)


def promises(count: int, acked: int) -> Promises:
    events = [event(number) for number in range(count)]
    return Promises("w", set(events), set(events[:acked]))


def stored(*numbers: int) -> dict[int, list[bytes]]:
    return {0: [event(number).encode() for number in numbers]}


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((0, 1, 2), Tally(acked=3)),
        ((0, 1, 2, 3), Tally(acked=3)),  # not acknowledged, and there
        ((0, 2), Tally(acked=3, lost=1)),
        ((0, 1, 2, 2), Tally(acked=3, duplicated=1)),
        ((0, 2, 1), Tally(acked=3, out_of_order=1)),
        ((0, 1, 2, 9), Tally(acked=3, phantom=1)),
    ],
)
def test_what_is_wrong_is_counted(numbers: tuple[int, ...], expected: Tally) -> None:
    tally = audit(stored(*numbers), [promises(5, 3)], [])
    assert tally == expected
    assert tally.good == (tally == Tally(acked=3))


def test_other_bytes_are_phantoms() -> None:
    contents = stored(0, 1, 2)
    contents[0][1] = contents[0][1].replace(b".", b",", 1)
    assert audit(contents, [promises(3, 3)], []) == Tally(acked=3, lost=1, phantom=1)


def test_transactions_are_whole_or_not_there() -> None:
    first = {event(number, transaction=0) for number in range(3)}
    second = {event(number, transaction=1) for number in range(3, 6)}
    promise = Promises("w", first | second, set(), {0: first, 1: second}, {0})
    whole = [one.encode() for one in sorted(first, key=lambda one: one.number)]
    assert audit({0: whole}, [promise], []) == Tally(acked=3)
    assert audit({0: []}, [promise], []) == Tally(acked=3, lost=3)
    torn = [*whole, event(3, transaction=1).encode()]
    assert audit({0: torn}, [promise], []) == Tally(acked=3, torn=1)


def test_readers_saw_what_is_there_in_the_end() -> None:
    promise = promises(3, 3)
    assert audit(stored(0, 1, 2), [promise], [stored(0, 1)]) == Tally(acked=3)
    assert audit(stored(0, 1, 2), [promise], [stored(0, 2)]) == Tally(acked=3, unseen=1)
    assert audit(stored(0, 1, 2), [promise], [{7: stored(0)[0]}]) == Tally(acked=3, unseen=1)


def test_the_command_line_names_unknown_faults(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(["--faults", "kill-store,power-cut"]).faults == "kill-store,power-cut"
    with pytest.raises(SystemExit):
        parse(["--faults", "kill-nobody"])
    message = capsys.readouterr().err
    assert all(name in message for name in FAULTS)


def test_percentiles() -> None:
    values = [float(number) for number in range(100, 0, -1)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([3.0], 0.99)) == (51.0, 100.0, 3.0)
