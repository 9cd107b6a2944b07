"""Chooses hostile values for the fields of frames and requests, by seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pravega_common.model.table_limits import update_entries_max

EDGES: Final = (0, 1, -1, 2, 7, 8, 16, 127, 255, 256, 4_096, 65_535, 65_536, 2**20, 2**24, 2**31 - 1, -(2**31))
WIDE_EDGES: Final = (*EDGES, 2**31, 2**32, 2**32 + 1, 2**53, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1)
NAMES: Final = (
    "",
    "/",
    "a/b",
    "a/b/c",
    "..",
    "_",
    "_system",
    "_RGx",
    "a" * 255,
    "a" * 256,
    "n" * 3_000,
    "x\0y\n",
    "é",
    "%s",
)
segment_suffixes: Final = (
    "/0.#epoch.0",
    "/1.#epoch.0",
    "/4294967298.#epoch.1",
    "/0.#epoch.0$index",
    "/0.#epoch.0#transaction.00000000000000000000000000000001",
    "/0.#epoch.0#transient.00000000000000000000000000000001",
    "/-1.#epoch.-1",
    "",
    "#",
)


@dataclass(frozen=True)
class Target:
    """The cluster as a peer knows it. ``tokens`` are those that it was given, by scope and stream with a slash between;
    an anonymous peer has none."""

    own_scope: str
    own_streams: Mapping[str, tuple[str, ...]]
    """The peer's streams, and the names of the segments that each has now."""
    own_tables: tuple[str, ...]
    foreign_scope: str
    foreign_streams: tuple[str, ...]
    foreign_tables: tuple[str, ...]
    tokens: Mapping[str, str] = field(default_factory=dict)


class Values:
    """Hostile values; the same for the same seed."""

    def __init__(self, chooser: random.Random, target: Target) -> None:
        self.chooser = chooser
        self.target = target
        self.is_ending = False
        """Whether the values are for something that seals or deletes: mostly the last of the peer's streams then, so
        that the others stay to be attacked."""

    def own_stream(self) -> str:
        streams = tuple(self.target.own_streams)
        return streams[-1] if self.is_ending and self.chooser.random() < 0.97 else self.chooser.choice(streams)

    def integer(self, bits: int) -> int:
        """A number that fits the field, mostly an edge."""
        chooser = self.chooser
        if chooser.random() < 0.3:
            return chooser.getrandbits(bits) - (1 << (bits - 1))
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
        return min(max(chooser.choice(WIDE_EDGES if bits > 32 else EDGES), low), high)

    def data(self) -> bytes:
        chooser = self.chooser
        size = chooser.choice((0, 1, 7, 8, 15, 64, 200, 200, 200, 1_000))
        if chooser.random() < 0.01:
            size = chooser.choice((4_096, 8_192, 16_384, 70_000))
        return chooser.randbytes(size)

    def identifier(self) -> bytes:
        """An id of 16 bytes: of a writer, zero, an attribute that the store keeps, or any."""
        chooser = self.chooser
        roll = chooser.random()
        if roll < 0.5:
            return bytes(15) + bytes((chooser.randrange(1, 5) + 0x40,))
        if roll < 0.7:
            return bytes((255,)) * 8 + bytes(7) + bytes((chooser.randrange(16),))
        return chooser.choice((bytes(16), b"\xff" * 16, chooser.randbytes(16), b"\x80" + bytes(15)))

    def scope(self) -> str:
        chooser, target = self.chooser, self.target
        return chooser.choice((target.own_scope, target.own_scope, target.foreign_scope, "_system", self.name()))

    def stream(self) -> str:
        chooser, target = self.chooser, self.target
        roll = chooser.random()
        if roll < 0.6:
            return self.own_stream() if chooser.random() < 0.7 else chooser.choice(target.own_tables)
        if roll < 0.85:
            return chooser.choice((*target.foreign_streams, *target.foreign_tables, "new-1", "new-2", "new-3"))
        return self.name()

    def name(self) -> str:
        chooser = self.chooser
        if chooser.random() < 0.7:
            return chooser.choice(NAMES)
        return self.mangled(chooser.choice(tuple(self.target.own_streams)))

    def mangled(self, text: str) -> str:
        """The text with a character changed, doubled or left out."""
        chooser = self.chooser
        if not text:
            return "x"
        place = chooser.randrange(len(text))
        char = chr(chooser.choice((0, 9, 10, 32, 35, 36, 47, 92, 127, 233, 8_232, 65, 97)))
        return text[:place] + chooser.choice(("", char, text[place] * 2)) + text[place + 1 :]

    def segment(self) -> str:
        """The name of a segment: mostly the peer's own, else another's, the controllers', or none at all."""
        chooser, target = self.chooser, self.target
        roll = chooser.random()
        if roll < 0.55:
            return self.own_segment()
        if roll < 0.65:
            return f"{target.own_scope}/{chooser.choice(target.own_tables)}_kvtable{self._suffix()}"
        if roll < 0.80:
            return f"{target.foreign_scope}/{chooser.choice(target.foreign_streams)}{self._suffix()}"
        if roll < 0.88:
            return f"_system/_tables/{chooser.choice(('scopes', 'streamsInScope', 'x'))}"
        return self.mangled(self.own_segment())

    def own_segment(self) -> str:
        """The name of a segment of a stream of the peer, which is mostly there."""
        stream = self.own_stream()
        segments = self.target.own_streams[stream]
        # None while a peer has sealed it.
        if segments and self.chooser.random() < 0.9:
            return self.chooser.choice(segments)
        return f"{self.target.own_scope}/{stream}{self._suffix()}"

    def _suffix(self) -> str:
        if self.chooser.random() < 0.9:
            return segment_suffixes[self.chooser.randrange(2)]
        return self.chooser.choice(segment_suffixes)

    def token(self, segment: str = "") -> str:
        """The token that fits a segment, mostly; else another, a changed or a forged one, or none."""
        chooser, tokens = self.chooser, self.target.tokens
        roll = chooser.random()
        fitting = tokens.get("/".join(segment.split("/")[:2]))
        if fitting is not None and roll < 0.85:
            return fitting
        if tokens and roll < 0.95:
            token = chooser.choice(tuple(tokens.values()))
            return token if roll < 0.9 else self.mangled(token)
        return chooser.choice(("", "", "eyJhbGciOiJub25lIn0.e30.", "a.b.c", "x" * 9_000, "eyJ" + "A" * 300))

    def some(self, item: Any) -> tuple[Any, ...]:
        """A list of an item, made anew for each place; sometimes one more than a request may have."""
        count = self.chooser.choice((0, 1, 1, 2, 3, 8))
        if self.chooser.random() < 0.002:
            count = update_entries_max + 1
            return (item(),) * count
        return tuple(item() for _ in range(count))
