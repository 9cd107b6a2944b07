"""The staged view of the metadata against a simple model that knows no staging."""

from __future__ import annotations

import random
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from pravega_common.errors import RejectedError
from segment_service.contracts.attributes import NULL_ATTRIBUTE_VALUE, AttributeId, AttributeUpdate, AttributeUpdateType
from segment_service.contracts.operations import Operation
from segment_service.contracts.segment_metadata import SegmentMetadata
from segment_service.durable_log.metadata_commit import commit_operation
from segment_service.durable_log.metadata_updater import OperationMetadataUpdater
from segment_service.durable_log.requests import (
    AnyRequest,
    AppendRequest,
    CreateRequest,
    DeleteRequest,
    MergeRequest,
    SealRequest,
    TruncateRequest,
    UpdateAttributesRequest,
)
from segment_service.durable_log.serializer import deserialize, serialize
from segment_service.metadata.container_metadata import ContainerMetadata
from segment_service.metadata.snapshot import read_snapshot, write_snapshot

NAMES = ("a", "b", "c")
KEYS = tuple(AttributeId(bytes([number]) * 16) for number in range(2))


class SimpleSegment:
    """A segment whose operations take effect at once."""

    def __init__(self, attributes: dict[AttributeId, int]) -> None:
        self.length = 0
        self.start = 0
        self.sealed = False
        self.attributes = attributes


class SimpleModel:
    """All rules once more, written as plainly as possible. ``apply`` says whether the operation is accepted."""

    def __init__(self) -> None:
        self.segments: dict[str, SimpleSegment] = {}

    def apply(self, request: AnyRequest) -> bool:
        if isinstance(request, MergeRequest):
            return self._merge(request)
        name = str(request.segment)  # type: ignore[attr-defined]  # of all that are left
        if isinstance(request, CreateRequest):
            if name in self.segments:
                return False
            self.segments[name] = SimpleSegment(dict(request.attributes))
            return True
        segment = self.segments.get(name)
        if segment is None:
            return False
        if isinstance(request, AppendRequest):
            if segment.sealed or not self._conditions_hold(segment, request.updates):
                return False
            if request.expected_offset not in (None, segment.length):
                return False
            segment.length += request.length
            self._update(segment, request.updates)
        elif isinstance(request, UpdateAttributesRequest):
            if segment.sealed or not self._conditions_hold(segment, request.updates):
                return False
            self._update(segment, request.updates)
        elif isinstance(request, SealRequest):
            if segment.sealed:
                return False
            segment.sealed = True
        elif isinstance(request, TruncateRequest):
            if not segment.start <= request.offset <= segment.length:
                return False
            segment.start = request.offset
        elif isinstance(request, DeleteRequest):
            del self.segments[name]
        return True

    def _merge(self, request: MergeRequest) -> bool:
        target, source = self.segments.get(request.target), self.segments.get(request.source)
        if target is None or source is None or target is source or target.sealed or source.start:
            return False
        if not self._conditions_hold(target, request.updates):
            return False
        target.length += source.length
        self._update(target, request.updates)
        del self.segments[request.source]
        return True

    @staticmethod
    def _conditions_hold(segment: SimpleSegment, updates: object) -> bool:
        assert isinstance(updates, list)
        return all(segment.attributes.get(u.attribute_id, NULL_ATTRIBUTE_VALUE) == u.comparison for u in updates)

    @staticmethod
    def _update(segment: SimpleSegment, updates: object) -> None:
        assert isinstance(updates, list)
        for update in updates:
            segment.attributes[update.attribute_id] = update.value


def random_request(rng: random.Random, model: SimpleModel) -> AnyRequest:
    """Mostly one that fits, often enough one that does not."""
    name, source = rng.choice(NAMES), rng.choice(NAMES)
    segment = model.segments.get(name)
    length = segment.length if segment is not None else 0
    updates = []
    for key in rng.sample(KEYS, rng.randrange(3)):
        current = segment.attributes.get(key, NULL_ATTRIBUTE_VALUE) if segment is not None else 0
        comparison = current if rng.random() < 0.8 else rng.randrange(5)
        updates.append(AttributeUpdate(key, AttributeUpdateType.REPLACE_IF_EQUALS, rng.randrange(100), comparison))
    kind = rng.randrange(12)
    if kind < 3:
        return CreateRequest(name)
    if kind < 7:
        expected = rng.choice((None, None, length, length + 1))
        size = rng.randrange(4)
        return AppendRequest(segment=name, data=[bytes(size)], length=size, updates=updates, expected_offset=expected)
    if kind == 7:
        return UpdateAttributesRequest(name, updates)
    if kind == 8:
        return TruncateRequest(name, rng.randrange(length + 2))
    if kind == 9:
        return MergeRequest(name, source, updates)
    return SealRequest(name) if kind == 10 else DeleteRequest(name)


def assert_same(model: SimpleModel, live: dict[str, SegmentMetadata]) -> None:
    assert model.segments.keys() == live.keys()
    for name, expected in model.segments.items():
        segment = live[name]
        found = (segment.length, segment.start_offset, segment.is_sealed)
        assert found == (expected.length, expected.start, expected.sealed), name
        for key in KEYS:
            absent = NULL_ATTRIBUTE_VALUE
            assert segment.attributes.get(key, absent) == expected.attributes.get(key, absent), (name, key)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 32))
def test_staging_decides_as_if_everything_took_effect_at_once(seed: int) -> None:
    rng = random.Random(seed)
    updater = OperationMetadataUpdater(ContainerMetadata(1))
    model = SimpleModel()
    staged: deque[Operation] = deque()
    log: list[bytes] = []
    for _ in range(80):
        request = random_request(rng, model)
        before = updater.metadata.sequence_number
        try:
            if isinstance(request, MergeRequest) and updater.needs_seal(request):
                staged.append(updater.stage(SealRequest(request.source), 1))
            staged.append(updater.stage(request, 1))
            accepted = True
        except RejectedError:
            accepted = False
            assert updater.metadata.sequence_number == before
        assert model.apply(request) is accepted
        while staged and rng.random() < 0.4:
            log.append(_commit(updater, staged.popleft()))
    check_snapshot(updater, model)
    while staged:
        log.append(_commit(updater, staged.popleft()))
    metadata = updater.metadata
    assert_same(model, {name: metadata.segments[segment_id] for name, segment_id in metadata.ids.items()})
    # Private: what stays behind is visible only as memory that grows.
    assert not updater._staged and not updater._staged_ids, "nothing stays behind"
    check_replay(log, metadata)


def _commit(updater: OperationMetadataUpdater, operation: Operation) -> bytes:
    head, body, _ = serialize(operation)
    commit_operation(updater.metadata, operation)
    updater.release([operation])
    return head + b"".join(body)


def check_snapshot(updater: OperationMetadataUpdater, model: SimpleModel) -> None:
    """A checkpoint holds what is on its way, too."""
    snapshot = read_snapshot(write_snapshot(updater.metadata, updater.staged_segments()))
    assert_same(model, {name: snapshot.segments[segment_id] for name, segment_id in snapshot.ids.items()})


def check_replay(log: list[bytes], metadata: ContainerMetadata) -> None:
    """The records lead to the same state as the work did."""
    replayed = ContainerMetadata(1)
    for record in log:
        commit_operation(replayed, deserialize(memoryview(record)))
    assert (replayed.segments, replayed.ids) == (metadata.segments, metadata.ids)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 32))
def test_after_a_rollback_only_the_committed_counts(seed: int) -> None:
    rng = random.Random(seed)
    updater = OperationMetadataUpdater(ContainerMetadata(1))
    committed, staged = SimpleModel(), SimpleModel()
    for step in range(30):
        request = random_request(rng, staged)
        if isinstance(request, MergeRequest):
            continue
        try:
            operation = updater.stage(request, 1)
        except RejectedError:
            assert not staged.apply(request)
            continue
        assert staged.apply(request)
        if step < 15:
            _commit(updater, operation)
            assert committed.apply(request)
    updater.rollback()
    metadata = updater.metadata
    assert_same(committed, {name: metadata.segments[segment_id] for name, segment_id in metadata.ids.items()})
    check_snapshot(updater, committed)
