"""Every controller message recorded from a real Pravega decodes and encodes back to the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from pravega_common.proto import controller_pb2
from tests.support.repository import TRANSCRIPTS

recordings = TRANSCRIPTS
methods = controller_pb2.DESCRIPTOR.services_by_name["ControllerService"].methods_by_name


def message_class(full_name: str) -> Any:
    return getattr(controller_pb2, full_name.rsplit(".", 1)[1])


def holds_map(message: Message) -> bool:
    """Map entries have no order on the wire, so their messages are compared after decoding."""
    for field, value in message.ListFields():
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            return True
        values = value if field.is_repeated else [value]
        if any(holds_map(item) for item in values):
            return True
    return False


def assert_round_trip(cls: Any, data: bytes) -> None:
    message = cls.FromString(data)
    encoded = message.SerializeToString(deterministic=True)
    if holds_map(message):
        assert cls.FromString(encoded) == message
        assert len(encoded) == len(data) or zero_map_entries_dropped(data, encoded)
    else:
        assert encoded == data


def zero_map_entries_dropped(data: bytes, encoded: bytes) -> bool:
    """Some encoders leave a key or value of 0 out of a map entry (2 bytes each)."""
    return (len(encoded) - len(data)) % 2 == 0


@pytest.mark.parametrize("file", sorted(recordings.glob("*.grpc.jsonl")), ids=lambda file: file.name.split(".")[0])
def test_recorded_messages_round_trip(file: Path) -> None:
    count = 0
    for line in file.read_text().splitlines():
        call = json.loads(line)
        method = methods.get(call["method"])
        assert method is not None, call["method"]
        assert_round_trip(message_class(method.input_type.full_name), bytes.fromhex(call["request_hex"]))
        for response in call["response_hex"]:
            assert_round_trip(message_class(method.output_type.full_name), bytes.fromhex(response))
        count += 1
    assert count > 0


def test_the_schema_has_all_methods_and_messages() -> None:
    assert len(methods) == 47
    nested = sum(
        1
        for message in controller_pb2.DESCRIPTOR.message_types_by_name.values()
        for inner in message.nested_types
        if not inner.GetOptions().map_entry
    )
    assert len(controller_pb2.DESCRIPTOR.message_types_by_name) + nested == 76
