"""Deletes objects of one container, when it is proven that nobody can need them any more.

Only by deleting could an owner that was fenced without knowing it do harm. So a name is deleted
only after ``barrier`` returned, called after the manifest without that name was stored: a later owner of the
container opens its log after that barrier, and so sees that manifest. And a name with a higher epoch is never deleted.
Names that lead later owners to others, or say that others do not count, go after those, once it is proven that later
owners do not see those any more: a chunk storage may make deletions durable some time after they returned. They stay if
it cannot delete those.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from pravega_common.errors import Fenced, PravegaError
from pravega_common.invariants import check
from pravega_common.runtime.clock import Clock
from pravega_common.runtime.failpoints import failpoint, register
from pravega_common.services.base import Service
from segment_service.contracts.chunk_storage import ChunkStorage, names_per_deletion_max
from segment_service.contracts.segment_storage import Barrier
from segment_service.storage.chunk_names import Layout

BARRIER_PASSED = register("storage.garbage.barrier_passed")
SOME_DELETED = register("storage.garbage.some_deleted")

waiting_names_max = 200_000
"""Names that wait for deletion. While there are as many, no more are taken: they are left for the sweep of the next
epoch. The names of one change may be more than that, and are taken together, or no sweep would ever delete them."""

names_per_barrier_max = 1_000
"""Names deleted after one barrier, but for the last group, which is taken as a whole. Those that wait for a name of
another group are not counted: as many of them would keep that one from its turn."""

gathering_time_s = 1.0
"""How long names are gathered before a barrier is asked for them."""

retry_delay_max_s = 30.0
"""Longest wait after a failed round."""

Settle = Callable[[], Awaitable[bool]]
"""Makes what was deleted before durable. Whether that counts only if there was no later owner yet, which a barrier
after it must prove."""

IsLate = Callable[[str], bool]
"""Whether the deletion of this name may be durable only when ``Settle`` returns."""


async def nothing_to_settle() -> bool:
    """As ``Settle``, of a chunk storage whose deletions are for good when they return."""
    return False


Stays = Callable[[str], bool]
"""Whether this owner cannot delete this name."""


def never(name: str) -> bool:
    """As ``IsLate`` and ``Stays``, of such a chunk storage."""
    return False


class _Group(deque[str]):
    """Names that are deleted in order, but for neighbours that lead nowhere."""

    is_ordered = True
    """Whether a name may lead to those in front of it."""
    must_settle = False
    """Whether its next name waits until what was deleted before it is gone for good."""
    is_late = False
    """Whether names of it were deleted that may not be gone for good."""
    keeps = False
    """Whether names of it stay; then all do that lead to them."""
    is_blocked = False
    """Whether its next name waited, when it was tried last, for one of another group."""
    dropped_before: int | None = None
    """Names that were dropped when it was discarded, if it goes only as long as no others are."""


class GarbageCollector(Service):
    """A queue of groups of names. The names of one group are deleted in order, groups in any order, but for those of
    ``discard_last``."""

    def __init__(self, container_id: int, chunks: ChunkStorage, layout: Layout, clock: Clock) -> None:
        super().__init__(f"storage-garbage-{container_id}")
        self.deleted_names = 0
        self.dropped_names = 0
        self.epoch = 0
        self._barrier: Barrier | None = None
        self._settle: Settle = nothing_to_settle
        self._is_late: IsLate = never
        self._stays: Stays = never
        self._chunks = chunks
        self._layout = layout
        self._clock = clock
        self._groups: deque[_Group] = deque()
        self._waiting = 0
        self._found: dict[str, set[str]] = {}
        """Names that wait, of ``discard_found``, by what stands in front of their last part."""
        self._found_late: set[str] = set()
        """Those of them that were deleted, and may not be gone for good."""
        self._kept: set[str] = set()
        """What stands in front of the last part of names that looks found, and that stay."""
        self._wake = asyncio.Event()

    def open(
        self,
        epoch: int,
        barrier: Barrier,
        settle: Settle = nothing_to_settle,
        is_late: IsLate = never,
        stays: Stays = never,
    ) -> None:
        """Set what ``collect`` needs; called before ``start``."""
        self.epoch = epoch
        self._barrier = barrier
        self._settle = settle
        self._is_late = is_late
        self._stays = stays

    async def on_start(self) -> None:
        self.spawn(self._run(), "collect")

    @property
    def waiting_names(self) -> int:
        return self._waiting

    def discard(self, names: Sequence[str]) -> None:
        """Delete these in order, some time after the next barrier. The manifest without them must be stored."""
        self._add(_Group(names))

    def discard_last(self, names: Sequence[str]) -> None:
        """As ``discard``, and after everything that is discarded by now is deleted for good; not if some stays."""
        group = _Group(names)
        group.must_settle = True
        group.dropped_before = self.dropped_names
        self._add(group)

    def discard_found(self, names: Iterable[str]) -> None:
        """As ``discard``, in any order, of what a look into the chunk storage found. Looks that come faster than
        deletions find the same names: those that wait of earlier looks are not taken again."""
        group = _Group()
        group.is_ordered = False
        for name in names:
            if self._stays(name):
                self._kept.add(_folder_of(name))
            elif name not in self._found.get(_folder_of(name), ()):
                group.append(name)
        if self._add(group):
            for name in group:
                self._found.setdefault(_folder_of(name), set()).add(name)

    def _add(self, group: _Group) -> bool:
        """Whether there was room for a name more."""
        if not group:
            return True
        if self._waiting >= waiting_names_max:
            self.dropped_names += len(group)
            return False
        self._waiting += len(group)
        self._groups.append(group)
        self._wake.set()
        return True

    async def pass_barrier(self) -> None:
        """Return once the log proved that there was no later owner when this was called; ``Fenced`` if there is."""
        check(self._barrier is not None, "storage is not started")
        if self._barrier is not None:
            await self._barrier()

    async def collect(self) -> int:
        """One round: barrier, then delete what was waiting before it. How many names went; those that failed wait on,
        and the first failure is raised."""
        if self._barrier is None or not self._groups:
            return 0
        before = self.deleted_names
        taken = self._take()
        try:
            for group in taken:
                self._check_epochs(group)
            await self.pass_barrier()
            failpoint(BARRIER_PASSED)
            await self._delete(taken)
        finally:
            self._groups.extendleft(reversed(taken))
        return self.deleted_names - before

    def _take(self) -> list[_Group]:
        taken: list[_Group] = []
        count = 0
        while self._groups and count < names_per_barrier_max:
            taken.append(self._groups.popleft())
            count += 0 if taken[-1].is_blocked else len(taken[-1])
        return taken

    def _check_epochs(self, names: Iterable[str]) -> None:
        for name in names:
            if self._layout.epoch_in(name) > self.epoch:
                raise Fenced(f"epoch {self.epoch} may not delete {name}, which a later owner made")

    async def _delete(self, groups: list[_Group]) -> None:
        """Delete all names of the groups that may go, and take off what went. Groups that wait for a name of a later
        round are left, and with them what goes last."""
        while groups:
            try:
                await self._delete_in_order([group for group in groups if not group.must_settle])
            finally:
                groups[:] = filter(None, groups)
            late = [group for group in groups if group.is_late]
            if late:
                await self._settle_before(late)
            elif groups and groups[0].must_settle:  # it goes last, and all before it are through
                await self._settle_before(groups[:1])
            else:
                return

    async def _settle_before(self, groups: Sequence[_Group]) -> None:
        """Make sure that what was deleted is gone for good, and let the groups go on."""
        late = tuple(self._found_late)
        if await self._settle():
            await self.pass_barrier()  # the one before the deletions says nothing of a later owner that came since
        for name in late:
            self._forget_found(name)
        for group in groups:
            group.must_settle = group.is_late = False

    async def _delete_in_order(self, groups: Sequence[_Group]) -> None:
        """Delete the names of each group in order, while any has one that may go: those that may, of all groups, at
        once. A group of which a deletion failed waits, and all do when nothing can be deleted; the first failure is
        raised at the end."""
        going, failure = list(groups), None
        while fronts := self._fronts(going):
            wanted = dict.fromkeys(itertools.chain.from_iterable(names for _, names in fronts))
            failed = await self._chunks.delete_all(list(wanted))
            failpoint(SOME_DELETED)
            for group, names in fronts:
                self._take_off(group, names, failed)
            failure = failure or next(iter(failed.values()), None)
            if len(failed) == len(wanted):
                break
            stuck = {id(group) for group, names in fronts if not failed.keys().isdisjoint(names)}
            going = [group for group in going if group and id(group) not in stuck]
        if failure is not None:
            raise failure

    def _fronts(self, groups: Iterable[_Group]) -> list[tuple[_Group, list[str]]]:
        """The groups with names that may go now, and those names: as many as one deletion takes."""
        fronts: list[tuple[_Group, list[str]]] = []
        room = names_per_deletion_max
        for group in groups:
            names = self._front(group, room)
            if names:
                fronts.append((group, names))
                room -= len(names)
            if not room:
                break
        return fronts

    def _front(self, group: _Group, count_max: int) -> list[str]:
        """The first names of a group that may go at the same time; those before them that stay are taken off."""
        while group and not group.must_settle and self._must_stay(group, group[0]):
            self._drop(group.popleft(), is_noted=group.dropped_before is not None)
        if not group or group.must_settle:
            return []
        may_go = self._may_go(group, group[0])
        group.is_blocked = not may_go and not group.must_settle
        if not may_go:
            return []
        is_late, others = self._is_late(group[0]), itertools.islice(group, 1, count_max)
        if not self._leads_nowhere(group, group[0]):
            return [group[0]]
        return [
            group[0],
            *itertools.takewhile(
                lambda name: (
                    self._leads_nowhere(group, name) and self._is_late(name) == is_late and not self._stays(name)
                ),
                others,
            ),
        ]

    def _leads_nowhere(self, group: _Group, name: str) -> bool:
        """Whether the names behind this one in its group need not wait for it."""
        if group.is_ordered:
            return self._layout.is_chunk(name) or self._layout.is_map_file(name)
        return not self._layout.is_tombstone(name)

    def _take_off(self, group: _Group, names: Sequence[str], failed: Mapping[str, PravegaError]) -> None:
        """Take those off that are gone, up to the first of which that is not known."""
        for name in names:
            if name in failed:
                return
            self._note_deleted(group, name)

    def _note_deleted(self, group: _Group, name: str) -> None:
        check(group.popleft() == name, "names of a group were deleted out of order", name=name)
        if self._is_late(name) and name in self._found.get(_folder_of(name), ()):
            self._found_late.add(name)
        else:
            self._forget_found(name)
        self._waiting -= 1
        self.deleted_names += 1
        group.is_late = group.is_late or self._is_late(name)
        # A later owner that still sees the first ones must find what leads it to them.
        group.must_settle = group.is_late and bool(group) and not self._is_late(group[0])

    def _must_stay(self, group: _Group, name: str) -> bool:
        """Whether the next name of a group stays: it cannot be deleted, or leads to one that stays."""
        if self._layout.is_chunk(name):
            stays = self._stays(name)
            group.keeps = group.keeps or stays
            return stays
        group.keeps = (
            group.keeps
            or self._stays(name)
            or group.dropped_before not in (None, self.dropped_names)
            or (_folder_of(name) in self._kept and self._layout.is_tombstone(name))
        )
        return group.keeps

    def _drop(self, name: str, *, is_noted: bool) -> None:
        """Leave a name to later owners; ``is_noted``: they find it without a journal."""
        self._forget_found(name)
        self._waiting -= 1
        self.dropped_names += not is_noted

    def _may_go(self, group: _Group, name: str) -> bool:
        """Whether the next name of a group may be deleted. A tombstone goes after the manifests that it replaced: each
        would count again without it. Those that its owner knew are in front of it in its group, others a look found."""
        found = self._found.get(_folder_of(name))
        if found is None or name in found or not self._layout.is_tombstone(name):
            return True
        if not found <= self._found_late:
            return False
        group.is_late = group.must_settle = not self._is_late(name)
        return not group.must_settle

    def _forget_found(self, name: str) -> None:
        self._found_late.discard(name)
        folder = _folder_of(name)
        found = self._found.get(folder)
        if found is not None:
            found.discard(name)
            if not found:
                del self._found[folder]

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._clock.sleep(min(retry_delay_max_s, gathering_time_s * 2**failures))
            try:
                await self.collect()
                failures = 0
            except Fenced as error:
                self.log.warning("garbage is left to the next owner", reason=str(error))
                return
            except PravegaError as error:
                failures = min(failures + 1, 10)
                self.log.warning("garbage could not be deleted", error=str(error), names=self._waiting)
            if self._groups:
                self._wake.set()


def _folder_of(name: str) -> str:
    """The part of a name that all manifests of one segment have."""
    return name.rpartition("/")[0]
