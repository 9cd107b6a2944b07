from __future__ import annotations

import json
from typing import Any

import pytest

from controller_service.store.epochs import initial_epoch, plan_scale
from controller_service.store.records import (
    ConfigurationRecord,
    EpochRecord,
    RetentionPolicy,
    RetentionType,
    ScaleType,
    ScalingPolicy,
    StateRecord,
    StreamConfiguration,
    StreamState,
    SubscriberRecord,
    SubscribersRecord,
    TruncationRecord,
)
from controller_service.store.serializer import decode, encode
from pravega_common.errors import DataCorruption

EPOCH = initial_epoch(3, 49, 1_700_000_000_000)
CONFIGURATION = StreamConfiguration(
    ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 10, 2, 3), RetentionPolicy(RetentionType.TIME, 5), ("b", "ä"), 1, 2
)


@pytest.mark.parametrize(
    "record",
    [
        EPOCH,
        plan_scale(EPOCH, [3], [(0.0, EPOCH.segments[0].key_end)], 1, 5, "id"),
        ConfigurationRecord(CONFIGURATION, 3, 2),
        ConfigurationRecord(StreamConfiguration(ScalingPolicy(ScaleType.FIXED, 0, 0, 1))),
        StateRecord(StreamState.SEALING),
        TruncationRecord({1 << 40: -1, 2: 3}, (4, 5), 6, True),
        SubscribersRecord({"s/g": SubscriberRecord("s/g", "id", 1, {5: 6})}),
    ],
    ids=lambda record: type(record).__name__,
)
def test_round_trip(record: Any) -> None:
    again = decode(type(record), encode(record))
    assert again == record
    assert encode(again) == encode(record)


def test_fields_of_a_later_version_are_ignored_and_missing_ones_defaulted() -> None:
    fields = json.loads(encode(EPOCH))
    fields["later"] = {"x": 1}
    del fields["splits"]
    assert decode(EpochRecord, json.dumps(fields).encode()) == EPOCH


@pytest.mark.parametrize("data", [b"", b"x", b"[]", b"{}", b'{"_v":99}', b'{"_v":1}', b'{"_v":1,"state":"flying"}'])
def test_what_is_no_record_is_corruption(data: bytes) -> None:
    with pytest.raises(DataCorruption):
        decode(StateRecord, data)
