"""Lists requests to a controller that ask for what cannot be, each with the answer that it gets.

The streams of the world that they are sent to: ``scope/stream`` (segments 0 and 1, then scaled to 2, 3 and 4 of epoch
1), ``scope/other`` (one segment), ``scope/sealed`` (one segment, sealed). Group ``scope/group`` subscribes to
``scope/stream``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from pravega_common.model.table_limits import fixed_key_bytes_max
from pravega_common.proto import controller_pb2 as pb

S = "scope"
LONG = "n" * 256
HUGE = "n" * 100_000
INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND
INTERNAL = grpc.StatusCode.INTERNAL
OK = grpc.StatusCode.OK
INT32_MAX, INT64_MAX, INT64_MIN = 2**31 - 1, 2**63 - 1, -(2**63)
EPOCH_1 = 1 << 32
GOOD_CUT = {EPOCH_1 + 2: 0, EPOCH_1 + 3: 0, EPOCH_1 + 4: 0}
GROUP_ID = str(uuid.UUID(int=7))
OTHER_ID = str(uuid.UUID(int=8))
ABSENT = pb.TxnId(highBits=5, lowBits=5)

BAD_CUTS: Mapping[str, dict[int, int]] = {
    "segments of another stream": {17: 0},
    "half of the keys": {0: 0},
    "overlapping segments": {0: 0, 1: 0, EPOCH_1 + 2: 0},
    "a later epoch": {1 << 40: 0},
    "a negative segment": {-1: 0},
    "the least segment": {INT64_MIN: 0},
    "the greatest segment": {INT64_MAX: INT64_MAX},
    "more segments than a stream has": dict.fromkeys(range(4_501), 0),
    "more than a record holds": dict.fromkeys(range(150_000), INT64_MAX),
}
BAD_NAMES = {
    "empty": "",
    "too long": LONG,
    "huge": HUGE,
    "slash": "a/b",
    "control": "a\0b\n",
    "not ASCII": "strëam",
    "dots and hash": "a.#epoch.1",
    "underscores": "__a",
}


@dataclass(frozen=True)
class BadRequest:
    """``answer``: a status of gRPC, the name of a value of the answer's own status, or one of its fields as
    ``name=value``."""

    method: str
    case: str
    request: Any
    answer: grpc.StatusCode | str

    def __str__(self) -> str:
        return f"{self.method}: {self.case}"


def stream_info(stream: str, scope: str = S) -> pb.StreamInfo:
    return pb.StreamInfo(scope=scope, stream=stream)


def segment(number: int, stream: str = "stream") -> pb.SegmentId:
    return pb.SegmentId(streamInfo=stream_info(stream), segmentId=number)


def configuration(stream: str = "new", scope: str = S, **fields: Any) -> pb.StreamConfig:
    scaling = fields.pop("scaling", pb.ScalingPolicy(minNumSegments=1))
    return pb.StreamConfig(streamInfo=stream_info(stream, scope), scalingPolicy=scaling, **fields)


def group_configuration(**fields: Any) -> pb.ReaderGroupConfiguration:
    cuts = fields.pop("startingStreamCuts", [pb.StreamCut(streamInfo=stream_info("stream"))])
    usual: dict[str, Any] = {"scope": S, "readerGroupName": "new", "maxOutstandingCheckpointRequest": 1}
    usual |= {"readerGroupId": GROUP_ID}
    return pb.ReaderGroupConfiguration(startingStreamCuts=cuts, **usual | fields)


def bad_configurations() -> Iterator[tuple[str, dict[str, Any], grpc.StatusCode | str]]:
    """What is wrong, the fields of a configuration, and the answer."""
    policy: Any = pb.ScalingPolicy
    retention: Any = pb.RetentionPolicy
    yield "no segments", {"scaling": policy(minNumSegments=0)}, "FAILURE"
    yield "negative segments", {"scaling": policy(minNumSegments=-1)}, "FAILURE"
    yield "too many segments", {"scaling": policy(minNumSegments=4_501)}, INVALID
    yield "as many segments as fit a number", {"scaling": policy(minNumSegments=INT32_MAX)}, INVALID
    yield "negative rate", {"scaling": policy(scaleType=1, targetRate=-1, scaleFactor=2, minNumSegments=1)}, INVALID
    yield "no rate", {"scaling": policy(scaleType=1, scaleFactor=2, minNumSegments=1)}, INVALID
    yield "no factor", {"scaling": policy(scaleType=2, targetRate=1, minNumSegments=1)}, INVALID
    yield "negative factor", {"scaling": policy(scaleType=2, targetRate=1, scaleFactor=-2, minNumSegments=1)}, INVALID
    yield "a scale type that is none", {"scaling": policy(scaleType=9, minNumSegments=1)}, INVALID
    yield "negative retention", {"retentionPolicy": retention(retentionType=1, retentionParam=-1)}, INVALID
    yield "negative maximum", {"retentionPolicy": retention(retentionType=2, retentionMax=-1)}, INVALID
    yield "a retention type that is none", {"retentionPolicy": retention(retentionType=9)}, INVALID
    yield "too many tags", {"tags": pb.Tags(tag=[str(number) for number in range(128)])}, INVALID
    yield "a long tag", {"tags": pb.Tags(tag=[LONG])}, INVALID
    yield "negative rollover", {"rolloverSizeBytes": -1}, INVALID
    yield "a negative time-out", {"timestampAggregationTimeout": -1}, INVALID


def about_scopes() -> Iterator[BadRequest]:
    for case, name in BAD_NAMES.items():
        created = INVALID if not name else "INVALID_SCOPE_NAME"
        yield BadRequest("createScope", case, pb.ScopeInfo(scope=name), created)
        deleted = INVALID if not name else "SCOPE_NOT_FOUND"
        yield BadRequest("deleteScope", case, pb.ScopeInfo(scope=name), deleted)
        # What does not exist is deleted.
        recursive = INVALID if not name else "SUCCESS"
        yield BadRequest("deleteScopeRecursive", case, pb.ScopeInfo(scope=name), recursive)
        exists = INVALID if not name else "exists=False"
        yield BadRequest("checkScopeExists", case, pb.ScopeInfo(scope=name), exists)
        scope = pb.ScopeInfo(scope=name)
        yield BadRequest("listStreamsInScope", case, pb.StreamsInScopeRequest(scope=scope), "SCOPE_NOT_FOUND")
        tagged = pb.StreamsInScopeWithTagRequest(scope=scope, tag="tag")
        yield BadRequest("listStreamsInScopeForTag", case, tagged, "SCOPE_NOT_FOUND")
        tables = pb.KVTablesInScopeRequest(scope=scope)
        yield BadRequest("listKeyValueTablesInScope", case, tables, "SCOPE_NOT_FOUND")
    yield BadRequest("createScope", "it exists", pb.ScopeInfo(scope=S), "SCOPE_EXISTS")
    yield BadRequest("deleteScope", "not empty", pb.ScopeInfo(scope=S), "SCOPE_NOT_EMPTY")
    yield BadRequest("deleteScope", "the system's", pb.ScopeInfo(scope="_system"), "SCOPE_NOT_EMPTY")
    yield BadRequest("deleteScopeRecursive", "the system's", pb.ScopeInfo(scope="_system"), "FAILURE")
    scope = pb.ScopeInfo(scope=S)
    for case, text in {"no base64": "é!", "huge": "A" * 100_000}.items():
        token, answer = pb.ContinuationToken(token=text), INVALID
        yield BadRequest("listScopes", case, pb.ScopesRequest(continuationToken=token), answer)
        page = pb.StreamsInScopeRequest(scope=scope, continuationToken=token)
        yield BadRequest("listStreamsInScope", case, page, answer)
        tagged = pb.StreamsInScopeWithTagRequest(scope=scope, tag="tag", continuationToken=token)
        yield BadRequest("listStreamsInScopeForTag", case, tagged, answer)
        tables = pb.KVTablesInScopeRequest(scope=scope, continuationToken=token)
        yield BadRequest("listKeyValueTablesInScope", case, tables, answer)
    for case, tag in {"empty tag": "", "long tag": LONG, "huge tag": HUGE}.items():
        yield BadRequest("listStreamsInScopeForTag", case, pb.StreamsInScopeWithTagRequest(scope=scope, tag=tag), OK)


def about_streams() -> Iterator[BadRequest]:
    for case, name in BAD_NAMES.items():
        yield BadRequest("createStream", f"stream name {case}", configuration(name), "INVALID_STREAM_NAME")
        yield BadRequest("createStream", f"scope name {case}", configuration("new", name), "SCOPE_NOT_FOUND")
    for case, fields, answer in bad_configurations():
        yield BadRequest("createStream", case, configuration(**fields), answer)
        yield BadRequest("updateStream", case, configuration("stream", **fields), answer)
    yield BadRequest("createStream", "no policy", pb.StreamConfig(streamInfo=stream_info("new")), "FAILURE")
    yield BadRequest("createStream", "it exists", configuration("stream"), "STREAM_EXISTS")
    yield BadRequest("updateStream", "sealed", configuration("sealed"), "STREAM_SEALED")
    yield BadRequest("deleteStream", "not sealed", stream_info("stream"), "STREAM_NOT_SEALED")
    for case, cut in {**BAD_CUTS, "empty": {}}.items():
        yield BadRequest("truncateStream", case, pb.StreamCut(streamInfo=stream_info("stream"), cut=cut), "FAILURE")
    sealed = pb.StreamCut(streamInfo=stream_info("sealed"), cut={0: 0})
    yield BadRequest("truncateStream", "sealed", sealed, "STREAM_SEALED")
    for case, name in {**BAD_NAMES, "missing": "missing"}.items():
        missing = stream_info(name)
        nothing = "STREAM_NOT_FOUND" if name else INVALID
        yield BadRequest("updateStream", case, configuration(name), nothing)
        yield BadRequest("truncateStream", case, pb.StreamCut(streamInfo=missing, cut={0: 0}), nothing)
        yield BadRequest("sealStream", case, missing, nothing)
        yield BadRequest("deleteStream", case, missing, nothing)
        yield BadRequest("checkStreamExists", case, missing, "exists=False" if name else INVALID)
        yield BadRequest("getStreamConfiguration", case, missing, NOT_FOUND if name else INVALID)
        # Without authentication it is given to everybody, for streams to come as well.
        yield BadRequest("getDelegationToken", case, missing, OK)


def about_scaling() -> Iterator[BadRequest]:
    half = pb.ScaleRequest.KeyRangeEntry
    new = [half(start=0.0, end=0.5), half(start=0.5, end=1.0)]
    current = list(GOOD_CUT)

    def scale(stream: str = "stream", sealed: Any = current, ranges: Any = new, time_ms: int = 0) -> pb.ScaleRequest:
        return pb.ScaleRequest(
            streamInfo=stream_info(stream), sealedSegments=sealed, newKeyRanges=ranges, scaleTimestamp=time_ms
        )

    for case, name in {**BAD_NAMES, "missing": "missing"}.items():
        yield BadRequest("scale", case, scale(name), "FAILURE" if name else INVALID)
        status = pb.ScaleStatusRequest(streamInfo=stream_info(name), epoch=0)
        yield BadRequest("checkScale", case, status, "INVALID_INPUT" if name else INVALID)
    yield BadRequest("scale", "sealed", scale("sealed", [0]), "FAILURE")
    for case, sealed in {"replaced": [0, 1], "foreign": [17], "negative": [-1], "greatest": [INT64_MAX]}.items():
        yield BadRequest("scale", f"segment {case}", scale(sealed=sealed), "PRECONDITION_FAILED")
    nan, infinite = float("nan"), float("inf")
    for case, ranges in {
        "no ranges": [],
        "a gap": [half(start=0.0, end=0.4), half(start=0.5, end=1.0)],
        "an overlap": [half(start=0.0, end=0.6), half(start=0.5, end=1.0)],
        "a range the wrong way": [half(start=0.5, end=0.0), half(start=0.6, end=1.0)],
        "an empty range": [half(start=0.0, end=0.0), half(start=0.1, end=1.0)],
        "no number": [half(start=nan, end=0.5), half(start=0.5, end=nan)],
        "no end": [half(start=0.0, end=infinite)],
        "outside": [half(start=-1.0, end=2.0)],
    }.items():
        yield BadRequest("scale", case, scale(ranges=ranges), "FAILURE")
    many = [half(start=number / 5_000, end=(number + 1) / 5_000) for number in range(5_000)]
    yield BadRequest("scale", "too many segments", scale(ranges=many), "PRECONDITION_FAILED")
    yield BadRequest("scale", "no segments", scale(sealed=[]), "FAILURE")
    yield BadRequest("scale", "a start twice", scale(ranges=[new[0], new[0]]), INVALID)
    yield BadRequest("scale", "a segment twice", scale(sealed=[*current, current[0]]), "FAILURE")
    for epoch in (-1, 2, INT32_MAX, -(2**31)):
        status = pb.ScaleStatusRequest(streamInfo=stream_info("stream"), epoch=epoch)
        yield BadRequest("checkScale", f"epoch {epoch}", status, "INVALID_INPUT")
        answer = INVALID if epoch < 0 else NOT_FOUND
        segments = pb.GetEpochSegmentsRequest(streamInfo=stream_info("stream"), epoch=epoch)
        yield BadRequest("getEpochSegments", f"epoch {epoch}", segments, answer)


def about_segments() -> Iterator[BadRequest]:
    following = ("getSegmentsImmediatelyFollowing", "getSegmentsImmediatlyFollowing")
    for case, name in {**BAD_NAMES, "missing": "missing"}.items():
        missing, nothing = stream_info(name), NOT_FOUND if name else INVALID
        yield BadRequest("getCurrentSegments", case, missing, nothing)
        yield BadRequest("getEpochSegments", case, pb.GetEpochSegmentsRequest(streamInfo=missing), nothing)
        yield BadRequest("getSegments", case, pb.GetSegmentsRequest(streamInfo=missing), nothing)
        for method in following:
            yield BadRequest(method, case, segment(0, name), nothing)
        cuts = pb.StreamCutRange(streamInfo=missing, to={0: 0})
        yield BadRequest("getSegmentsBetween", case, cuts, nothing)
        yield BadRequest("isSegmentValid", case, segment(0, name), nothing)
        yield BadRequest("isStreamCutValid", case, pb.StreamCut(streamInfo=missing, cut={0: 0}), nothing)
    early = pb.GetSegmentsRequest(streamInfo=stream_info("stream"), timestamp=INT64_MIN)
    yield BadRequest("getSegments", "a time before all", early, OK)
    for number in (-1, 17, INT64_MAX, INT64_MIN, 5 << 32):
        for method in following:
            yield BadRequest(method, f"segment {number}", segment(number), "segments=[]")
        yield BadRequest("isSegmentValid", f"segment {number}", segment(number), "response=False")
        # The owner of a name's container, whether the segment exists or not.
        yield BadRequest("getURI", f"segment {number}", segment(number), INVALID if number < 0 else OK)
    yield BadRequest("getURI", "empty", segment(0, ""), INVALID)
    yield BadRequest("getURI", "huge", segment(0, HUGE), OK)
    for case, cut in {**BAD_CUTS, "empty": {}}.items():
        info = stream_info("stream")
        # Of a cut that names what the stream has, the answer is no; of others there is none.
        valid = "response=False" if case in ("half of the keys", "overlapping segments") else INVALID
        yield BadRequest("isStreamCutValid", case, pb.StreamCut(streamInfo=info, cut=cut), valid)
        if valid is INVALID and cut:
            yield BadRequest("getSegmentsBetween", f"from {case}", _between(cut, {}), INVALID)
            yield BadRequest("getSegmentsBetween", f"to {case}", _between(GOOD_CUT, cut), INVALID)
    yield BadRequest("getSegmentsBetween", "both empty", _between({}, {}), INVALID)
    yield BadRequest("getSegmentsBetween", "backwards", _between(GOOD_CUT, {0: 0, 1: 0}), INVALID)


def _between(start: dict[int, int], end: dict[int, int]) -> pb.StreamCutRange:
    made = pb.StreamCutRange(streamInfo=stream_info("stream"), to=end)
    getattr(made, "from").update(start)
    return made


def about_transactions() -> Iterator[BadRequest]:
    for case, name in {**BAD_NAMES, "missing": "missing"}.items():
        missing = stream_info(name)
        nothing = NOT_FOUND if name else INVALID
        yield BadRequest("createTransaction", case, pb.CreateTxnRequest(streamInfo=missing, lease=60_000), nothing)
        unknown = pb.TxnRequest(streamInfo=missing, txnId=ABSENT)
        for method in ("commitTransaction", "abortTransaction"):
            yield BadRequest(method, case, unknown, "FAILURE" if name else INVALID)
        yield BadRequest("checkTransactionState", case, unknown, "UNKNOWN" if name else INVALID)
        ping = pb.PingTxnRequest(streamInfo=missing, txnId=ABSENT, lease=60_000)
        yield BadRequest("pingTransaction", case, ping, "UNKNOWN" if name else INVALID)
        completed = pb.ListCompletedTxnRequest(streamInfo=missing)
        yield BadRequest("listCompletedTransactions", case, completed, "response=[]" if name else INVALID)
    stream = stream_info("stream")
    for lease in (INT64_MIN, -1, 0, 9_999, 600_001, INT64_MAX):
        request = pb.CreateTxnRequest(streamInfo=stream, lease=lease)
        yield BadRequest("createTransaction", f"lease {lease}", request, INVALID)
    sealed = pb.CreateTxnRequest(streamInfo=stream_info("sealed"), lease=60_000)
    yield BadRequest("createTransaction", "sealed", sealed, INTERNAL)
    for case, high, low in (("unknown", 5, 5), ("negative", -1, -1), ("least", INT64_MIN, INT64_MIN), ("none", 0, 0)):
        identifier = pb.TxnId(highBits=high, lowBits=low)
        transaction = pb.TxnRequest(streamInfo=stream, txnId=identifier)
        yield BadRequest("commitTransaction", f"id {case}", transaction, "FAILURE")
        yield BadRequest("abortTransaction", f"id {case}", transaction, "FAILURE")
        yield BadRequest("checkTransactionState", f"id {case}", transaction, "UNKNOWN")
        for lease in (INT64_MIN, INT64_MAX):
            ping = pb.PingTxnRequest(streamInfo=stream, txnId=identifier, lease=lease)
            yield BadRequest("pingTransaction", f"id {case} lease {lease}", ping, "UNKNOWN")
    huge = pb.TxnRequest(streamInfo=stream, txnId=ABSENT, writerId=HUGE, timestamp=INT64_MIN + 1)
    yield BadRequest("commitTransaction", "huge writer", huge, "FAILURE")


def about_groups() -> Iterator[BadRequest]:
    for case, name in BAD_NAMES.items():
        named = group_configuration(readerGroupName=name)
        yield BadRequest("createReaderGroup", f"name {case}", named, "INVALID_RG_NAME")
        elsewhere = group_configuration(scope=name)
        yield BadRequest("createReaderGroup", f"scope {case}", elsewhere, "SCOPE_NOT_FOUND")
        yield BadRequest("updateReaderGroup", f"name {case}", named, "RG_NOT_FOUND")
        missing = pb.ReaderGroupInfo(scope=S, readerGroup=name, readerGroupId=GROUP_ID)
        yield BadRequest("getReaderGroupConfig", f"name {case}", missing, "RG_NOT_FOUND")
        yield BadRequest("deleteReaderGroup", f"name {case}", missing, "RG_NOT_FOUND")
        yield BadRequest(
            "listSubscribers", f"stream {case}", stream_info(name), "STREAM_NOT_FOUND" if name else INVALID
        )
    cuts = [pb.StreamCut(streamInfo=stream_info("stream"), cut=dict.fromkeys(range(150_000), INT64_MAX))]
    unnamed = [pb.StreamCut(streamInfo=stream_info(""))]
    wrong: dict[str, dict[str, Any]] = {
        "no id": {"readerGroupId": ""},
        "a bad id": {"readerGroupId": "x" * 36},
        "no checkpoints": {"maxOutstandingCheckpointRequest": 0},
        "negative checkpoints": {"maxOutstandingCheckpointRequest": -1},
        "a retention that is none": {"retentionType": 3},
        "a negative retention": {"retentionType": -1},
        "no streams": {"startingStreamCuts": []},
        "no stream's name": {"startingStreamCuts": unnamed},
        "cuts that no record holds": {"startingStreamCuts": cuts},
    }
    for case, fields in wrong.items():
        yield BadRequest("createReaderGroup", case, group_configuration(**fields), INVALID)
        changed = group_configuration(**{"readerGroupName": "group", **fields})
        yield BadRequest("updateReaderGroup", case, changed, INVALID)
    subscribing = group_configuration(
        retentionType=2, startingStreamCuts=[pb.StreamCut(streamInfo=stream_info("missing"))]
    )
    yield BadRequest("createReaderGroup", "subscribing to nothing", subscribing, "FAILURE")
    stale = group_configuration(readerGroupName="group", generation=5)
    yield BadRequest("updateReaderGroup", "a stale generation", stale, "INVALID_CONFIG")
    foreign = group_configuration(readerGroupName="group", readerGroupId=OTHER_ID)
    yield BadRequest("updateReaderGroup", "a foreign id", foreign, "INVALID_CONFIG")
    for case, identifier, answer in (("bad", "x", INVALID), ("no", "", INVALID), ("foreign", OTHER_ID, "RG_NOT_FOUND")):
        info = pb.ReaderGroupInfo(scope=S, readerGroup="group", readerGroupId=identifier)
        yield BadRequest("deleteReaderGroup", f"{case} id", info, answer)
    yield from _about_subscribers()


def _about_subscribers() -> Iterator[BadRequest]:
    def update(cut: dict[int, int], stream: str = "stream", **fields: Any) -> pb.SubscriberStreamCut:
        usual: dict[str, Any] = {"subscriber": f"{S}/group", "generation": 0, "readerGroupId": GROUP_ID}
        return pb.SubscriberStreamCut(streamCut=pb.StreamCut(streamInfo=stream_info(stream), cut=cut), **usual | fields)

    method = "updateSubscriberStreamCut"
    for case, name in {**BAD_NAMES, "missing": "missing"}.items():
        yield BadRequest(method, f"stream {case}", update({0: 0}, name), "STREAM_NOT_FOUND" if name else INVALID)
    for case, name in BAD_NAMES.items():
        yield BadRequest(method, f"subscriber {case}", update(GOOD_CUT, subscriber=name), "SUBSCRIBER_NOT_FOUND")
    yield BadRequest(method, "a stale generation", update(GOOD_CUT, generation=-1), "GENERATION_MISMATCH")
    yield BadRequest(method, "a foreign id", update(GOOD_CUT, readerGroupId=OTHER_ID), "SUBSCRIBER_NOT_FOUND")
    for case, cut in {**BAD_CUTS, "empty": {}}.items():
        yield BadRequest(method, f"cut: {case}", update(cut), "STREAM_CUT_NOT_VALID")


def about_writers() -> Iterator[BadRequest]:
    def note(
        writer: str = "writer", stream: str = "stream", cut: Any = None, time_ms: int = 5
    ) -> pb.TimestampFromWriter:
        position = pb.StreamCut(streamInfo=stream_info(stream), cut=GOOD_CUT if cut is None else cut)
        return pb.TimestampFromWriter(writer=writer, position=position, timestamp=time_ms)

    for case, name in {**BAD_NAMES, "missing": "missing"}.items():
        yield BadRequest("noteTimestampFromWriter", f"stream {case}", note(stream=name), NOT_FOUND if name else INVALID)
        removed = pb.RemoveWriterRequest(writer="writer", stream=stream_info(name))
        yield BadRequest("removeWriter", f"stream {case}", removed, "UNKNOWN_WRITER" if name else INVALID)
    for case, writer in {"empty": "", "huge": HUGE}.items():
        yield BadRequest("noteTimestampFromWriter", f"writer {case}", note(writer), INVALID)
        removed = pb.RemoveWriterRequest(writer=writer, stream=stream_info("stream"))
        yield BadRequest("removeWriter", f"writer {case}", removed, "UNKNOWN_WRITER")
    unknown = pb.RemoveWriterRequest(writer="nobody", stream=stream_info("stream"))
    yield BadRequest("removeWriter", "unknown", unknown, "UNKNOWN_WRITER")
    for case in ("more segments than a stream has", "more than a record holds"):
        yield BadRequest("noteTimestampFromWriter", case, note(cut=BAD_CUTS[case]), INVALID)


def about_tables() -> Iterator[BadRequest]:
    usual: dict[str, Any] = {"scope": S, "kvtName": "new", "partitionCount": 1, "primaryKeyLength": 8}

    def table(**fields: Any) -> pb.KeyValueTableConfig:
        return pb.KeyValueTableConfig(**usual | fields)

    for case, name in BAD_NAMES.items():
        yield BadRequest("createKeyValueTable", f"name {case}", table(kvtName=name), "INVALID_TABLE_NAME")
        yield BadRequest("createKeyValueTable", f"scope {case}", table(scope=name), "SCOPE_NOT_FOUND")
        for scope, missing in ((S, name), (name, "table")):
            info = pb.KeyValueTableInfo(scope=scope, kvtName=missing)
            place = f"{'name' if scope == S else 'scope'} {case}"
            yield BadRequest("deleteKeyValueTable", place, info, "TABLE_NOT_FOUND")
            yield BadRequest("getKeyValueTableConfiguration", place, info, "TABLE_NOT_FOUND")
            yield BadRequest("getCurrentSegmentsKeyValueTable", place, info, NOT_FOUND)
    for case, fields in {
        "no partitions": {"partitionCount": 0},
        "negative partitions": {"partitionCount": -1},
        "too many partitions": {"partitionCount": INT32_MAX},
        "no primary key": {"primaryKeyLength": 0},
        "a negative primary key": {"primaryKeyLength": -1},
        "keys longer than a table's": {"primaryKeyLength": INT32_MAX},
        "keys that are a byte too long": {"primaryKeyLength": fixed_key_bytes_max + 1},
        "keys that are together longer": {"primaryKeyLength": fixed_key_bytes_max, "secondaryKeyLength": 1},
        "a negative secondary key": {"secondaryKeyLength": -1},
        "negative rollover": {"rolloverSizeBytes": -1},
    }.items():
        yield BadRequest("createKeyValueTable", case, table(**fields), INVALID)


def about_controllers() -> Iterator[BadRequest]:
    yield BadRequest("getControllerServerList", "nothing to be wrong", pb.ServerRequest(), OK)
    request = pb.ControllerToBucketMappingRequest(serviceType=9)  # type: ignore[arg-type]
    yield BadRequest("getControllerToBucketMapping", "a service that is none", request, INVALID)


BAD_REQUESTS = (
    *about_scopes(),
    *about_streams(),
    *about_scaling(),
    *about_segments(),
    *about_transactions(),
    *about_groups(),
    *about_writers(),
    *about_tables(),
    *about_controllers(),
)
