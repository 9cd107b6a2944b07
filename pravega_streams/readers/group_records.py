"""Turns the state of a reader group into entries of its table, as the Rust client lays them out, and back.

The table is the segment ``<scope>/<group>_kvtable/0.#epoch.0``. A key is CBOR text: two digits with the length of the
map's name, the name, ``/`` and the key within the map. A value is CBOR ``{"type_id": text, "data": [bytes of CBOR]}``;
type ``tombstone`` says that the key is gone. A key without the part from ``/`` on counts the changes of its map: it is
written, with the version that was read, with every change of the map, which is what makes updates conditional.

=====================  ================  ==========================================================================
map                    key               data
=====================  ================  ==========================================================================
config                 default           ``{"V1": {refresh time, starting cuts, ending cuts}}``
unassigned_segments    segment           ``{"read": offset}``
assigned_segments      reader            ``{{scope, stream, segment}: {"read": offset}}``
future_segments        segment           ``[{"number": id of a predecessor to be read, "tx_id": null}]``
distance_to_tail       reader            2^64 - 1 from the Rust client, which never reads it; our incarnation number
ended_segments         segment           ours: ``{"read": offset}``; the Rust client ignores it
checkpoints            checkpoint        ours: ``{number, waiting, positions, future}``; the Rust client ignores it
removals               default           ours: a mark, written before tombstones are removed; the Rust client ignores it
=====================  ================  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pravega_common.errors import DataCorruption, InvalidArgument, UnsupportedOperation
from pravega_common.names import parse_segment_name, segment_name
from pravega_streams.readers import cbor
from pravega_streams.readers.group_state import (
    HEAD,
    TAIL,
    GroupConfiguration,
    GroupState,
    Positions,
    ReaderCheckpoint,
    Start,
    StreamName,
)

CONFIG: Final = "config"
UNASSIGNED: Final = "unassigned_segments"
ASSIGNED: Final = "assigned_segments"
FUTURE: Final = "future_segments"
DISTANCE: Final = "distance_to_tail"
ENDED: Final = "ended_segments"
CHECKPOINTS: Final = "checkpoints"
REMOVALS: Final = "removals"
DEFAULT_KEY: Final = "default"

_TYPES: Final = {
    CONFIG: "ReaderGroupConfigVersioned",
    UNASSIGNED: "Offset",
    ASSIGNED: "HashMap<ScopedSegment, Offset>",
    FUTURE: "HashSet<i64>",
    DISTANCE: "u64",
    ENDED: "Offset",
    CHECKPOINTS: "Checkpoint",
}
_TOMBSTONE: Final = "tombstone"
_LENGTH_BYTES: Final = 8
"""What the length of a list takes in CBOR at most."""

Maps = Mapping[str, Mapping[str, object]]
"""The decoded values of a table by map and key."""


@dataclass(frozen=True, slots=True)
class EntryChange:
    """A new value of a key of a map; None removes it."""

    outer: str
    inner: str
    value: object | None


# ---- keys and values -------------------------------------------------------------------------------------------------


def key_of(outer: str, inner: str | None = None) -> bytes:
    """The key in the table of a key in a map, or of the map's count."""
    text = f"{len(outer.encode()):02}{outer}"
    return cbor.encode(text if inner is None else f"{text}/{inner}")


def split_key(key: bytes) -> tuple[str, str | None]:
    """The map, and the key in it unless it is the map's count."""
    text = cbor.decode(key)
    if not isinstance(text, str) or not text[:2].isdecimal():
        raise DataCorruption(f"reader group: key {key!r} does not begin with the length of a map's name")
    end = 2 + int(text[:2])
    outer, rest = text[2:end], text[end:]
    if len(outer) < end - 2 or rest[:1] not in ("", "/"):
        raise DataCorruption(f"reader group: key {text!r} does not hold a map's name of {text[:2]} characters")
    return outer, rest[1:] if rest else None


def value_of(change: EntryChange) -> bytes:
    """The value in the table; a tombstone for a removal."""
    if change.value is None:
        return _wrapped(_TOMBSTONE, cbor.encode({}))
    return _wrapped(_TYPES[change.outer], cbor.encode(_FORMS[change.outer][0](change.value)))


def checkpoint_bytes(checkpoint: ReaderCheckpoint) -> int:
    """The bytes that a checkpoint takes in the table at most, where each of its bytes is a number of one or two."""
    return len(_wrapped(_TYPES[CHECKPOINTS], b"")) + _LENGTH_BYTES + 2 * len(cbor.encode(_checkpoint_to(checkpoint)))


COUNT_VALUE: Final = cbor.encode({"type_id": "blob", "data": [0]})
"""The value of a map's count: only its version changes."""


def _wrapped(type_id: str, data: bytes) -> bytes:
    return cbor.encode({"type_id": type_id, "data": list(data)})


def read_value(outer: str, value: bytes) -> object | None:
    """The decoded value of a key of a map, None for a tombstone; of a map that is not known, the bytes as they are."""
    wrapped = cbor.decode(value)
    if not isinstance(wrapped, dict) or not isinstance(wrapped.get("data"), list):
        raise DataCorruption(f"reader group: a value of {outer} is not of the form type_id, data")
    if wrapped.get("type_id") == _TOMBSTONE:
        return None
    if outer not in _FORMS:
        return value
    try:
        return _FORMS[outer][1](cbor.decode(bytes(wrapped["data"])))
    except (AttributeError, KeyError, TypeError, ValueError, InvalidArgument) as error:
        raise DataCorruption(f"reader group: a value of {outer} cannot be read: {error!r}") from error


# ---- states ----------------------------------------------------------------------------------------------------------


def maps_of(state: GroupState) -> Maps:
    return {
        CONFIG: {DEFAULT_KEY: state.config},
        UNASSIGNED: state.unassigned,
        ASSIGNED: state.assigned,
        FUTURE: state.future,
        DISTANCE: state.incarnations,
        ENDED: state.ended,
        CHECKPOINTS: state.checkpoints,
    }


def state_of(maps: Maps) -> GroupState | None:
    """The state that a table holds; None before a group was made in it."""

    def entries(outer: str) -> Any:
        return dict(maps.get(outer, {}))

    config = maps.get(CONFIG, {}).get(DEFAULT_KEY)
    if config is None:
        return None
    if not isinstance(config, GroupConfiguration):
        raise DataCorruption("reader group: its configuration is not one")
    state = GroupState(
        config,
        entries(UNASSIGNED),
        entries(ASSIGNED),
        entries(FUTURE),
        entries(DISTANCE),
        entries(ENDED),
        entries(CHECKPOINTS),
    )
    return state.checked()


def changes_between(old: GroupState | None, new: GroupState) -> Iterator[EntryChange]:
    """The writes that turn a table with one state into one with another."""
    before: Maps = {} if old is None else maps_of(old)
    for outer, after in maps_of(new.checked()).items():
        known = before.get(outer, {})
        yield from (EntryChange(outer, key, None) for key in known if key not in after)
        yield from (
            EntryChange(outer, key, value) for key, value in after.items() if key not in known or known[key] != value
        )


# ---- forms of the values ---------------------------------------------------------------------------------------------


def _struct_of(segment: str) -> cbor.Fields:
    name = parse_segment_name(segment)
    return cbor.Fields(
        (
            ("scope", cbor.Fields((("name", name.scope),))),
            ("stream", cbor.Fields((("name", name.stream),))),
            ("segment", cbor.Fields((("number", name.segment_id), ("tx_id", None)))),
        )
    )


def _segment_of(struct: Any) -> str:
    fields = dict(struct)
    number = dict(fields["segment"])
    if number.get("tx_id") is not None:
        raise DataCorruption("reader group: a segment of a transaction stands in it")
    return segment_name(dict(fields["scope"])["name"], dict(fields["stream"])["name"], int(number["number"]))


def _stream_struct(stream: StreamName) -> cbor.Fields:
    return cbor.Fields(
        (("scope", cbor.Fields((("name", stream[0]),))), ("stream", cbor.Fields((("name", stream[1]),))))
    )


def _stream_of(struct: Any) -> StreamName:
    fields = dict(struct)
    return dict(fields["scope"])["name"], dict(fields["stream"])["name"]


def _offset_to(offset: Any) -> object:
    return {"read": offset}


def _offset_from(value: Any) -> int:
    return int(value["read"])


def _positions_to(positions: Any) -> object:
    return {_struct_of(segment): {"read": offset} for segment, offset in sorted(positions.items())}


def _positions_from(value: Any) -> Positions:
    return {_segment_of(struct): _offset_from(offset) for struct, offset in value.items()}


def _predecessors_to(numbers: Any) -> object:
    return [{"number": number, "tx_id": None} for number in sorted(numbers)]


def _predecessors_from(value: Any) -> frozenset[int]:
    return frozenset(int(item["number"]) for item in value)


def _incarnation_from(value: Any) -> int:
    return int(value)


def _cut_to(stream: StreamName, start: Start) -> object:
    if isinstance(start, str):
        return "Tail" if start == TAIL else "Unbounded"
    positions = {_struct_of(segment_name(*stream, number)): offset for number, offset in sorted(start.items())}
    return {"V1": {"stream": _stream_struct(stream), "positions": positions}}


def _cut_from(value: Any) -> Start:
    if value == "Unbounded":
        return HEAD
    if value == "Tail":
        return TAIL
    positions = value["V1"]["positions"]
    return {parse_segment_name(_segment_of(struct)).segment_id: int(offset) for struct, offset in positions.items()}


def _config_to(config: Any) -> object:
    return {
        "V1": {
            "group_refresh_time_millis": config.refresh_time_ms,
            "starting_stream_cuts": {_stream_struct(s): _cut_to(s, cut) for s, cut in sorted(config.start.items())},
            "ending_stream_cuts": {_stream_struct(s): _cut_to(s, cut) for s, cut in sorted(config.end.items())},
        }
    }


def _config_from(value: Any) -> GroupConfiguration:
    if "V1" not in value:
        raise UnsupportedOperation(
            f"reader group: its configuration has version {next(iter(value), '')}, and only V1 is known here; "
            "read with the client that made the group"
        )
    fields = value["V1"]
    start = {_stream_of(stream): _cut_from(cut) for stream, cut in fields["starting_stream_cuts"].items()}
    ends = {_stream_of(stream): _cut_from(cut) for stream, cut in fields["ending_stream_cuts"].items()}
    bounded = {stream: cut for stream, cut in ends.items() if not isinstance(cut, str)}
    return GroupConfiguration(start, bounded, int(fields["group_refresh_time_millis"]))


def _checkpoint_to(item: Any) -> object:
    return {
        "number": item.number,
        "waiting": sorted(item.waiting),
        "positions": dict(sorted(item.positions.items())),
        "future": {segment: sorted(numbers) for segment, numbers in sorted(item.future.items())},
    }


def _checkpoint_from(value: Any) -> ReaderCheckpoint:
    return ReaderCheckpoint(
        int(value["number"]),
        frozenset(map(str, value["waiting"])),
        {str(segment): int(offset) for segment, offset in value["positions"].items()},
        {str(segment): frozenset(map(int, numbers)) for segment, numbers in value["future"].items()},
    )


def _itself(value: Any) -> object:
    return value


_FORMS: Final[dict[str, tuple[Callable[[Any], object], Callable[[Any], object]]]] = {
    CONFIG: (_config_to, _config_from),
    UNASSIGNED: (_offset_to, _offset_from),
    ASSIGNED: (_positions_to, _positions_from),
    FUTURE: (_predecessors_to, _predecessors_from),
    DISTANCE: (_itself, _incarnation_from),
    ENDED: (_offset_to, _offset_from),
    CHECKPOINTS: (_checkpoint_to, _checkpoint_from),
}
