"""The data of a simulated Redis server, and the commands on it that the product uses."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Final

Reply = bytes | int | None | list["Reply"]
Id = tuple[int, int]

key_overhead_bytes: Final = 80
entry_overhead_bytes: Final = 48
"""What a key and an entry cost beside their bytes; about what a real server shows."""


class CommandError(Exception):
    """An error reply; its first word is the code."""


class Stream:
    """Entries by id, ascending."""

    __slots__ = ("fields", "ids", "last_id")

    def __init__(self) -> None:
        self.ids: list[Id] = []
        self.fields: list[list[bytes]] = []
        self.last_id: Id = (0, 0)

    def add(self, entry_id: Id, fields: list[bytes]) -> None:
        if entry_id <= self.last_id:
            raise CommandError("ERR The ID specified in XADD is equal or smaller than the target stream top item")
        self.ids.append(entry_id)
        self.fields.append(fields)
        self.last_id = entry_id

    def between(self, begin: int, end: int) -> list[Reply]:
        found = range(begin, max(begin, end))
        return [[format_id(self.ids[at]), list[Reply](self.fields[at])] for at in found]


Value = Stream | dict[bytes, bytes] | bytes


def format_id(entry_id: Id) -> bytes:
    return b"%d-%d" % entry_id


def parse_id(text: bytes, default_sequence: int = 0) -> Id:
    first, dash, second = text.partition(b"-")
    return int(first), int(second) if dash else default_sequence


class Database:
    """Keys and values; ``used`` counts bytes as ``used_memory`` does, roughly."""

    def __init__(self) -> None:
        self.values: dict[bytes, Value] = {}
        self.used = 1_000_000

    # --- keys

    def exists(self, key: bytes) -> Reply:
        return int(key in self.values)

    def delete(self, *keys: bytes) -> Reply:
        count = 0
        for key in keys:
            value = self.values.pop(key, None)
            if value is not None:
                self.used -= key_overhead_bytes + len(key) + _size(value)
                count += 1
        return count

    def renamenx(self, old: bytes, new: bytes) -> Reply:
        if old not in self.values:
            raise CommandError("ERR no such key")
        if new in self.values:
            return 0
        self.values[new] = self.values.pop(old)
        return 1

    # --- strings

    def get(self, key: bytes) -> Reply:
        value = self.values.get(key)
        if value is not None and not isinstance(value, bytes):
            raise CommandError("WRONGTYPE Operation against a key holding the wrong kind of value")
        return value

    def set(self, key: bytes, value: bytes, *options: bytes) -> Reply:
        if any(option.upper() == b"NX" for option in options) and key in self.values:
            return None
        self.delete(key)
        self._put(key, value)
        self.used += len(value)
        return b"OK"

    # --- hashes and sets; both are dictionaries, whose order is that of insertion

    def hset(self, key: bytes, *pairs: bytes) -> Reply:
        fields = self._dict(key)
        added = 0
        for name, value in zip(pairs[::2], pairs[1::2], strict=True):
            added += name not in fields
            self.used += len(name) + len(value) - (len(name) + len(fields[name]) if name in fields else 0)
            fields[name] = value
        return added

    def hmget(self, key: bytes, *names: bytes) -> Reply:
        fields = self.values.get(key)
        if not isinstance(fields, dict):
            return [None for _ in names]
        return [fields.get(name) for name in names]

    def sadd(self, key: bytes, *members: bytes) -> Reply:
        found = self._dict(key)
        added = 0
        for member in members:
            if member not in found:
                found[member] = b""
                self.used += len(member)
                added += 1
        return added

    def srem(self, key: bytes, *members: bytes) -> Reply:
        found = self.values.get(key)
        if not isinstance(found, dict):
            return 0
        gone = [member for member in members if member in found]
        for member in gone:
            del found[member]
            self.used -= len(member)
        if not found:
            self.delete(key)
        return len(gone)

    def smembers(self, key: bytes) -> Reply:
        found = self.values.get(key)
        return list[Reply](sorted(found)) if isinstance(found, dict) else []

    # --- streams

    def xadd(self, key: bytes, *rest: bytes) -> Reply:
        makes = rest[0].upper() != b"NOMKSTREAM"
        entry_id, fields = (rest[0], rest[1:]) if makes else (rest[1], rest[2:])
        stream = self.values.get(key)
        if stream is None:
            if not makes:
                return None
            stream = Stream()
            self._put(key, stream)
        assert isinstance(stream, Stream)
        stream.add(parse_id(entry_id), list(fields))
        self.used += entry_overhead_bytes + sum(map(len, fields))
        return format_id(stream.last_id)

    def xrange(self, key: bytes, first: bytes, last: bytes, *options: bytes) -> Reply:
        stream = self.values.get(key)
        if not isinstance(stream, Stream):
            return []
        begin = _bound(stream, first, is_first=True)
        end = _bound(stream, last, is_first=False)
        if options:
            end = min(end, begin + int(options[1]))
        return stream.between(begin, end)

    def xrevrange(self, key: bytes, last: bytes, first: bytes, *options: bytes) -> Reply:
        found = self.xrange(key, first, last)
        assert isinstance(found, list)
        found.reverse()
        return found[: int(options[1])] if options else found

    def xdel(self, key: bytes, *entry_ids: bytes) -> Reply:
        stream = self.values.get(key)
        if not isinstance(stream, Stream):
            return 0
        count = 0
        for text in entry_ids:
            entry_id = parse_id(text)
            if entry_id in stream.ids:
                at = stream.ids.index(entry_id)
                self.used -= entry_overhead_bytes + sum(map(len, stream.fields[at]))
                del stream.ids[at], stream.fields[at]
                count += 1
        return count

    def xsetid(self, key: bytes, last: bytes) -> Reply:
        stream = self.values.get(key)
        if not isinstance(stream, Stream):
            raise CommandError("ERR no such key")
        entry_id = parse_id(last)
        if stream.ids and entry_id < stream.ids[-1]:
            raise CommandError("ERR The ID specified in XSETID is smaller than the target stream top item")
        stream.last_id = entry_id
        return b"OK"

    # --- inside

    def _put(self, key: bytes, value: Value) -> None:
        self.values[key] = value
        self.used += key_overhead_bytes + len(key)

    def _dict(self, key: bytes) -> dict[bytes, bytes]:
        found = self.values.get(key)
        if found is None:
            found = {}
            self._put(key, found)
        assert isinstance(found, dict)
        return found


def _bound(stream: Stream, text: bytes, *, is_first: bool) -> int:
    if text in (b"-", b"+"):
        return 0 if text == b"-" else len(stream.ids)
    exclusive = text.startswith(b"(")
    entry_id = parse_id(text.removeprefix(b"("), 0 if is_first else 2**63)
    after = bisect_right(stream.ids, entry_id)
    at = bisect_left(stream.ids, entry_id)
    if is_first:
        return after if exclusive else at
    return at if exclusive else after


def _size(value: Value) -> int:
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, Stream):
        return sum(entry_overhead_bytes + sum(map(len, fields)) for fields in value.fields)
    return sum(len(name) + len(part) for name, part in value.items())


Command = Callable[..., Reply]

READS: Final = ("EXISTS", "GET", "HMGET", "SMEMBERS", "XRANGE", "XREVRANGE")
NEEDS_MEMORY: Final = ("SET", "HSET", "SADD", "XADD", "XSETID")
"""Refused with ``OOM`` by a full server (``denyoom`` of ``COMMAND INFO``)."""
FREES: Final = ("DEL", "UNLINK", "RENAMENX", "SREM", "XDEL")


def commands_of(database: Database) -> dict[str, Command]:
    return {
        "EXISTS": database.exists,
        "DEL": database.delete,
        "UNLINK": database.delete,
        "RENAMENX": database.renamenx,
        "GET": database.get,
        "SET": database.set,
        "HSET": database.hset,
        "HMGET": database.hmget,
        "SADD": database.sadd,
        "SREM": database.srem,
        "SMEMBERS": database.smembers,
        "XADD": database.xadd,
        "XDEL": database.xdel,
        "XSETID": database.xsetid,
        "XRANGE": database.xrange,
        "XREVRANGE": database.xrevrange,
    }


def as_bytes(args: Sequence[bytes | str | int]) -> list[bytes]:
    return [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
