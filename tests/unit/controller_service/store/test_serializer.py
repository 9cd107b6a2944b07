from __future__ import annotations

import dataclasses
import json
import uuid
from typing import Any

import pytest

from controller_service.sets.transaction_set import MemberRecord, SetRecord, SetRecordState, SinkRecord
from controller_service.store.epochs import initial_epoch, plan_scale
from controller_service.store.records import (
    ConfigurationRecord,
    CurrentEpochRecord,
    EpochRecord,
    HistoryRecord,
    ScopeRecord,
    StateRecord,
    StreamEntry,
    StreamState,
    SubscriberRecord,
    SubscribersRecord,
    TruncationRecord,
)
from controller_service.store.serializer import decode, encode
from controller_service.transactions.records import (
    ActiveTransaction,
    CompletedBatches,
    CompletedTransaction,
    RecentlyCompleted,
    RegistrationRecord,
    SetReference,
)
from pravega_common.errors import DataCorruption
from pravega_common.model.retention import RetentionPolicy, RetentionType
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.scope_quota import ScopeQuota
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.model.transactions import TransactionState

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
        ConfigurationRecord(StreamConfiguration(ScalingPolicy.fixed(1))),
        StateRecord(StreamState.SEALING),
        TruncationRecord({1 << 40: -1, 2: 3}, 6, True, {4: 5}),
        SubscribersRecord({"s/g": SubscriberRecord("s/g", "id", 1, {5: 6})}),
    ],
    ids=lambda record: type(record).__name__,
)
def test_round_trip(record: Any) -> None:
    again = decode(type(record), encode(record))
    assert again == record
    assert encode(again) == encode(record)


def test_a_state_of_a_former_version_has_no_round() -> None:
    stored = b'{"_v":1,"state":"committing_transactions","holder":""}'
    assert decode(StateRecord, stored) == StateRecord(StreamState.COMMITTING_TRANSACTIONS)


STORED_CONFIGURATION = (
    '{"_v":1,"configuration":{"scaling":{"scale_type":2,"target_rate":10,"scale_factor":2,"min_segments":3},'
    '"retention":{"retention_type":1,"minimum":5,"maximum":0},"tags":["b","ä"],'
    '"timestamp_aggregation_timeout_ms":1,"rollover_size_bytes":2},"updates_promised":3,"updates_applied":2}'
)
STORED_WITHOUT_RETENTION = (
    '{"_v":1,"configuration":{"scaling":{"scale_type":0,"target_rate":0,"scale_factor":0,"min_segments":1},'
    '"retention":null,"tags":[],"timestamp_aggregation_timeout_ms":0,"rollover_size_bytes":0},'
    '"updates_promised":0,"updates_applied":0}'
)


@pytest.mark.parametrize(
    ("record", "stored"),
    [
        (ConfigurationRecord(CONFIGURATION, 3, 2), STORED_CONFIGURATION),
        (ConfigurationRecord(StreamConfiguration(ScalingPolicy.fixed(1))), STORED_WITHOUT_RETENTION),
    ],
)
def test_a_stored_configuration_gained_a_field_at_its_end(record: ConfigurationRecord, stored: str) -> None:
    assert decode(ConfigurationRecord, stored.encode()) == record
    written = stored.removesuffix("}") + ',"previous":null}'
    assert encode(record).decode() == written
    assert decode(ConfigurationRecord, written.encode()) == record


STORED_ENTRY = '{"_v":1,"stream_id":"id","created_ms":5,"tags":["a"],"deleting":false}'


def test_a_stored_entry_of_a_stream_gained_its_reader_group_at_its_end() -> None:
    made_for_none, made_for_one = StreamEntry("id", 5, ("a",)), StreamEntry("id", 5, ("a",), group_id="g")
    assert decode(StreamEntry, STORED_ENTRY.encode()) == made_for_none
    for entry, group_id in ((made_for_none, ""), (made_for_one, "g")):
        written = STORED_ENTRY.removesuffix("}") + f',"group_id":"{group_id}"}}'
        assert encode(entry).decode() == written
        assert decode(StreamEntry, written.encode()) == entry


STORED_TRANSACTION = (
    '{"_v":1,"state":"committing","created_ms":1,"lease_ms":2,"lease_expiry_ms":3,"execution_expiry_ms":4,'
    '"segments":[0,1],"writer_id":"w","commit_time_ms":5,"bound_to":{"sink":"1:q:s/t","sequence":6},'
    '"registration":{"sink":"1:q:s/t","batch_id":7,"run_id":"r"},"lost":false}'
)
STORED_SINK = (
    '{"_v":1,"query_id":"q","destination":"s/t","runs":["r"],"sequence":6,"last":{"sequence":6,"batch_id":7,'
    '"run_id":"r","members":[{"stream":"s/t","transaction":"00","partition":1,"events":2,"bytes":3}],"events":2,'
    '"bytes":3,"state":"ordered","started_ms":8,"ordered_streams":[]},"pending":null,"refused":null,'
    '"open_batches":[7],"touched_ms":9}'
)


def test_a_stored_transaction_stays_as_it_is_and_a_sink_gained_fields_at_its_end() -> None:
    reference, registration = SetReference("1:q:s/t", 6), RegistrationRecord("1:q:s/t", 7, "r")
    state = TransactionState.COMMITTING
    transaction = ActiveTransaction(state, 1, 2, 3, 4, (0, 1), "w", 5, reference, registration)
    last = SetRecord(6, 7, "r", (MemberRecord("s/t", "00", 1, 2, 3),), 2, 3, SetRecordState.ORDERED, 8)
    sink = SinkRecord("q", "s/t", ("r",), 6, last, None, None, (7,), 9)
    assert encode(transaction).decode() == STORED_TRANSACTION
    assert decode(ActiveTransaction, STORED_TRANSACTION.encode()) == transaction
    without_secret = STORED_SINK.removesuffix("}") + ',"indexed":false,"expiry_day":-1,"seen_runs":[]}'
    without_label = without_secret.removesuffix("}") + ',"secret_hash":""}'
    without_ids = without_label.removesuffix("}") + ',"label":""}'
    written = without_ids.replace('"ordered_streams":[]', '"ordered_streams":[],"stream_ids":{}')
    assert encode(sink).decode() == written
    for stored in (STORED_SINK, without_secret, without_label, without_ids, written):
        assert decode(SinkRecord, stored.encode()) == sink


def test_the_list_of_completed_transactions_is_golden() -> None:
    assert encode(CompletedBatches((3, 4), 4)) == b'{"_v":2,"numbers":[3,4],"sharded_from":4}'
    assert decode(CompletedBatches, b'{"_v":1,"numbers":[3]}') == CompletedBatches((3,))
    with pytest.raises(DataCorruption, match="newer controller"):
        decode(CompletedBatches, b'{"_v":3,"numbers":[3]}')
    recent = RecentlyCompleted(
        (
            (uuid.UUID(int=7), CompletedTransaction(TransactionState.COMMITTED, 9)),
            (uuid.UUID(int=8), CompletedTransaction(TransactionState.ABORTED, 10)),
        )
    )
    golden = bytes.fromhex(f"{7:032x}00{9:016x}{8:032x}01{10:016x}")
    assert recent.encode() == golden
    assert RecentlyCompleted.decode(golden) == recent
    for damaged in (golden[:-1], golden[:16] + b"\x02" + golden[17:]):
        with pytest.raises(DataCorruption, match="no list of completed transactions"):
            RecentlyCompleted.decode(damaged)


STORED_TRUNCATION = '{"_v":1,"cut":{"5":3},"size_till":6,"updating":true,"since":{"2":1}}'
STORED_TRUNCATION_WITH_LIST = '{"_v":1,"cut":{"5":3},"to_delete":[1,2],"size_till":6,"updating":true}'


def test_a_truncation_with_a_list_of_segments_is_carried_out_from_the_start_of_the_stream() -> None:
    assert encode(TruncationRecord({5: 3}, 6, True, {2: 1})).decode() == STORED_TRUNCATION
    assert decode(TruncationRecord, STORED_TRUNCATION.encode()) == TruncationRecord({5: 3}, 6, True, {2: 1})
    assert decode(TruncationRecord, STORED_TRUNCATION_WITH_LIST.encode()) == TruncationRecord({5: 3}, 6, True, {})


def test_fields_of_a_later_version_are_ignored_and_missing_ones_defaulted() -> None:
    fields = json.loads(encode(EPOCH))
    fields["later"] = {"x": 1}
    del fields["splits"]
    assert decode(EpochRecord, json.dumps(fields).encode()) == EPOCH


@pytest.mark.parametrize("data", [b"", b"x", b"[]", b"{}", b'{"_v":99}', b'{"_v":1}', b'{"_v":1,"state":"flying"}'])
def test_what_is_no_record_is_corruption(data: bytes) -> None:
    with pytest.raises(DataCorruption):
        decode(StateRecord, data)


def test_the_current_epoch_is_a_number_and_the_copy_of_former_versions_is_read_as_one() -> None:
    assert encode(CurrentEpochRecord(7)).decode() == CURRENT_EPOCH_WHOLE
    assert decode(CurrentEpochRecord, b'{"_v":1,"epoch":7}') == CurrentEpochRecord(7)
    assert decode(CurrentEpochRecord, encode(EPOCH)) == CurrentEpochRecord(EPOCH.epoch)


CURRENT_EPOCH_WHOLE = (
    '{"_v":1,"epoch":7,"history":{"oldest_epoch":0,"removed_till":0,"next_oldest":0,"next_since_ms":0}}'
)
CURRENT_EPOCH_SHORTENED = (
    '{"_v":2,"epoch":7,"history":{"oldest_epoch":4,"removed_till":3,"next_oldest":5,"next_since_ms":9}}'
)


SCOPE = ScopeRecord("id", 7, tags_indexed=True)
SCOPE_FIELDS = '"scope_id":"id","created_ms":7,"deleting":false,"holder":"","tags_indexed":true'
SCOPE_LIMITED = (
    f'{{"_v":2,{SCOPE_FIELDS},"quota":{{"streams":5,"segments":null,"bytes_in":null,"bytes_out":70000}},"is_counted":true,'
    '"quota_order":3,"quota_request":"r"}'
)


def test_former_versions_are_kept_from_a_scope_with_a_quota() -> None:
    assert encode(SCOPE).startswith(b'{"_v":1,')
    assert decode(ScopeRecord, f'{{"_v":1,{SCOPE_FIELDS}}}'.encode()) == SCOPE
    limited = dataclasses.replace(
        SCOPE, quota=ScopeQuota(streams=5, bytes_out=70_000), is_counted=True, quota_order=3, quota_request="r"
    )
    assert encode(limited).decode() == SCOPE_LIMITED
    assert decode(ScopeRecord, SCOPE_LIMITED.encode()) == limited
    with pytest.raises(DataCorruption, match="newer controller"):
        decode(ScopeRecord, SCOPE_LIMITED.replace("2", "3", 1).encode())


def test_former_versions_are_kept_from_a_stream_that_lost_epochs() -> None:
    record = CurrentEpochRecord(7, HistoryRecord(4, 3, 5, 9))
    assert encode(record).decode() == CURRENT_EPOCH_SHORTENED
    assert decode(CurrentEpochRecord, CURRENT_EPOCH_SHORTENED.encode()) == record
    waits = CurrentEpochRecord(7, HistoryRecord(next_oldest=5, next_since_ms=9))
    assert encode(waits).startswith(b'{"_v":1,') and decode(CurrentEpochRecord, encode(waits)) == waits
    with pytest.raises(DataCorruption, match="newer controller"):
        decode(CurrentEpochRecord, b'{"_v":3,"epoch":7}')
    for damaged in ('"history":7', '"history":{"oldest_epoch":"x"}', '"history":null'):
        with pytest.raises(DataCorruption):
            decode(CurrentEpochRecord, f'{{"_v":2,"epoch":7,{damaged}}}'.encode())
