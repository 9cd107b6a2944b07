"""Checks addresses, values and retries of the controller client against a small real gRPC server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pickle
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from pravega_common.errors import (
    ConfigurationError,
    InvalidArgument,
    NotFound,
    StreamNotSealed,
    StreamSealed,
    Unavailable,
    UnknownOutcome,
    UnsupportedOperation,
)
from pravega_common.model.reader_groups import ReaderGroupRetention
from pravega_common.model.retention import RetentionPolicy, RetentionType
from pravega_common.model.scaling import ScaleType, ScalingPolicy
from pravega_common.model.stream_configuration import StreamConfiguration
from pravega_common.proto import (
    cluster_health_pb2,
    commit_operations_pb2,
    scope_quotas_pb2,
    stream_lags_pb2,
    transaction_sets_pb2,
)
from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto.controller_pb2_grpc import ControllerServiceServicer, add_ControllerServiceServicer_to_server
from pravega_common.proto_forms import configuration_from, configuration_to
from pravega_common.runtime.client_tls import ClientTls
from pravega_common.stream_cut import StreamCut
from pravega_streams.client import StreamClient
from pravega_streams.connection.endpoints import Endpoint
from pravega_streams.controller.address import ControllerAddress
from pravega_streams.controller.client import ControllerClient
from pravega_streams.controller.failed_attempts import is_question, was_unsent
from pravega_streams.controller.reader_groups import ReaderGroupClient
from pravega_streams.controller.transport import ControllerTransport
from pravega_streams.controller.wait_notice import notice_every_s
from pravega_streams.stream_manager import StreamManager
from tests.support.certificates import Authority
from tests.support.proxy import CuttingProxy
from tests.support.servers import free_port


class Controller(ControllerServiceServicer):
    """Answers what the tests ask; fails the first ``failures`` calls of createScope as a busy controller does."""

    def __init__(self) -> None:
        self.failures = 0
        self.calls = 0

    def createScope(self, request: pb.ScopeInfo, context: grpc.ServicerContext) -> pb.CreateScopeStatus:
        self.calls += 1
        if self.calls <= self.failures:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "write conflict")
        status = {"new": "SUCCESS", "old": "SCOPE_EXISTS", "b@d": "INVALID_SCOPE_NAME"}[request.scope]
        return pb.CreateScopeStatus(status=pb.CreateScopeStatus.Status.Value(status))

    def listScopes(self, request: pb.ScopesRequest, context: grpc.ServicerContext) -> pb.ScopesResponse:
        pages = {"": (["a", "b"], "1"), "1": (["c"], "2"), "2": ([], "2")}
        names, token = pages[request.continuationToken.token]
        return pb.ScopesResponse(scopes=names, continuationToken=pb.ContinuationToken(token=token))

    def deleteStream(self, request: pb.StreamInfo, context: grpc.ServicerContext) -> pb.DeleteStreamStatus:
        return pb.DeleteStreamStatus(status=pb.DeleteStreamStatus.STREAM_NOT_SEALED)

    def getCurrentSegments(self, request: pb.StreamInfo, context: grpc.ServicerContext) -> pb.SegmentRanges:
        context.abort(grpc.StatusCode.NOT_FOUND, f"no stream {request.scope}/{request.stream}")


@pytest.fixture
def controller() -> Controller:
    return Controller()


@contextlib.contextmanager
def serving(controller: ControllerServiceServicer) -> Iterator[int]:
    """The port at which ``controller`` answers."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    add_ControllerServiceServicer_to_server(controller, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


@pytest.fixture
def client(controller: Controller) -> Iterator[ControllerClient]:
    with serving(controller) as port:
        made = ControllerClient(f"tcp://127.0.0.1:{port}")
        yield made
        made.close()


_BAD_NUMBERS = [
    (2**31, "2147483648 is not possible, must be in 0..2147483647"),
    (-1, "-1 is not possible, must be in 0"),
    (True, "True is no whole number"),
    (3.0, "3.0 is no whole number"),
    ("3", "'3' is no whole number"),
]


@pytest.mark.parametrize(("number", "said"), _BAD_NUMBERS)
def test_a_policy_that_no_call_can_carry_names_the_number_and_the_limit(
    client: ControllerClient, number: Any, said: str
) -> None:
    of_segments = said.replace("in 0", "in 1")
    for name, answer, scaling in (
        ("number of segments", of_segments, ScalingPolicy.fixed(number)),
        ("target rate", said, ScalingPolicy(ScaleType.EVENTS_PER_SECOND, number, 2, 1)),
        ("scale factor", said, ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 1, number, 1)),
    ):
        for call in (client.create_stream, client.update_stream):
            with pytest.raises(InvalidArgument, match=f"{name}: {re.escape(answer)}"):
                call("s", "t", StreamConfiguration(scaling))
    with (
        StreamManager(client.transport.address) as manager,
        pytest.raises(InvalidArgument, match=f"number of segments: {re.escape(of_segments)}"),
    ):
        manager.create_stream("s", "t", number)


def test_tags_in_one_text_are_refused_and_not_taken_letter_by_letter(client: ControllerClient) -> None:
    one_text: Any = "live"
    for call in (client.create_stream, client.update_stream):
        with pytest.raises(InvalidArgument, match=r"tags: 'live' is one text.*\['live'\]"):
            call("s", "t", StreamConfiguration(tags=one_text))
    with StreamManager(client.transport.address) as manager:
        with pytest.raises(InvalidArgument, match="tags: 'live' is one text"):
            manager.set_stream_tags("s", "t", one_text)
        with pytest.raises(InvalidArgument, match="streams of a reader group: 'trades' is one text"):
            manager.create_reader_group("s", "g", "trades")


@pytest.mark.parametrize("name", [5, None, b"name", 1.5])
def test_a_name_that_is_no_text_is_refused_as_such(client: ControllerClient, name: Any) -> None:
    with StreamManager(client.transport.address) as manager:
        for what, call in (
            ("a scope", lambda: manager.create_scope(name)),
            ("a scope", lambda: list(manager.list_streams(name))),
            ("a stream", lambda: manager.create_stream("s", name)),
            ("a stream", lambda: manager.create_writer("s", name)),
            ("tags", lambda: manager.create_stream("s", "t", StreamConfiguration(tags=(name,)))),
            ("streams of a reader group", lambda: manager.create_reader_group("s", "g", [name])),
            ("a reader group", lambda: manager.open_reader_group("s", name)),
            ("a table", lambda: manager.create_key_value_table("s", name, primary_key_length=4)),
            ("a table", lambda: manager.open_key_value_table("s", name)),
        ):
            with pytest.raises(InvalidArgument, match=f"^{what}: {re.escape(repr(name))} is no text"):
                call()


def test_other_values_of_a_wrong_kind_are_refused_as_such(client: ControllerClient) -> None:
    wrong: Any = "1"
    with StreamManager(client.transport.address) as manager:
        for said, call in (
            ("'1' is no StreamConfiguration", lambda: manager.update_stream("s", "t", wrong)),
            ("a segment: '1' is no whole number", lambda: client.successors("s", "t", wrong)),
            ("an epoch: 2147483648 is not possible", lambda: client.epoch_segments("s", "t", 2**31)),
            ("refresh time .*: '1' is", lambda: manager.create_reader_group("s", "g", ["t"], refresh_time_ms=wrong)),
            ("streams of a reader group: None is", lambda: manager.create_reader_group("s", "g", cast(Any, None))),
            ("the end of a reader group.*: '1' is", lambda: manager.create_reader_group("s", "g", ["t"], end=wrong)),
            ("'s', 0.* is no stream", lambda: manager.create_reader_group("s", "g", ["t"], end=cast(Any, {0: 5}))),
            ("a scale of 5 to", lambda: client.scale_stream("s", "t", cast(Any, 5), [(0.0, 1.0)])),
            ("a scale of .* to '1'", lambda: client.scale_stream("s", "t", [0], wrong)),
            ("a scale of .* to .*0.5", lambda: client.scale_stream("s", "t", [0], cast(Any, [0.5]))),
            ("a segment to seal: '1' is", lambda: client.scale_stream("s", "t", wrong, [(0.0, 1.0)])),
        ):
            with pytest.raises(InvalidArgument, match=said):
                call()


def test_a_stream_cut_in_the_place_of_its_offsets_is_refused_with_the_remedy(client: ControllerClient) -> None:
    cut: Any = StreamCut("s", "t", {0: 0})
    with StreamManager(client.transport.address) as manager:
        for call in (
            lambda: manager.truncate_stream("s", "t", cut),
            lambda: manager.create_reader_group("s", "g", {"t": cut}),
            lambda: manager.create_reader_group("s", "g", ["t"], end={"t": cut}),
        ):
            with pytest.raises(InvalidArgument, match=r"offset of each segment.* not so StreamCut.*\.offsets$"):
                call()


def test_a_stream_without_segments_is_refused_with_the_number(client: ControllerClient) -> None:
    with pytest.raises(InvalidArgument, match=r"number of segments: 0 is not possible, must be in 1\.\."):
        client.create_stream("s", "t", StreamConfiguration(ScalingPolicy.fixed(0)))


@pytest.mark.parametrize(("number", "said"), [(2**63, "must be in [-0-9]+..9223372036854775807"), *_BAD_NUMBERS[2:]])
def test_times_sizes_and_places_that_no_call_can_carry_name_the_number_and_the_limit(
    client: ControllerClient, number: Any, said: str
) -> None:
    made, groups = uuid.uuid4(), ReaderGroupClient(client.transport)
    calls: dict[str, Callable[[], object]] = {
        "the bytes to retain": lambda: client.create_stream("s", "t", _retaining(RetentionPolicy.by_size(number))),
        "the most milliseconds": lambda: client.update_stream("s", "t", _retaining(RetentionPolicy.by_time(1, number))),
        "rollover size": lambda: client.create_stream("s", "t", StreamConfiguration(rollover_size_bytes=number)),
        "timestamp_agg": lambda: client.create_stream(
            "s", "t", StreamConfiguration(timestamp_aggregation_timeout_ms=number)
        ),
        "lease": lambda: client.create_transaction("s", "t", number),
        "transaction's lease": lambda: client.ping_transaction("s", "t", made, number),
        "writer's time": lambda: client.commit_transaction("s", "t", made, "w", number),
        "a writer's time": lambda: client.note_time("s", "t", "w", {0: 1}, number),
        "a segment to seal": lambda: client.scale_stream("s", "t", [number], [(0.0, 1.0)]),
        "the offset in segment 0": lambda: client.truncate_stream("s", "t", {0: number}),
        "refresh time": lambda: groups.create("s", "g", [("s", "t")], ReaderGroupRetention.MANUAL, number),
        "offset in segment 1": lambda: client.segments_between("s", "t", {1: number}, {}),
        "offset in segment 2": lambda: client.segments_between("s", "t", {}, {2: number}),
        "a cut's segment": lambda: client.is_cut_valid("s", "t", {number: 0}),
    }
    for name, call in calls.items():
        with pytest.raises(InvalidArgument, match=f"{name}.*{said}"):
            call()


def _retaining(retention: RetentionPolicy) -> StreamConfiguration:
    return StreamConfiguration(retention=retention)


def test_uris() -> None:
    assert ControllerAddress.parse("tcp://a:1,b:2").endpoints == (Endpoint("a", 1), Endpoint("b", 2))
    assert ControllerAddress.parse("localhost").endpoints == (Endpoint("localhost", 9090),)
    assert ControllerAddress.parse("tcp://[::1]:1,[::2]").endpoints == (Endpoint("::1", 1), Endpoint("::2", 9090))
    assert ControllerAddress.parse("tcp://a:1, b:2/").endpoints == (Endpoint("a", 1), Endpoint("b", 2))
    for wrong in ("http://a:1", "tcp://", "tcp://a:x", "tcp://a:1,,b:2", "tcp://::1:9090", "tcp://[::1:1"):
        with pytest.raises(ConfigurationError, match="controller"):
            ControllerAddress.parse(wrong)
    for dropped in ("tcp://b:2", "b:2/scope", "b:2?x=1", "b:2#x", "b:0"):
        with pytest.raises(
            ConfigurationError, match=f"'{re.escape(dropped)}' is not host:port; .* tcp://a:9090,b:9090"
        ):
            ControllerAddress.parse(f"tcp://a:1,{dropped}")
    no_text: Any
    for no_text in (None, 9090, ["tcp://a:1"], b"tcp://a:1"):
        with pytest.raises(ConfigurationError, match=f"controller {re.escape(repr(no_text))} is no text"):
            ControllerAddress.of(no_text)


def test_a_user_in_an_address_is_refused_and_its_password_not_shown() -> None:
    for user in ("ann", "ann:secret", "ann:sec,ret", ""):
        with pytest.raises(
            ConfigurationError, match=r"controller 'b:2': a user in an address .* PRAVEGA_USER"
        ) as refused:
            ControllerAddress.parse(f"tcp://a:1,{user}@b:2")
        assert "secret" not in str(refused.value)


def test_uris_with_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Authority(tmp_path).file
    for scheme in ("tls", "ssl", "pravegas"):
        address = ControllerAddress.parse(f"{scheme}://a:1,b:2", ca_file=file, verify_host=False)
        assert address.tls == ClientTls(file.read_text(), verify_host=False)
        assert address.endpoints == (Endpoint("a", 1, address.tls), Endpoint("b", 2, address.tls))
        assert ControllerAddress.of(address) is address
        assert pickle.loads(pickle.dumps(address)) == address
        assert "BEGIN" not in repr(address)
    monkeypatch.delenv("PRAVEGA_CA_FILE", raising=False)
    assert ControllerAddress.parse("tls://a").tls == ClientTls()
    monkeypatch.setenv("PRAVEGA_CA_FILE", str(file))
    assert ControllerAddress.parse("tls://a").tls == ClientTls(file.read_text())
    assert ControllerAddress.parse("tcp://a").tls is None
    with pytest.raises(ConfigurationError, match="write tls://a"):
        ControllerAddress.parse("tcp://a", ca_file=file)


def test_an_existing_scope_is_an_answer_and_a_bad_name_an_error(client: ControllerClient) -> None:
    assert client.create_scope("new")
    assert not client.create_scope("old")
    with pytest.raises(
        InvalidArgument, match=r"b@d: .*; a name of a scope has 1 to 255 characters, of the letters a to z"
    ):
        client.create_scope("b@d")


def test_a_busy_controller_is_asked_again(client: ControllerClient, controller: Controller) -> None:
    controller.failures = 3
    assert client.create_scope("new")
    assert controller.calls == 4


def test_pages_end_with_an_empty_one(client: ControllerClient) -> None:
    assert list(client.list_scopes()) == ["a", "b", "c"]


def test_refusals_have_their_own_errors(client: ControllerClient) -> None:
    with pytest.raises(StreamNotSealed):
        client.delete_stream("s", "t")
    with pytest.raises(NotFound, match="no stream s/t"):
        client.current_segments("s", "t")
    with pytest.raises(UnsupportedOperation):
        client.head_cut("s", "t")


class Beginning(ControllerServiceServicer):
    """Answers as a controller does about a stream that is being created for the first ``creating`` calls, and is open
    or sealed then."""

    def __init__(self, *, creating: int, sealed: bool) -> None:
        self.calls = 0
        self.creating = creating
        self.sealed = sealed

    def createTransaction(self, request: pb.CreateTxnRequest, context: grpc.ServicerContext) -> pb.CreateTxnResponse:
        self.calls += 1
        if self.calls <= self.creating or self.sealed:
            context.abort(grpc.StatusCode.INTERNAL, f"Stream: {request.streamInfo.stream} State: …")
        return pb.CreateTxnResponse(txnId=pb.TxnId(highBits=1, lowBits=2))

    def getCurrentSegments(self, request: pb.StreamInfo, context: grpc.ServicerContext) -> pb.SegmentRanges:
        if self.calls <= self.creating:
            context.abort(grpc.StatusCode.INTERNAL, f"Stream: {request.stream} State: CREATING")
        return pb.SegmentRanges(segmentRanges=[] if self.sealed else [pb.SegmentRange()])


@pytest.mark.parametrize("creating", [0, 3])
def test_a_transaction_on_a_sealed_stream_is_refused_and_one_on_a_new_stream_waits(creating: int) -> None:
    """A controller answers INTERNAL to both, as Pravega's does."""
    for sealed in (True, False):
        beginning = Beginning(creating=creating, sealed=sealed)
        with serving(beginning) as port:
            client = ControllerClient(f"tcp://127.0.0.1:{port}", sleep=lambda seconds: None)
            if sealed:
                with pytest.raises(StreamSealed, match="s/t is sealed"):
                    client.create_transaction("s", "t", 30_000)
            else:
                assert client.create_transaction("s", "t", 30_000).segments == ()
            client.close()
        assert beginning.calls == creating + 1


def test_nobody_there_is_unavailable() -> None:
    client = ControllerClient(f"tcp://127.0.0.1:{free_port()}", attempts=2)
    with pytest.raises(Unavailable, match="is it running there"):
        client.create_scope("new")
    client.close()


class Dying(ControllerServiceServicer):
    """Acts on a call, and is gone with its port before it answers."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.proxy: CuttingProxy | None = None
        self.calls = 0

    def createScope(self, request: pb.ScopeInfo, context: grpc.ServicerContext) -> pb.CreateScopeStatus:
        self._die()
        return pb.CreateScopeStatus(status=pb.CreateScopeStatus.SUCCESS)

    def checkScopeExists(self, request: pb.ScopeInfo, context: grpc.ServicerContext) -> pb.ExistsResponse:
        self._die()
        return pb.ExistsResponse(exists=True)

    def _die(self) -> None:
        self.calls += 1
        assert self.proxy is not None
        asyncio.run_coroutine_threadsafe(self.proxy.stop(), self.loop).result()


@pytest.mark.parametrize("changes", [True, False])
async def test_what_a_controller_did_before_it_died_is_not_guessed(changes: bool) -> None:
    dying = Dying()
    with serving(dying) as port:
        dying.proxy = CuttingProxy(f"127.0.0.1:{port}")
        await dying.proxy.start()
        client = ControllerClient(f"tcp://{dying.proxy.address}", attempts=3)
        method = "createScope" if changes else "checkScopeExists"
        expected = UnknownOutcome if changes else Unavailable
        with pytest.raises(expected, match=rf"{method}: .+; since then no controller answers .*\(Connection refused\)"):
            await asyncio.to_thread(client.create_scope if changes else client.scope_exists, "s")
        client.close()
        assert dying.calls == 1


class Stuck(ControllerServiceServicer):
    """Answers UNAVAILABLE, as a controller does for a lost answer of a store and for a container without one."""

    def createScope(self, request: pb.ScopeInfo, context: grpc.ServicerContext) -> pb.CreateScopeStatus:
        context.abort(grpc.StatusCode.UNAVAILABLE, "s/t: the answer of the store was lost")

    def getURI(self, request: pb.SegmentId, context: grpc.ServicerContext) -> pb.NodeUri:
        context.abort(grpc.StatusCode.UNAVAILABLE, "container 3 is assigned to no store")


def test_a_controller_that_answers_unavailable_has_answered(caplog: pytest.LogCaptureFixture) -> None:
    slept_s: list[float] = []
    with serving(Stuck()) as port:
        client = ControllerClient(
            f"tcp://127.0.0.1:{port}", attempts=9, now_s=lambda: sum(slept_s), sleep=slept_s.append
        )
        with pytest.raises(
            UnknownOutcome, match=r"createScope: s/t: the answer of the store was lost \(UNAVAILABLE\)$"
        ):
            client.create_scope("s")
        with pytest.raises(Unavailable, match=r"getURI: container 3 is assigned to no store$"):
            client.endpoint("s", "t", 0)
        client.close()
    assert caplog.messages and all("cannot serve a call now (" in line for line in caplog.messages)


def test_an_answer_counts_more_than_a_controller_that_is_away() -> None:
    with serving(Stuck()) as port:
        client = ControllerClient(f"tcp://127.0.0.1:{port},127.0.0.1:{free_port()}", attempts=2)
        with pytest.raises(Unavailable, match=r"getURI: container 3 is assigned to no store; since then no controller"):
            client.endpoint("s", "t", 0)
        client.close()


class Failure(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self._code = code
        self._details = details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


@pytest.mark.parametrize(
    ("code", "details", "unsent"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:1: refused", True),
        ("UNAVAILABLE", "errors resolving away:1: [field:hostname lookup error:Domain name not found]", True),
        ("UNAVAILABLE", "DNS resolution failed for away:1: C-ares status is not ARES_SUCCESS", True),
        ("UNAVAILABLE", "Socket closed", False),
        ("UNAVAILABLE", "", False),
        ("UNKNOWN", "failed to connect to all addresses", False),
        ("UNAVAILABLE", "store 1: failed to connect to all addresses", False),
    ],
)
def test_only_a_call_without_a_connection_was_certainly_not_sent(code: str, details: str, unsent: bool) -> None:
    assert was_unsent(Failure(grpc.StatusCode[code], details)) is unsent


def test_the_calls_that_change_something_are_known() -> None:
    """A new call of a name that is not listed here belongs here, or into ``is_question``."""
    files = (
        pb,
        cluster_health_pb2,
        commit_operations_pb2,
        scope_quotas_pb2,
        stream_lags_pb2,
        transaction_sets_pb2,
    )
    services = [service for file in files for service in file.DESCRIPTOR.services_by_name.values()]
    changing = {name for service in services for name in service.methods_by_name if not is_question(name)}
    assert changing == {
        *("createScope", "deleteScope", "deleteScopeRecursive"),
        *("createStream", "updateStream", "truncateStream", "sealStream", "deleteStream", "scale"),
        *("createTransaction", "commitTransaction", "abortTransaction", "pingTransaction"),
        *("noteTimestampFromWriter", "removeWriter"),
        *("createKeyValueTable", "deleteKeyValueTable"),
        *("createReaderGroup", "updateReaderGroup", "deleteReaderGroup", "updateSubscriberStreamCut"),
        *("RegisterTransactions", "CommitTransactionSet", "ForgetSink"),
        *("SetScopeQuota", "GiveUpTransaction", "AcceptLoss"),
    }


@pytest.mark.parametrize(
    "configuration",
    [
        StreamConfiguration(),
        StreamConfiguration(ScalingPolicy(ScaleType.EVENTS_PER_SECOND, 100, 2, 3), tags=("a", "b")),
        StreamConfiguration(retention=RetentionPolicy(RetentionType.SIZE, 1_000, 2_000), rollover_size_bytes=7),
    ],
)
def test_configurations_survive_the_wire(configuration: StreamConfiguration) -> None:
    sent = configuration_to("s", "t", configuration).SerializeToString()
    assert configuration_from(pb.StreamConfig.FromString(sent)) == configuration


class SlowController(ControllerServiceServicer):
    """Answers createScope when ``released`` is set, and small questions at once unless it hangs."""

    def __init__(self, *, hangs: bool) -> None:
        self.released = threading.Event()
        self.hangs = hangs
        self.calls = 0

    def createScope(self, request: pb.ScopeInfo, context: grpc.ServicerContext) -> pb.CreateScopeStatus:
        self.calls += 1
        self.released.wait(20)
        return pb.CreateScopeStatus(status=pb.CreateScopeStatus.SUCCESS)

    def getDelegationToken(self, request: pb.StreamInfo, context: grpc.ServicerContext) -> pb.DelegationToken:
        if self.hangs:
            self.released.wait(20)
        return pb.DelegationToken()


def test_a_controller_that_hangs_costs_one_short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pravega_streams.controller.transport.probe_time_max_s", 0.2)
    hung, well = SlowController(hangs=True), Controller()
    with serving(hung) as hung_port, serving(well) as port:
        transport = ControllerTransport(f"tcp://127.0.0.1:{hung_port},127.0.0.1:{port}", silence_s=0.2)
        try:
            started_s = time.monotonic()
            for _ in range(6):
                answer = transport.controller("createScope", pb.ScopeInfo(scope="new"))
                assert answer.status == pb.CreateScopeStatus.SUCCESS
            assert time.monotonic() - started_s < 10
            assert (hung.calls, well.calls) == (1, 6)
        finally:
            hung.released.set()
            transport.close()


def test_a_controller_that_is_not_there_is_told_within_two_seconds(caplog: pytest.LogCaptureFixture) -> None:
    slept_s: list[float] = []
    told_after_s: list[float] = []

    def sleep(seconds: float) -> None:
        told_after_s.extend([sum(slept_s)] * (len(caplog.messages) - len(told_after_s)))
        slept_s.append(seconds)

    port = free_port()
    transport = ControllerTransport(f"tcp://127.0.0.1:{port}", now_s=lambda: sum(slept_s), sleep=sleep)
    with pytest.raises(Unavailable, match=rf"^no controller answers at 127\.0\.0\.1:{port} \(Connection refused\); is"):
        transport.controller("createScope", pb.ScopeInfo(scope="new"))
    transport.close()
    pattern = rf"controller 127\.0\.0\.1:{port} does not answer \(Connection refused\); asking again for up to (\d+) s"
    left_s = [int(found[1]) for line in caplog.messages if (found := re.fullmatch(pattern, line))]
    assert len(left_s) == len(caplog.messages) >= 2
    assert told_after_s[0] < 2
    assert all(sum(slept_s) <= told + left + 1 for told, left in zip(told_after_s, left_s, strict=True))
    assert all(later - told >= notice_every_s for told, later in itertools.pairwise(told_after_s))


@pytest.mark.parametrize("hangs", [True, False])
def test_a_controller_that_hangs_is_told_and_a_busy_one_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, hangs: bool
) -> None:
    monkeypatch.setattr("pravega_streams.controller.transport.quiet_time_max_s", 0.1)
    controller = SlowController(hangs=hangs)
    with serving(controller) as port:
        transport = ControllerTransport(f"tcp://127.0.0.1:{port}", silence_s=20)
        threading.Timer(1.5, controller.released.set).start()
        try:
            transport.controller("createScope", pb.ScopeInfo(scope="new"))
        finally:
            transport.close()
    assert caplog.messages == [f"controller 127.0.0.1:{port} has answered nothing for 0.6 s; waiting for it"] * hangs
    assert controller.calls == 1


def test_a_call_that_takes_long_is_waited_for() -> None:
    busy = SlowController(hangs=False)
    with serving(busy) as port:
        transport = ControllerTransport(f"tcp://127.0.0.1:{port}", silence_s=0.05)
        threading.Timer(0.5, busy.released.set).start()
        try:
            assert transport.controller("createScope", pb.ScopeInfo(scope="new")).status == pb.CreateScopeStatus.SUCCESS
            assert busy.calls == 1
        finally:
            transport.close()


class Waiting(ControllerServiceServicer):
    """Answers nothing before ``released``; counts the calls that came."""

    def __init__(self) -> None:
        self.came = threading.Semaphore(0)
        self.released = threading.Event()
        self.calls = 0

    def _wait(self) -> None:
        self.calls += 1
        self.came.release()
        self.released.wait(20)

    def createScope(self, request: pb.ScopeInfo, context: grpc.ServicerContext) -> pb.CreateScopeStatus:
        self._wait()
        return pb.CreateScopeStatus(status=pb.CreateScopeStatus.SUCCESS)

    def checkScopeExists(self, request: pb.ScopeInfo, context: grpc.ServicerContext) -> pb.ExistsResponse:
        self._wait()
        return pb.ExistsResponse(exists=True)


def test_a_call_that_runs_when_its_client_is_closed_ends_at_once_and_is_not_sent_again() -> None:
    waiting = Waiting()
    with serving(waiting) as port, futures.ThreadPoolExecutor(2) as threads:
        client = ControllerClient(f"tcp://127.0.0.1:{port}")
        changing, asking = threads.submit(client.create_scope, "s"), threads.submit(client.scope_exists, "s")
        try:
            assert waiting.came.acquire(timeout=10) and waiting.came.acquire(timeout=10)
            client.close()
            with pytest.raises(UnknownOutcome, match=r"createScope: .*closed .* may have been done"):
                changing.result(timeout=2)
            with pytest.raises(InvalidArgument, match="is closed; make another one"):
                asking.result(timeout=2)
        finally:
            waiting.released.set()
    assert waiting.calls == 2


@pytest.mark.parametrize("method", ["createScope", "checkScopeExists"])
def test_a_call_of_a_closed_client_is_refused_and_not_sent(controller: Controller, method: str) -> None:
    with serving(controller) as port:
        transport = ControllerTransport(f"tcp://127.0.0.1:{port}")
        transport.controller("createScope", pb.ScopeInfo(scope="new"))
        channel = transport._channels.of(0)
        for _ in range(2):
            transport.close()
        with pytest.raises(InvalidArgument, match=rf"client of 127\.0\.0\.1:{port} is closed; make another one"):
            transport.controller(method, pb.ScopeInfo(scope="new"))
        # As for a thread that had the channel just before.
        transport._channels.of = lambda index: channel  # type: ignore[method-assign]
        with pytest.raises(InvalidArgument, match="is closed; make another one"):
            transport.controller(method, pb.ScopeInfo(scope="new"))
    assert controller.calls == 1


@pytest.mark.parametrize("is_there", [True, False])
def test_a_client_that_is_closed_between_two_attempts_makes_no_other(controller: Controller, is_there: bool) -> None:
    """An attempt that reached a controller may have been done, whatever it answered."""
    controller.failures = 9
    expected, said = (UnknownOutcome, "may have been done") if is_there else (InvalidArgument, "make another one")
    with serving(controller) as port:
        transport = ControllerTransport(
            f"tcp://127.0.0.1:{port if is_there else free_port()}", sleep=lambda seconds: transport.close()
        )
        with pytest.raises(expected, match=said):
            transport.controller("createScope", pb.ScopeInfo(scope="new"))
    assert controller.calls == is_there


def test_the_pause_of_a_call_ends_when_its_client_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pravega_streams.controller.transport.retry_delay_min_s", 60.0)
    pausing = threading.Event()
    transport = ControllerTransport(f"tcp://127.0.0.1:{free_port()}")
    monkeypatch.setattr(transport._notice, "failed", lambda *_: pausing.set())
    with futures.ThreadPoolExecutor(1) as threads:
        call = threads.submit(transport.controller, "createScope", pb.ScopeInfo(scope="new"))
        assert pausing.wait(10)
        transport.close()
        with pytest.raises(InvalidArgument, match="is closed"):
            call.result(timeout=5)


def test_a_client_that_is_closed_before_its_first_call_makes_no_connection(controller: Controller) -> None:
    with serving(controller) as port:
        for made in (StreamClient(f"tcp://127.0.0.1:{port}"), StreamManager(f"tcp://127.0.0.1:{port}").client):
            made.close()
            for _ in range(2):
                with pytest.raises(InvalidArgument, match="is closed; make another one"):
                    made.controller.create_scope("new")
                with pytest.raises(InvalidArgument, match="is closed; make another one"):
                    made.segments.info("s/t/0.#epoch.0")
    assert controller.calls == 0
