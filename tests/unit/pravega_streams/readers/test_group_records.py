"""Compares the records of a reader group with bytes that the Rust client wrote."""

from __future__ import annotations

import pytest

from pravega_common.errors import DataCorruption, UnsupportedOperation
from pravega_streams.readers import cbor
from pravega_streams.readers.group_records import (
    COUNT_VALUE,
    EntryChange,
    changes_between,
    key_of,
    maps_of,
    read_value,
    split_key,
    state_of,
    value_of,
)
from pravega_streams.readers.group_state import (
    HEAD,
    OTHER_CLIENT,
    TAIL,
    GroupConfiguration,
    GroupState,
    ReaderCheckpoint,
)

STREAM = ("pyscope", "s1")
S0, S1 = "pyscope/s1/0.#epoch.0", "pyscope/s1/1.#epoch.0"
"""Names of the recording ``py-rgread`` (tests/data/transcripts)."""


def rust(type_id: str, data: str) -> bytes:
    return cbor.encode({"type_id": type_id, "data": list(bytes.fromhex(data))})


def test_keys_are_those_of_the_rust_client() -> None:
    assert key_of("config", "default").hex() == "703036636f6e6669672f64656661756c74"
    assert key_of("config").hex() == "683036636f6e666967"
    assert key_of("assigned_segments", "r1").hex() == "763137" + b"assigned_segments/r1".hex()
    assert key_of("unassigned_segments", S0).hex() == "782b3139" + f"unassigned_segments/{S0}".encode().hex()
    assert split_key(key_of("unassigned_segments", S0)) == ("unassigned_segments", S0)
    assert split_key(key_of("config")) == ("config", None)


def test_values_are_those_of_the_rust_client() -> None:
    offset = EntryChange("unassigned_segments", S0, 0)
    assert value_of(offset).hex() == "a267747970655f6964664f666673657464646174618718a118641872186518611864" + "00"
    assert value_of(EntryChange("unassigned_segments", S1, 83)).hex() == (
        "a267747970655f6964664f666673657464646174618818a118641872186518611864" + "18181853"
    )
    assert value_of(EntryChange("distance_to_tail", "r1", OTHER_CLIENT)).hex() == (
        "a267747970655f696463753634646461746189181b18ff18ff18ff18ff18ff18ff18ff18ff"
    )
    assert value_of(EntryChange("assigned_segments", "r1", {})).hex() == (
        "a267747970655f6964781e486173684d61703c53636f7065645365676d656e742c204f66667365743e64646174618118a0"
    )
    assert value_of(EntryChange("unassigned_segments", S0, None)).hex() == (
        "a267747970655f696469746f6d6273746f6e6564646174618118a0"
    )
    assert COUNT_VALUE.hex() == "a267747970655f696464626c6f6264646174618100"


def test_an_assignment_of_the_rust_client_is_read_and_written() -> None:
    data = (
        "a1a36573636f7065a1646e616d656770797363"
        "6f70656673747265616da1646e616d65627331677365676d656e74a2666e756d62657201"
        "6574785f6964f6a1647265616400"
    )
    value = rust("HashMap<ScopedSegment, Offset>", data)
    assert read_value("assigned_segments", value) == {S1: 0}
    assert value_of(EntryChange("assigned_segments", "r1", {S1: 0})) == value


def test_a_configuration_of_the_rust_client_is_read_and_written() -> None:
    data = (
        "a1625631a3781967726f75705f726566726573685f74696d655f6d696c6c6973190bb8747374617274696e675f73747265616d5f63757473"
        "a1a26573636f7065a1646e616d6567707973636f70656673747265616da1646e616d6562733169556e626f756e646564"
        "72656e64696e675f73747265616d5f63757473a0"
    )
    value = rust("ReaderGroupConfigVersioned", data)
    assert len(value) == 0x123
    config = GroupConfiguration({STREAM: HEAD})
    assert read_value("config", value) == config
    assert value_of(EntryChange("config", "default", config)) == value


def test_states_come_back_as_they_were() -> None:
    config = GroupConfiguration({STREAM: {0: 10, 1: 20}, ("a", "b"): TAIL}, {STREAM: {0: 30, 1: 40}}, 500)
    state = GroupState(
        config,
        {S0: 12},
        {"r1": {S1: 2**40}, "r2": {}},
        {"pyscope/s1/2.#epoch.1": frozenset({0, 1})},
        {"r1": 7, "r2": OTHER_CLIENT},
        {"a/b/0.#epoch.0": 9},
        {"c1": ReaderCheckpoint(1, frozenset({"r1"}), {S0: 12}, {"pyscope/s1/2.#epoch.1": frozenset({1})})},
    )
    table: dict[str, dict[str, object]] = {}
    for change in changes_between(None, state):
        value = read_value(change.outer, value_of(change))
        assert value is not None
        table.setdefault(change.outer, {})[change.inner] = value
    assert state_of(table) == state
    assert list(changes_between(state, state)) == []
    assert list(changes_between(state, GroupState(config, {S0: 12}))) == [
        EntryChange("assigned_segments", "r1", None),
        EntryChange("assigned_segments", "r2", None),
        EntryChange("future_segments", "pyscope/s1/2.#epoch.1", None),
        EntryChange("distance_to_tail", "r1", None),
        EntryChange("distance_to_tail", "r2", None),
        EntryChange("ended_segments", "a/b/0.#epoch.0", None),
        EntryChange("checkpoints", "c1", None),
    ]
    assert state_of({**maps_of(state), "config": {}}) is None


def test_damage_and_later_versions_are_refused() -> None:
    whole = value_of(EntryChange("assigned_segments", "r1", {S0: 5}))
    for end in range(len(whole)):
        with pytest.raises(DataCorruption):
            read_value("assigned_segments", whole[:end])
    with pytest.raises(DataCorruption):
        read_value("assigned_segments", whole + b"\0")
    with pytest.raises(DataCorruption):
        read_value("unassigned_segments", rust("Offset", "a1647265616418"))
    with pytest.raises(DataCorruption):
        read_value("unassigned_segments", rust("Offset", "01"))
    with pytest.raises(DataCorruption):
        split_key(cbor.encode("99config"))
    with pytest.raises(UnsupportedOperation):
        read_value("config", cbor.encode({"type_id": "x", "data": list(cbor.encode({"V2": {}}))}))
    with pytest.raises(DataCorruption):
        GroupState(GroupConfiguration({STREAM: HEAD}), {S0: 1}, {"r1": {S0: 2}}).checked()


def test_hostile_cbor_ends_in_an_error() -> None:
    for data in ("", "ff", "9b7fffffffffffffff", "81" * 40 + "00", "62c328", "f97e00", "1c", "0000"):
        with pytest.raises(DataCorruption):
            cbor.decode(bytes.fromhex(data))
    with pytest.raises(DataCorruption):
        cbor.decode(b"\x9a\xff\xff\xff\xff" + b"\0" * 10)
