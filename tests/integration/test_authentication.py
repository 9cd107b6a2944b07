"""Users with different permissions on a standalone that asks its clients who they are."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from pravega_common.errors import AccessDenied, AuthenticationFailed
from pravega_common.model.reader_groups import ReaderGroupRetention
from pravega_spark.commands.diagnosis import services
from pravega_spark.commands.findings import AS_OPERATOR, is_well
from pravega_spark.commands.security_diagnosis import security
from pravega_spark.ledger.job_claims import JobClaim, JobClaims, claims_segment
from pravega_spark.standalone.process import StandaloneProcess
from pravega_streams.batch.events import read_events
from pravega_streams.client import StreamClient
from pravega_streams.controller.reader_groups import ReaderGroupClient
from pravega_streams.credentials import BasicCredentials
from pravega_streams.event.event_writer import EventWriter
from pravega_streams.event.transaction import TransactionalWriter
from pravega_streams.stream_manager import StreamManager
from pravega_streams.table.blocking_table import BlockingTable
from pravega_streams.table.key_value_table import CompositeKey
from tests.support.grpc_requests import raw_call
from tests.support.security_cluster import PASSWORD, authenticating_cluster

SCOPE = "s"
USERS = {
    "admin": "prn::*,READ_UPDATE",
    "writer": "prn::/scope:s/stream:t,READ_UPDATE",
    "reader": "prn::/scope:s/stream:t,READ;prn::/scope:s/key-value-table:readers,READ_UPDATE",
    "other": "prn::/scope:s/stream:u,READ_UPDATE",
    "founder": "prn::/,READ_UPDATE",
    "subscriber": "prn::/scope:s/stream:t,READ;prn::/scope:s/reader-group:held,READ_UPDATE",
    "finder": "prn::/scope:s,READ;prn::/scope:s/stream:u,READ",
    "loader": "prn::/scope:s/stream:t,READ_UPDATE;prn::/scope:s/key-value-table:pravega-spark-jobs,READ_UPDATE",
    "deleter": "prn::/scope:s/stream:t,READ;prn::/scope:s/key-value-table:*,READ_UPDATE;"
    "prn::/scope:s/reader-group:loose,READ;prn::/scope:s/reader-group:waited,READ_UPDATE",
    "maker": "prn::/scope:s,READ_UPDATE",
    "keeper": "prn::/scope:s/key-value-table:kept,READ_UPDATE",
    "looker": "prn::/scope:s/key-value-table:kept,READ",
}
pytestmark = pytest.mark.timeout(180)


def credentials(user: str) -> BasicCredentials:
    return BasicCredentials(user, PASSWORD)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with authenticating_cluster(tmp_path_factory.mktemp("authentication"), USERS) as started:
        with StreamManager(started.controller_uri, credentials=credentials("admin")) as admin:
            admin.create_scope(SCOPE)
            for stream in ("t", "u"):
                admin.create_stream(SCOPE, stream, 2)
        yield started


def client_of(cluster: StandaloneProcess, user: str) -> StreamClient:
    return StreamClient(cluster.controller_uri, credentials=credentials(user))


def test_who_may_write_writes_and_who_may_read_reads(cluster: StandaloneProcess) -> None:
    with client_of(cluster, "writer") as writing, EventWriter(writing, SCOPE, "t") as writer:
        for number in range(100):
            writer.write(b"%d" % number, f"key-{number}")
    with client_of(cluster, "writer") as writing:
        transaction = TransactionalWriter(writing, SCOPE, "t").begin()
        transaction.write(b"committed", "key")
        transaction.commit()
    with client_of(cluster, "reader") as reading:
        assert sum(info.length for info in reading.segment_infos(SCOPE, "t", reading.tail_cut(SCOPE, "t")).values())
        found = {bytes(event.data) for event in read_events(reading, SCOPE, "t")}
        assert {b"%d" % number for number in range(100)} <= found
        for attempt in (
            lambda: reading.controller.seal_stream(SCOPE, "t"),
            lambda: reading.controller.create_transaction(SCOPE, "t", 30_000),
            lambda: list(reading.controller.list_streams(SCOPE)),
        ):
            with pytest.raises(AccessDenied, match="user reader has no"):
                attempt()
        needed = "user reader has no READ_UPDATE on prn::/scope:s/stream:t"
        with pytest.raises(AccessDenied, match=needed), EventWriter(reading, SCOPE, "t") as forbidden:
            forbidden.write(b"forbidden", "key")
        with pytest.raises(AccessDenied, match=needed):
            reading.segments.truncate("s/t/0.#epoch.0", 0)
    with client_of(cluster, "other") as other, pytest.raises(AccessDenied):
        list(read_events(other, SCOPE, "t"))


def test_a_reader_needs_the_table_of_its_group(cluster: StandaloneProcess) -> None:
    with StreamManager(cluster.controller_uri, credentials=credentials("writer")) as manager:
        writer = manager.create_writer(SCOPE, "t")
        writer.write(b"for the group", "key")
        writer.close()
        with pytest.raises(AccessDenied):
            manager.create_reader_group(SCOPE, "readers", ["t"])
    with StreamManager(cluster.controller_uri, credentials=credentials("reader")) as manager:
        group = manager.create_reader_group(SCOPE, "readers", ["t"])
        with group.create_reader("one") as reader:
            assert reader.get_segment_slice(timeout_s=30) is not None


def test_a_subscriber_needs_the_reader_group_of_its_name(cluster: StandaloneProcess) -> None:
    with client_of(cluster, "subscriber") as client:
        groups = ReaderGroupClient(client.controller.transport)
        registration = groups.subscribe(SCOPE, "held", [(SCOPE, "t")])
        groups.update_cut(registration, SCOPE, "t", client.tail_cut(SCOPE, "t"))
    needed = "no READ_UPDATE on prn::/scope:s/reader-group:held"
    with client_of(cluster, "reader") as client, pytest.raises(AccessDenied, match=needed):
        ReaderGroupClient(client.controller.transport).subscribe(SCOPE, "held", [(SCOPE, "t")])


def test_a_pattern_finds_the_streams_that_may_be_read_in_a_scope_that_may_be(cluster: StandaloneProcess) -> None:
    with client_of(cluster, "finder") as client:
        assert client.controller.scope_exists(SCOPE)
        assert [name for name in client.controller.list_streams(SCOPE) if not name.startswith("_")] == ["u"]


def test_a_load_needs_the_table_of_claims(cluster: StandaloneProcess) -> None:
    claim = JobClaim("job", "query", f"{SCOPE}/t", 0, "folder", "host")
    with client_of(cluster, "loader") as client:
        claims = JobClaims(BlockingTable(client.segments, claims_segment(SCOPE)), lambda: 0)
        assert claims.put(claim, None) == claim == claims.read(f"{SCOPE}/t", "job")
    with (
        client_of(cluster, "writer") as client,
        pytest.raises(AccessDenied, match="key-value-table:pravega-spark-jobs"),
    ):
        JobClaims(BlockingTable(client.segments, claims_segment(SCOPE)), lambda: 0).put(claim, None)


@pytest.mark.parametrize(
    ("group", "retention"), [("loose", ReaderGroupRetention.NONE), ("waited", ReaderGroupRetention.AUTOMATIC)]
)
def test_who_deletes_a_group_reads_its_registration(
    cluster: StandaloneProcess, group: str, retention: ReaderGroupRetention
) -> None:
    with StreamManager(cluster.controller_uri, credentials=credentials("deleter")) as manager:
        manager.create_reader_group(SCOPE, group, ["t"], retention=retention)
        assert manager.delete_reader_group(SCOPE, group)
        with pytest.raises(AccessDenied, match="no READ on prn::/scope:s/reader-group:readers"):
            manager.delete_reader_group(SCOPE, "readers")


def test_a_table_needs_an_entry_of_its_own(cluster: StandaloneProcess) -> None:
    with StreamManager(cluster.controller_uri, credentials=credentials("maker")) as maker:
        maker.create_key_value_table(SCOPE, "kept", primary_key_length=4)
        with pytest.raises(AccessDenied, match="no READ on prn::/scope:s/key-value-table:kept"):
            maker.open_key_value_table(SCOPE, "kept")
    with StreamManager(cluster.controller_uri, credentials=credentials("keeper")) as keeper:
        keeper.open_key_value_table(SCOPE, "kept").put(CompositeKey(b"aaaa"), b"value")
    with StreamManager(cluster.controller_uri, credentials=credentials("looker")) as looker:
        table = looker.open_key_value_table(SCOPE, "kept")
        assert [entry.value for entry in table.entries()] == [b"value"]
        with pytest.raises(AccessDenied, match="user looker has no READ_UPDATE on prn::/scope:s/key-value-table:kept"):
            table.put(CompositeKey(b"aaaa"), b"other")


def test_tables_and_bytes_have_tokens_too(cluster: StandaloneProcess) -> None:
    with StreamManager(cluster.controller_uri, credentials=credentials("admin")) as admin:
        admin.create_key_value_table(SCOPE, "table", primary_key_length=4)
        table = admin.open_key_value_table(SCOPE, "table")
        table.put(CompositeKey(b"aaaa"), b"value")
        assert [entry.value for entry in table.entries()] == [b"value"]
        admin.create_stream(SCOPE, "bytes", 1)
        with admin.create_byte_stream(SCOPE, "bytes") as file:
            file.write(b"hello")
            file.flush()
            assert file.read(5) == b"hello"
            file.truncate(2)
    reading = StreamManager(cluster.controller_uri, credentials=credentials("reader"))
    with reading, pytest.raises(AccessDenied):
        reading.open_key_value_table(SCOPE, "table")


def test_wrong_and_missing_credentials_are_refused(
    cluster: StandaloneProcess, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for given in (None, BasicCredentials("admin", "wrong"), BasicCredentials("nobody", PASSWORD)):
        with StreamClient(cluster.controller_uri, credentials=given) as client:
            with pytest.raises(AuthenticationFailed) as raised:
                client.controller.scope_exists(SCOPE)
            assert PASSWORD not in f"{raised.value!r} {given!r}"
    file = tmp_path_factory.mktemp("secret") / "password"
    file.write_text(f"{PASSWORD}\n")
    monkeypatch.setenv("PRAVEGA_USER", "admin")
    monkeypatch.setenv("PRAVEGA_PASSWORD_FILE", str(file))
    with StreamClient(cluster.controller_uri) as client:
        assert client.controller.scope_exists(SCOPE)


def test_a_controller_that_asks_for_credentials_is_alive(cluster: StandaloneProcess) -> None:
    """Clients without them find out by a status, not by waiting."""
    with grpc.insecure_channel(cluster.ready()["controller"]) as channel:
        call = raw_call(channel, "/io.pravega.controller.stream.api.grpc.v1.ControllerService/listScopes")
        with pytest.raises(grpc.RpcError) as raised:
            call(b"", timeout=10)
    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_the_doctor_sees_that_strangers_are_refused(
    cluster: StandaloneProcess, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("doctor") / "password"
    file.write_text(PASSWORD)
    monkeypatch.setenv("PRAVEGA_USER", "admin")
    monkeypatch.setenv("PRAVEGA_PASSWORD_FILE", str(file))
    found = {finding.name: finding.is_ok for finding in security(cluster.controller_uri)}
    assert found == {
        "security: TLS": None,
        "security: authentication": True,
        "security: keys of the cluster": True,
        "security: profile": None,
    }


@pytest.mark.parametrize(("user", "denied_at"), [("reader", "prn::/"), ("founder", "prn::/scope:doctor-")])
def test_the_doctor_of_who_is_no_operator_blames_no_service(
    cluster: StandaloneProcess,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    user: str,
    denied_at: str,
) -> None:
    """Also where the scope can be made and nothing in it: it is removed again."""
    file = tmp_path_factory.mktemp("doctor") / "password"
    file.write_text(PASSWORD)
    monkeypatch.setenv("PRAVEGA_USER", user)
    monkeypatch.setenv("PRAVEGA_PASSWORD_FILE", str(file))
    found = {finding.name: finding for finding in services(cluster.controller_uri)}
    assert is_well(found.values()) and "clean-up" not in found
    trip = found["round trip"]
    assert trip.is_ok is None and trip.remedy == AS_OPERATOR
    assert f"user {user} has no READ_UPDATE on {denied_at}" in trip.detail
    if user == "reader":
        for name in ("commits", "segment stores", "security: keys of the cluster"):
            assert (found[name].is_ok, found[name].remedy) == (None, AS_OPERATOR)
            assert found[name].detail.startswith("not permitted to this user: ")
            assert "user reader has no READ on prn::/" in found[name].detail
        assert found["security: profile"].detail == "dev: prod would ask for TLS; not known: keys of the cluster"
    with client_of(cluster, "admin") as admin:
        assert not [scope for scope in admin.controller.list_scopes() if scope.startswith("doctor-")]
