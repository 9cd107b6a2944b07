"""Names the objects of one container in Tier 2.

::

    c00003/e/<epoch>-<attempt>                       this epoch was opened, over a log in that state (epoch_marks.py)
    c00003/m/<segment>/<epoch>-<sequence>-<kind>     manifests of a segment; the highest (epoch, sequence) counts
    c00003/d/<segment>/<epoch>-<counter>             chunks that were written for a segment
    c00003/f/<segment>/<owner>-<epoch>-<number>      ``owner`` may list chunks of ``segment`` (foreign_owners.py)
    c00003/j/<epoch>-<number>                        segments that an owner changed of late (change_journal.py)
    c00003/t/<map>/m/<epoch>-<sequence>              manifests of a sorted map (sorted_runs/), as those of a segment
    c00003/t/<map>/r/<epoch>-<counter>               files of its runs

All numbers are 16 hexadecimal digits, so that names sort as their numbers do. ``sequence`` and ``counter`` come from
one counter per container and epoch: no name is ever used twice.

In an epoch that shares objects (shared_objects.py) that count is doubled, the highest bit of the number is set, and its
lowest bit says that the manifest or chunk is an entry of the map ``shared``, and not an object. Before, and in epochs
that do not share, the number is the count, and the highest bit is clear.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from pravega_common.errors import DataCorruption

_IS_PLACED: Final = 1 << 63


def placed_number(count: int, *, is_entry: bool) -> int:
    """The number in a name of an epoch that shares objects. Later counts make higher numbers."""
    return _IS_PLACED | count << 1 | is_entry


def is_entry_number(number: int) -> bool:
    """Whether a manifest or chunk with this number in its name lies in the map ``shared``."""
    return bool(number & _IS_PLACED and number & 1)


class ManifestId(NamedTuple):
    """The order of manifests of one segment."""

    epoch: int
    sequence: int


class ManifestKind(enum.Enum):
    """The last part of a manifest's name, from which a sweep decides without reading it."""

    BASE = "b"
    BASE_FOREIGN = "bf"
    """Base of a segment that has chunks of other segments (it merged them)."""
    DELTA = "d"
    DELTA_FOREIGN = "df"
    TOMBSTONE = "t"

    @property
    def is_foreign(self) -> bool:
        """Whether the segment has chunks that were written for others."""
        return self in (ManifestKind.BASE_FOREIGN, ManifestKind.DELTA_FOREIGN)


class ManifestName(NamedTuple):
    segment_id: int
    id: ManifestId
    kind: ManifestKind


class ChunkId(NamedTuple):
    """The segment that the chunk was *written* for; a merge gives it another owner and leaves the name."""

    segment_id: int
    epoch: int
    counter: int


class ForeignOwner(NamedTuple):
    """An object that says: the segment ``owner_id`` may list chunks that were written for ``segment_id``."""

    segment_id: int
    owner_id: int
    epoch: int
    number: int


class MapObjectId(NamedTuple):
    """A manifest or a file of a sorted map, by epoch and number."""

    epoch: int
    number: int


class Layout:
    """Makes and reads the names of one container."""

    def __init__(self, container_id: int) -> None:
        self.prefix = f"c{container_id:05d}/"
        self.epochs = f"{self.prefix}e/"
        self.manifests = f"{self.prefix}m/"
        self.chunks = f"{self.prefix}d/"
        self.foreign_owners = f"{self.prefix}f/"
        self.journals = f"{self.prefix}j/"
        self.journal_of_all = self.journal(0, 0)
        """A name that no owner gives. An object of any bytes there lets the next sweep look at all segments."""
        self.maps = f"{self.prefix}t/"

    def epoch(self, epoch: int, attempt: int) -> str:
        return f"{self.epochs}{epoch:016x}-{attempt:016x}"

    def manifests_of(self, segment_id: int) -> str:
        return f"{self.manifests}{segment_id:016x}/"

    def manifest(self, name: ManifestName) -> str:
        return f"{self.manifests_of(name.segment_id)}{name.id.epoch:016x}-{name.id.sequence:016x}-{name.kind.value}"

    def chunks_of(self, segment_id: int) -> str:
        return f"{self.chunks}{segment_id:016x}/"

    def chunk(self, chunk: ChunkId) -> str:
        return f"{self.chunks_of(chunk.segment_id)}{chunk.epoch:016x}-{chunk.counter:016x}"

    def foreign_owners_of(self, segment_id: int) -> str:
        return f"{self.foreign_owners}{segment_id:016x}/"

    def foreign_owner(self, one: ForeignOwner) -> str:
        return f"{self.foreign_owners_of(one.segment_id)}{one.owner_id:016x}-{one.epoch:016x}-{one.number:016x}"

    def journal(self, epoch: int, number: int) -> str:
        return f"{self.journals}{epoch:016x}-{number:016x}"

    def map_manifests(self, map_name: str) -> str:
        return f"{self.maps}{map_name}/m/"

    def map_manifest(self, map_name: str, manifest: ManifestId) -> str:
        return f"{self.map_manifests(map_name)}{manifest.epoch:016x}-{manifest.sequence:016x}"

    def map_files(self, map_name: str) -> str:
        return f"{self.maps}{map_name}/r/"

    def map_file(self, map_name: str, file: MapObjectId) -> str:
        return f"{self.map_files(map_name)}{file.epoch:016x}-{file.number:016x}"

    def parse_map_object(self, name: str) -> MapObjectId:
        folder, _, _ = name.rpartition("/")
        if not name.startswith(self.maps) or folder[-2:] not in ("/m", "/r"):
            raise DataCorruption(f"Tier 2 has an object that is not ours below {self.maps!r}: {name!r}")
        return MapObjectId(*self._numbers(name, f"{folder}/", 2))

    def parse_epoch(self, name: str) -> int:
        return self._numbers(name, self.epochs, 2)[0]

    def parse_manifest(self, name: str) -> ManifestName:
        stem, _, kind = name.rpartition("-")
        segment_id, epoch, sequence = self._numbers(stem, self.manifests, 3)
        try:
            return ManifestName(segment_id, ManifestId(epoch, sequence), ManifestKind(kind))
        except ValueError:
            raise DataCorruption(f"Tier 2 has a manifest of an unknown kind: {name!r}") from None

    def is_chunk(self, name: str) -> bool:
        """Whether this is a chunk, which leads to no other object."""
        return name.startswith(self.chunks)

    def is_map_file(self, name: str) -> bool:
        """Whether this is a file of a sorted map, which leads to no other object."""
        return name.startswith(self.maps) and name.rpartition("/")[0].endswith("/r")

    def is_tombstone(self, name: str) -> bool:
        """Whether this is the manifest of a segment that is gone."""
        return name.startswith(self.manifests) and self.parse_manifest(name).kind is ManifestKind.TOMBSTONE

    def parse_chunk(self, name: str) -> ChunkId:
        return ChunkId(*self._numbers(name, self.chunks, 3))

    def parse_foreign_owner(self, name: str) -> ForeignOwner:
        return ForeignOwner(*self._numbers(name, self.foreign_owners, 4))

    def parse_journal(self, name: str) -> int:
        """The epoch in the name of a journal."""
        return self._numbers(name, self.journals, 2)[0]

    def epoch_in(self, name: str) -> int:
        """The epoch that any name of this container carries."""
        if name.startswith(self.journals):
            return self.parse_journal(name)
        if name.startswith(self.foreign_owners):
            return self.parse_foreign_owner(name).epoch
        if name.startswith(self.chunks):
            return self.parse_chunk(name).epoch
        if name.startswith(self.manifests):
            return self.parse_manifest(name).id.epoch
        if name.startswith(self.maps):
            return self.parse_map_object(name).epoch
        return self.parse_epoch(name)

    def segment_in(self, name: str) -> int | None:
        """The segment in the name, or in the prefix of the names, of its manifests or chunks; ``None`` in others."""
        if not name.startswith((self.chunks, self.manifests)):
            return None
        text = name[len(self.chunks) :].partition("/")[0]
        return int(text, 16) if text else None

    def shared_epoch_in(self, name: str) -> int | None:
        """The epoch in the name of a manifest or chunk that is an entry of the map ``shared``; ``None`` in others."""
        if not name.startswith((self.chunks, self.manifests)):
            return None
        epoch, _, number = name.rpartition("/")[2].partition("-")
        try:
            return int(epoch, 16) if is_entry_number(int(number[:16], 16)) else None
        except ValueError:
            return None

    def _numbers(self, name: str, prefix: str, count: int) -> list[int]:
        parts = name.removeprefix(prefix).replace("/", "-").split("-")
        if not name.startswith(prefix) or len(parts) != count or any(len(part) != 16 for part in parts):
            raise DataCorruption(f"Tier 2 has an object that is not ours below {prefix!r}: {name!r}")
        try:
            return [int(part, 16) for part in parts]
        except ValueError:
            raise DataCorruption(f"Tier 2 has an object that is not ours below {prefix!r}: {name!r}") from None
