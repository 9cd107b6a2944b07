"""The checker must see what it looks for: every kind of violation, planted in a history and in whole runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from segment_service.plog.plog import FENCE
from segment_service.storage.rolling_storage import RollingStorage
from tests.simulator import redis_scripts
from tests.simulator.audit import Auditor
from tests.simulator.clients import Client, GivenUp
from tests.simulator.events import Event
from tests.simulator.history import History, MergeHistory, Progress, SegmentHistory
from tests.simulator.redis_server import SimulatedRedis
from tests.simulator.segments import SegmentLife
from tests.simulator.settings import draw
from tests.simulator.simulation import Outcome, simulate
from tests.simulator.tables import TableClient
from tests.simulator.transactions import Transactions
from tests.simulator.writers import Writer


class Case:
    """A segment with five events of one writer, acknowledged one after the other."""

    def __init__(self) -> None:
        self.history = History(lambda _: None)
        self.segment = self.history.new_segment("scope/segment")
        self.segment.created = Progress.DONE
        self.events = [self.segment.next_event(1, 50) for _ in range(5)]
        end = 0
        for event in self.events:
            end += len(event.data)
            self.segment.acked(event, end, epoch=1)

    def check(self, events: Sequence[Event], start: int = 0, tail: bytes = b"") -> list[str]:
        content = b"".join(event.data for event in events) + tail
        self.history.check_content(self.segment, start, content[start:], {})
        return [violation.kind for violation in self.history.violations]


def fresh(case: Case) -> Case:
    """The same events without what is known of their bytes, so that order alone is looked at."""
    case.segment.image = type(case.segment.image)()
    return case


def test_a_segment_that_is_right_has_no_violation() -> None:
    case = Case()
    assert not case.check(case.events)
    assert not case.check(case.events, start=100)


def test_lost_at_the_end() -> None:
    case = Case()
    assert case.check(case.events[:4]) == ["lost"]


def test_lost_in_the_middle() -> None:
    case = fresh(Case())
    assert case.check([*case.events[:2], *case.events[3:]]) == ["lost"]


def test_duplicated() -> None:
    case = Case()
    assert case.check([*case.events, case.events[4]]) == ["duplicated"]


def test_reordered() -> None:
    case = fresh(Case())
    first, second, *others = case.events
    assert case.check([first, second, *others, first]) == ["reordered"]


def test_phantom() -> None:
    case = Case()
    stranger = case.history.new_segment("scope/other").next_event(1, 20)
    assert case.check([*case.events, stranger]) == ["phantom"]


def test_torn() -> None:
    case = Case()
    unanswered = case.segment.next_event(1, 50)
    assert case.check(case.events, tail=unanswered.data[:30]) == ["torn"]


def test_whole_or_absent() -> None:
    case = Case()
    unanswered = case.segment.next_event(1, 50)
    assert not case.check(case.events)
    assert not case.check([*case.events, unanswered])


def test_wrong_byte() -> None:
    case = Case()
    data = bytearray(case.events[2].data)
    data[30] ^= 1
    assert case.check([*case.events[:2], Event(case.events[2].id, bytes(data)), *case.events[3:]]) == ["wrong byte"]


def merged(progress: Progress) -> tuple[Case, SegmentHistory]:
    case = Case()
    source = case.history.new_segment("scope/segment#transaction.1")
    for _ in range(3):
        source.next_event(1, 40)
    end = case.segment.length_acked + len(source.content)
    case.segment.merges[source.key] = MergeHistory(source, progress, end if progress is Progress.DONE else -1)
    return case, source


def test_a_merge_is_whole() -> None:
    case, source = merged(Progress.DONE)
    assert not case.check([*case.events, *source.writers[1].events])


def test_a_merge_that_is_lost() -> None:
    case, _ = merged(Progress.DONE)
    assert case.check(case.events) == ["lost"]


def test_a_merge_in_pieces() -> None:
    case, source = merged(Progress.ASKED)
    events, later = source.writers[1].events, case.segment.next_event(1, 10)
    assert case.check([*case.events, *events[:2], later, events[2]]) == ["torn"]


def test_two_acks_for_the_same_bytes() -> None:
    case = Case()
    case.segment.acked(case.segment.next_event(1, 50), case.segment.length_acked, epoch=2)
    assert [violation.kind for violation in case.history.violations] == ["wrong byte"]


def test_a_writer_that_is_told_less_than_it_was() -> None:
    case = Case()
    case.segment.attribute_seen(1, 3, epoch=2)
    assert [violation.kind for violation in case.history.violations] == ["lost"]


# --- when a run is audited -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("client", "work"), [(Transactions, "_one"), (SegmentLife, "_truncate"), (TableClient, "_raise")]
)
def test_nobody_writes_any_more_when_one_client_gave_up(
    monkeypatch: pytest.MonkeyPatch, client: type[Client], work: str
) -> None:
    """An audit between a writer's appends would find what one of them changed, and not the rest of it."""
    given_up, audits = 0, 0
    changing = {work.__qualname__ for work in (Writer.run, Transactions.run, TableClient.run)}
    look = Auditor.look

    async def give_up(one: Client, *_: object) -> None:
        nonlocal given_up
        if isinstance(one, TableClient) and not one.name.endswith(" 0"):
            await asyncio.sleep(20.0)  # longer than the other clients need in the end
            return
        given_up += 1
        raise GivenUp

    async def look_alone(auditor: Auditor, segment: str) -> Any:
        nonlocal audits
        audits += 1
        assert not [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__qualname__", "") in changing]
        return await look(auditor, segment)

    monkeypatch.setattr(client, work, give_up)
    monkeypatch.setattr(Auditor, "look", look_alone)
    for seed in range(2):
        outcome = simulate(draw(seed, ("crash",)))
        assert not outcome.violations, outcome.violations
    assert given_up
    assert audits


# --- whole runs of a product that is broken on purpose ---------------------------------------------------------------

Break = Callable[[pytest.MonkeyPatch], None]


def tier1_forgets_an_append(patch: pytest.MonkeyPatch) -> None:
    """Every 40th append is answered, and not stored."""
    answer, count = SimulatedRedis._answer, 0

    def forgetful(server: SimulatedRedis, request: list[bytes]) -> bytes:
        nonlocal count
        if request[0] == b"XADD":
            count += 1
            if count % 40 == 0:
                return b"$%d\r\n%b\r\n" % (len(request[3]), request[3])
        return answer(server, request)

    patch.setattr(SimulatedRedis, "_answer", forgetful)


def tier2_swaps_bytes(patch: pytest.MonkeyPatch) -> None:
    """A long read from Tier 2 has one byte of another kind."""
    read = RollingStorage.read

    async def wrong(storage: RollingStorage, segment_id: int, offset: int, length: int) -> bytes:
        data = bytearray(await read(storage, segment_id, offset, length))
        if len(data) > 500:
            data[400] ^= 0xFF
        return bytes(data)

    patch.setattr(RollingStorage, "read", wrong)


def nobody_is_fenced(patch: pytest.MonkeyPatch) -> None:
    """A fence says that it was done, and leaves the plog to its old owner."""

    def fence(call: Any, keys: Sequence[bytes], argv: Sequence[bytes]) -> Any:
        call("HSET", keys[0], "epoch", argv[0], "fences", argv[1])
        return [b"ok"]

    patch.setitem(redis_scripts.SCRIPTS, FENCE.digest, fence)


def outcomes_until_one_fails(seeds: int) -> Outcome | None:
    for seed in range(seeds):
        outcome = simulate(draw(seed, ("crash",)))
        if outcome.violations:
            return outcome
    return None


@pytest.mark.parametrize("break_it", [tier1_forgets_an_append, tier2_swaps_bytes, nobody_is_fenced])
def test_a_broken_product_is_found(monkeypatch: pytest.MonkeyPatch, break_it: Break) -> None:
    break_it(monkeypatch)
    assert outcomes_until_one_fails(5) is not None
