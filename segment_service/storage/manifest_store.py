"""Reads and writes the manifests of one container, and keeps the views made of them."""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar
from weakref import WeakValueDictionary

from pravega_common.errors import DataCorruption, Fenced, SegmentNotFound, Unavailable, UnknownOutcome
from pravega_common.invariants import check, unreachable
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.storage.chunk_format import ChunkForm, cut, stored_length
from segment_service.storage.chunk_names import Layout, ManifestId, ManifestName, is_entry_number, placed_number
from segment_service.storage.chunk_reader import damage_to
from segment_service.storage.garbage import GarbageCollector
from segment_service.storage.manifest import ChunkRef, Manifest, decode, encode, encoded_length
from segment_service.storage.segment_view import Change, SegmentView

T = TypeVar("T")
Entry = tuple[str, Sequence[Buffer]]
"""The name and the bytes of an entry of the map ``shared``."""
Put = Callable[[str, Sequence[Buffer]], Awaitable[None]]
PutTogether = Callable[[Sequence[Entry]], Awaitable[None]]
OnStored = Callable[[SegmentView], None]
"""Called with the state of a segment whose manifest was stored."""
OnUnanswered = Callable[[int], None]
"""Called with a segment of which a put had no answer: it may still be done when its name was deleted already."""

views_max = 20_000
"""Segments whose chunk lists stay in memory; others are read again when they are used."""

put_attempts_max = 3
"""Names tried for one object whose put keeps having no answer."""

load_attempts_max = 5
"""How often a segment is listed again when an object of the listing is gone (it was replaced meanwhile)."""


class ManifestStore:
    """Manifests by segment. The caller that changes or loads a segment holds its lock."""

    def __init__(self, chunks: ChunkStorage, layout: Layout, garbage: GarbageCollector) -> None:
        self.epoch = 0
        self.entry_bytes_max: int | None = None
        """Manifests and chunks of at most this length become entries of the map ``shared``; ``None``: none, and their
        names say nothing about it. Set once, before the first name of an epoch."""
        self.put_together: PutTogether | None = None
        """Puts several entries at once, all or none; set with ``entry_bytes_max``."""
        self.handed_over: set[int] = set()
        """Segments whose chunks another one may list already, while their own tombstone is not stored: their chunks
        must not be touched on their account."""
        self.on_unanswered: OnUnanswered = lambda segment_id: None
        self.on_stored: OnStored = lambda view: None
        self._chunks = chunks
        self._layout = layout
        self._garbage = garbage
        self._numbers = itertools.count(1)
        self._unanswered: dict[int, int] = {}
        """By segment, the highest number of this epoch under which a manifest may still come, if no put had an answer
        since."""
        self._views: OrderedDict[int, SegmentView] = OrderedDict()
        self._locks: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    def new_number(self) -> int:
        """A number for a name that was never used in this epoch."""
        return next(self._numbers)

    def lock(self, segment_id: int) -> asyncio.Lock:
        lock = self._locks.get(segment_id)
        if lock is None:
            lock = self._locks[segment_id] = asyncio.Lock()
        return lock

    def cached(self, segment_id: int) -> SegmentView | None:
        """The view if it is in memory; never waits."""
        view = self._views.get(segment_id)
        if view is not None:
            self._views.move_to_end(segment_id)
        return view

    async def view(self, segment_id: int) -> SegmentView:
        """The view, from memory or from Tier 2; without a manifest if Tier 2 has nothing of the segment."""
        return self.cached(segment_id) or await self.load(segment_id)

    def forget(self, segment_id: int) -> None:
        """Drop the view: after a failed change only Tier 2 knows the state."""
        self._views.pop(segment_id, None)

    async def put_chunk(self, segment_id: int, data: Sequence[Buffer]) -> ChunkRef:
        """Store bytes, with their checksums, under a fresh name; names without an answer become garbage."""
        blocks = await cut(data)
        length, checksum = sum(map(len, data)), blocks.checksum

        def fresh() -> tuple[ChunkRef, str, Sequence[Buffer]]:
            number = self._new_placed_number(is_entry=self.is_entry_length(length))
            chunk = ChunkRef(segment_id, self.epoch, number, length, ChunkForm.BLOCKS, checksum)
            name = self._layout.chunk(chunk.id)
            return chunk, name, blocks.named(name)

        return await self.put_for(segment_id, fresh)

    def _discard_unanswered(self, segment_id: int, names: Sequence[str]) -> None:
        if names:
            self._garbage.discard(names)
            self.on_unanswered(segment_id)

    def _new_placed_number(self, *, is_entry: bool) -> int:
        """The number for the name of a manifest or chunk, which says where it lies."""
        count = next(self._numbers)
        return count if self.entry_bytes_max is None else placed_number(count, is_entry=is_entry)

    def is_entry_length(self, length: int) -> bool:
        """Whether a chunk with this length of data becomes an entry of the map ``shared``."""
        return self._is_entry(stored_length(length))

    async def new_entry(self, segment_id: int, data: Sequence[Buffer]) -> tuple[ChunkRef, Entry]:
        """Name bytes as a chunk, for ``commit``; nothing is stored."""
        blocks = await cut(data)
        length = sum(map(len, data))
        number = self._new_placed_number(is_entry=True)
        chunk = ChunkRef(segment_id, self.epoch, number, length, ChunkForm.BLOCKS, blocks.checksum)
        name = self._layout.chunk(chunk.id)
        return chunk, (name, blocks.named(name))

    async def commit(self, view: SegmentView, change: Change, entry: Entry | None = None) -> None:
        """Store the manifest of a change and move the view to it; what it replaces becomes garbage. On an error the
        view is dropped. ``entry``: a chunk that the change adds and that is stored with the manifest."""
        self._garbage.discard(await self.replace(view, change, entry))

    async def replace(self, view: SegmentView, change: Change, entry: Entry | None = None) -> list[str]:
        """``commit`` that returns the names of the replaced manifests instead of discarding them."""
        replaced = [name for name in (view.name, view.base_name) if name is not None]
        foreign = view.foreign_after(change)
        try:
            manifest, name = await self._put_manifest(view, change, foreign, entry)
        except BaseException:
            self.forget(view.segment_id)
            raise
        view.apply(change, name, manifest)
        self._keep(view)
        self.on_stored(view)
        live = {view.name, view.base_name}
        return [self._layout.manifest(old) for old in dict.fromkeys(replaced) if old not in live]

    def is_settled(self, view: SegmentView) -> bool:
        """Whether the manifest that counts is of this epoch, and none that was put without an answer can replace it."""
        if view.name is None or view.name.id.epoch != self.epoch:
            return False
        return view.name.id.sequence >= self._unanswered.get(view.segment_id, 0)

    async def _put_manifest(
        self, view: SegmentView, change: Change, foreign: bool, entry: Entry | None
    ) -> tuple[Manifest, ManifestName]:
        """A put without an answer is repeated with a higher sequence number, which replaces it if it was done."""
        draft = view.next_manifest(change, ManifestId(self.epoch, self.new_number()))
        is_small = all(is_entry_number(chunk.counter) for chunk in change.add)
        is_entry = is_small and self._is_entry(encoded_length(draft))  # beside a large chunk, do not wait for others
        put: Put = self._chunks.put
        if entry is not None and is_entry:
            put = self._put_with(entry)
        elif entry is not None:
            await put(*entry)
        if not is_entry and self._rests_on_entries(draft):
            await self._garbage.pass_barrier()

        def fresh() -> tuple[tuple[Manifest, ManifestName], str, Sequence[Buffer]]:
            manifest = draft.with_id(ManifestId(self.epoch, self._new_placed_number(is_entry=is_entry)))
            self._unanswered[view.segment_id] = manifest.id.sequence
            name = manifest.name(foreign)
            return (manifest, name), self._layout.manifest(name), [encode(manifest)]

        unanswered: list[str] = []
        stored = await self.put_fresh(fresh, unanswered, put)
        self._unanswered.pop(view.segment_id, None)
        self._discard_unanswered(view.segment_id, unanswered)
        return stored

    def _put_with(self, entry: Entry) -> Put:
        """Put an object and the entry beside it. An entry may be put again under its name: it is in the map or not."""
        put_together = self.put_together
        check(put_together is not None, "entries in an epoch that shares none", entry=entry[0])

        async def put(name: str, data: Sequence[Buffer]) -> None:
            if put_together is not None:
                await put_together((entry, (name, data)))

        return put

    def _is_entry(self, length: int) -> bool:
        return self.entry_bytes_max is not None and length <= self.entry_bytes_max

    def _rests_on_entries(self, manifest: Manifest) -> bool:
        """Whether the manifest, put as an object, needs entries: later owners see it also if it is put after they
        opened the map ``shared``, and maybe not those. No later owner at the time of a barrier: then they see both."""
        own = [chunk.counter for chunk in manifest.chunks if chunk.epoch == self.epoch]
        if not manifest.is_base:
            own.append(manifest.base.sequence)
        return any(map(is_entry_number, own))

    async def put_fresh(
        self, fresh: Callable[[], tuple[T, str, Sequence[Buffer]]], unanswered: list[str], put: Put | None = None
    ) -> T:
        """Put what ``fresh`` makes, under another name as long as there is no answer; those names are added to
        ``unanswered``. ``Unavailable`` only if nothing was stored under any name."""
        for _ in range(put_attempts_max):
            made, name, data = fresh()
            try:
                await (put or self._chunks.put)(name, data)
                return made
            except UnknownOutcome:
                unanswered.append(name)
            except Unavailable as error:
                if not unanswered:
                    raise
                raise UnknownOutcome(f"no answer for {unanswered[-1]}, and then: {error}") from error
        raise UnknownOutcome(f"no answer for {put_attempts_max} puts in a row, the last one {unanswered[-1]}")

    async def put_for(self, segment_id: int, fresh: Callable[[], tuple[T, str, Sequence[Buffer]]]) -> T:
        """``put_fresh`` of an object that nothing names yet: all names without an answer become garbage of the segment,
        also if it fails."""
        unanswered: list[str] = []
        try:
            return await self.put_fresh(fresh, unanswered)
        finally:
            self._discard_unanswered(segment_id, unanswered)

    async def load(self, segment_id: int) -> SegmentView:
        """Read the manifests from Tier 2. ``Fenced`` if one carries a higher epoch, ``SegmentDamaged`` if one is
        wrong."""
        with damage_to(segment_id):
            return await self._load(segment_id)

    async def _load(self, segment_id: int) -> SegmentView:
        for attempt in range(load_attempts_max):
            lengths: dict[ManifestName, int] = {}
            async for info in self._chunks.list(self._layout.manifests_of(segment_id)):
                lengths[self._layout.parse_manifest(info.name)] = info.length
            try:
                view = await self._view_of(segment_id, lengths)
            except SegmentNotFound:
                if attempt < load_attempts_max - 1:
                    continue
                view = SegmentView.dangling(segment_id, max(lengths, key=lambda one: one.id))
            self._keep(view)
            live = {view.name, view.base_name}
            if not view.is_dangling:
                self._garbage.discard_found(self._layout.manifest(name) for name in lengths if name not in live)
            return view
        unreachable("the last attempt returns", segment=segment_id)

    async def _view_of(self, segment_id: int, lengths: dict[ManifestName, int]) -> SegmentView:
        if not lengths:
            return SegmentView(segment_id)
        name = max(lengths, key=lambda one: one.id)
        if name.id.epoch > self.epoch:
            raise Fenced(f"segment {segment_id} was changed at epoch {name.id.epoch}, this owner has {self.epoch}")
        manifest = await self._get(name, lengths[name])
        if manifest.is_base:
            return SegmentView.of(name, manifest, name, manifest)
        base_name = next((one for one in lengths if one.id == manifest.base), None)
        if base_name is None:
            raise SegmentNotFound(f"base of {name}")
        return SegmentView.of(name, manifest, base_name, await self._get(base_name, lengths[base_name]))

    async def _get(self, name: ManifestName, length: int) -> Manifest:
        text = self._layout.manifest(name)
        manifest = decode(await self._chunks.get(text, 0, length), text)
        if manifest.segment_id != name.segment_id or manifest.id != name.id:
            raise DataCorruption(f"manifest {text} says that it is {manifest.segment_id} {manifest.id}")
        return manifest

    def _keep(self, view: SegmentView) -> None:
        if view.name is None:
            self.forget(view.segment_id)
            return
        self._views[view.segment_id] = view
        self._views.move_to_end(view.segment_id)
        while len(self._views) > views_max:
            self._views.popitem(last=False)
