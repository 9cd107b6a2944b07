"""The metadata plog that a rebuild registers, from what the servers of a group of three have."""

from __future__ import annotations

import pytest

from pravega_common.errors import DataCorruption, Unavailable
from segment_service.maintenance.cpo_rebuild import ContainerFacts, _container
from segment_service.maintenance.plog_census import CopyFacts, ServerCensus
from segment_service.plog.metadata_records import FullRecord, PlogRecord, StreamRecord
from segment_service.plog.plog import FenceToken, PlogHeader, PlogId

OLD, NEW, DATA = (PlogId("c", "g", name) for name in ("old", "new", "data"))
EMPTY = "empty"
AWAY = "away"


def copy(plog_id: PlogId, number: int, epoch: int, *, token: int = 0, is_full: bool = True) -> CopyFacts:
    stream = "data" if plog_id == DATA else "metadata"
    header = PlogHeader(plog_id, 0, stream, number, epoch, 1_000_000)
    state = FullRecord({"data": StreamRecord((PlogRecord(0, DATA, 0, None),), None, 1)}, number)
    metadata = state if is_full and stream == "metadata" else None
    return CopyFacts(header, FenceToken(max(token, epoch)), is_full, metadata)


def facts(*servers: str | list[CopyFacts], marked_epoch: int = 0) -> ContainerFacts:
    census = [ServerCensus("g", index, f"h:{index}") for index in range(len(servers))]
    for one, what in zip(census, servers, strict=True):
        if what == AWAY:
            one.error = "is not reachable"
        elif not isinstance(what, str):
            one.identity = f"identity {one.index}"
            one.plogs = {0: {plog.header.plog_id: plog for plog in what}}
    return _container(0, census, marked_epoch)


old, new, data = copy(OLD, 1, 5), copy(NEW, 2, 5), copy(DATA, 0, 3)


def test_the_highest_epoch_then_the_highest_number_is_the_newest() -> None:
    assert facts([old, new, data], [old, new], [old, new, data]) == ContainerFacts(0, 5, NEW, 3)
    later = copy(OLD, 1, 6)
    assert facts([later, new, data], [later, new], [later, new]).metadata_plog == OLD


def test_the_epoch_is_above_every_one_shown() -> None:
    fenced = copy(DATA, 0, 3, token=9)
    assert facts([old, data], [old, fenced], [old]).epoch == 9
    assert facts([old, data], [old], [old], marked_epoch=12).epoch == 12


def test_one_without_a_full_record_does_not_count() -> None:
    begun = copy(NEW, 2, 5, is_full=False)
    assert facts([old, begun, data], [old, begun], [old, begun]).metadata_plog == OLD


def test_one_that_a_minority_has_was_never_registered() -> None:
    assert facts([old, new, data], [old], [old]).metadata_plog == OLD


@pytest.mark.parametrize("third", [AWAY, EMPTY])
def test_one_that_may_be_on_a_majority_waits_for_the_others(third: str) -> None:
    assert facts([old, new, data], [old, new], third).metadata_plog == NEW
    with pytest.raises(Unavailable, match=r"new is on 1 of 3 servers, and 1 of them do not answer or are empty"):
        facts([old, new, data], [old], third)


def test_a_log_that_must_be_there_and_is_not_is_damage() -> None:
    assert facts([], [], []) == ContainerFacts(0, 0, None, 0)
    with pytest.raises(DataCorruption, match="has data plogs, but no metadata plog"):
        facts([copy(DATA, 0, 3)], [], [])
    with pytest.raises(DataCorruption, match="has a mark of epoch 4 in Tier 2, but no metadata plog"):
        facts([], [], [], marked_epoch=4)
    with pytest.raises(DataCorruption, match="names plogs that no server has: c/g/data"):
        facts([old], [old], [old])
