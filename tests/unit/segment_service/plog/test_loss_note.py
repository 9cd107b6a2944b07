"""The note of what was acknowledged of a log that lost frames: who may replace it, and what it refuses."""

from __future__ import annotations

import pytest

from pravega_common.errors import DataCorruption
from segment_service.plog.loss_note import LossNote, LossNotes
from tests.support.fakes.cpo import InMemoryCPO


@pytest.fixture
def cpo() -> InMemoryCPO:
    return InMemoryCPO()


@pytest.fixture
def notes(cpo: InMemoryCPO) -> LossNotes:
    return LossNotes(cpo, 7)


def test_a_note_is_this_text_and_comes_back_from_it() -> None:
    text = '{"format": 1, "epoch": 2, "frames": 10}'
    assert LossNote(epoch=2, frames=10).encode() == text
    assert LossNote.decode(text) == LossNote(epoch=2, frames=10)


async def test_without_a_note_every_log_is_taken(notes: LossNotes) -> None:
    await notes.compare(0)


async def test_fewer_frames_than_noted_are_refused(notes: LossNotes) -> None:
    await notes.put(LossNote(epoch=2, frames=10))
    await notes.compare(10)
    with pytest.raises(DataCorruption, match=r"container 7: the log ends at frame 9, .* epoch 2 had acknowledged 10"):
        await notes.compare(9)


async def test_containers_have_notes_of_their_own(cpo: InMemoryCPO, notes: LossNotes) -> None:
    await notes.put(LossNote(epoch=2, frames=10))
    await LossNotes(cpo, 8).compare(0)


async def test_a_later_owner_replaces_the_note_and_an_earlier_one_does_not(notes: LossNotes) -> None:
    await notes.put(LossNote(epoch=2, frames=10))
    await notes.put(LossNote(epoch=4, frames=12))
    await notes.put(LossNote(epoch=3, frames=11))
    with pytest.raises(DataCorruption, match="epoch 4 had acknowledged 12"):
        await notes.compare(11)


@pytest.mark.parametrize("noted_before", [True, False])
async def test_a_log_that_begins_again_is_not_compared_with_the_one_before(
    notes: LossNotes, noted_before: bool
) -> None:
    if noted_before:
        await notes.put(LossNote(epoch=2, frames=10))
    await notes.begin_again(5)
    await notes.compare(0)
    await notes.put(LossNote(epoch=2, frames=11))
    await notes.compare(0)


@pytest.mark.parametrize("text", ["", "{}", "[]", "7", '{"format": 1}', '{"format": 1, "epoch": "x", "frames": 2}'])
async def test_a_note_that_cannot_be_read_is_refused(cpo: InMemoryCPO, notes: LossNotes, text: str) -> None:
    await cpo.set_once("log-acknowledged/7", text)
    with pytest.raises(DataCorruption, match="cannot be read"):
        await notes.compare(100)


async def test_a_note_of_a_later_program_is_refused(cpo: InMemoryCPO, notes: LossNotes) -> None:
    await cpo.set_once("log-acknowledged/7", '{"format": 2, "epoch": 1, "frames": 2}')
    with pytest.raises(DataCorruption, match="format 2; format 1 is known here"):
        await notes.compare(100)
