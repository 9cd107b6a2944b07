"""What the metadata table lacks: nothing is forgotten before the table has it."""

from __future__ import annotations

import pytest

from pravega_common.invariants import InvariantViolation
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.metadata.table_changes import TableChanges, changes_max


def changes() -> TableChanges:
    made = TableChanges()
    made.knows_table = True
    return made


def test_a_change_is_noted_until_it_is_stored() -> None:
    noted = changes()
    noted.note(1)
    taken = noted.take(10)
    assert list(taken.changed) == [1]
    assert not noted.is_clean(1)
    noted.failed()
    assert list(noted.take(10).changed) == [1]
    noted.note(1)
    noted.stored()
    assert not noted.is_clean(1)
    noted.take(10)
    noted.stored()
    assert noted.is_clean(1)
    assert len(noted) == 0


def test_a_segment_that_never_was_in_the_table_leaves_nothing() -> None:
    noted = changes()
    noted.note(1)
    noted.note_gone(SegmentMetadata(1, "a"))
    assert len(noted) == 0
    assert not noted.is_gone("a")


def test_a_name_is_gone_until_all_its_ids_are() -> None:
    noted = changes()
    noted.note_gone(SegmentMetadata(1, "a", in_table=True))
    noted.take(1)
    noted.note_gone(SegmentMetadata(2, "a", in_table=True))
    noted.stored()
    assert noted.is_gone("a")
    assert list(noted.gone()) == [(2, "a")]
    noted.take(1)
    assert list(noted.gone()) == [(2, "a")]
    noted.stored()
    assert not noted.is_gone("a")


def test_what_is_gone_goes_first() -> None:
    noted = changes()
    noted.note(2)
    noted.note_gone(SegmentMetadata(1, "a", in_table=True))
    taken = noted.take(1)
    assert (taken.gone, taken.changed) == ({1: "a"}, {})
    with pytest.raises(InvariantViolation):
        noted.take(1)


def test_a_replay_takes_every_segment_that_is_gone_for_one_of_the_table() -> None:
    noted = TableChanges()
    noted.note_gone(SegmentMetadata(1, "a"))
    assert noted.is_gone("a")


def test_it_calls_at_the_first_change_and_at_many() -> None:
    noted, calls = changes(), []
    noted.on_change = lambda: calls.append(len(noted))
    for number in range(changes_max + 5):
        noted.note(number)
    assert calls == [1, changes_max]
