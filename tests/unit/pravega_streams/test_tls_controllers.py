"""Calls controllers with wrong certificates, or without TLS on one side: one sentence, at once."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest

from pravega_common.errors import AuthenticationFailed, ConfigurationError, PravegaError, Unavailable
from pravega_common.proto import controller_pb2 as pb
from pravega_common.proto.controller_pb2_grpc import ControllerServiceServicer, add_ControllerServiceServicer_to_server
from pravega_streams.controller.address import ControllerAddress
from pravega_streams.controller.transport import ControllerTransport
from tests.support.certificates import Authority, CertificateFiles
from tests.support.servers import free_port


class ScopeMaker(ControllerServiceServicer):
    """Makes every scope."""

    def createScope(self, request: pb.ScopeInfo, context: Any) -> pb.CreateScopeStatus:
        return pb.CreateScopeStatus(status=pb.CreateScopeStatus.SUCCESS)


@contextlib.contextmanager
def serving(files: CertificateFiles | None, port: int = 0) -> Iterator[int]:
    """The port of a controller with this certificate, or without TLS; by default a free one."""
    server = grpc.server(futures.ThreadPoolExecutor(2))
    add_ControllerServiceServicer_to_server(ScopeMaker(), server)
    if files is None:
        port = server.add_insecure_port(f"127.0.0.1:{port}")
    else:
        pair = files.key.read_bytes(), files.certificate.read_bytes()
        port = server.add_secure_port(f"127.0.0.1:{port}", grpc.ssl_server_credentials([pair]))
    server.start()
    try:
        yield port
    finally:
        server.stop(None).wait()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "ca")


def create_scope(address: ControllerAddress) -> int:
    """The status of the answer. The test fails if a second attempt would be made."""

    def no_pause(_seconds: float) -> None:
        pytest.fail("another attempt")

    transport = ControllerTransport(address, sleep=no_pause)
    try:
        return int(transport.controller("createScope", pb.ScopeInfo(scope="new")).status)
    finally:
        transport.close()


def refusal(address: ControllerAddress) -> PravegaError:
    with pytest.raises((AuthenticationFailed, ConfigurationError)) as refused:
        create_scope(address)
    return refused.value


def test_a_call_over_tls(authority: Authority) -> None:
    with serving(authority.issue()) as port:
        for host in ("localhost", "127.0.0.1"):
            address = ControllerAddress.parse(f"tls://{host}:{port}", ca_file=authority.file)
            assert create_scope(address) == pb.CreateScopeStatus.SUCCESS


def test_an_authority_that_is_not_trusted(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other", "another authority").file
    with serving(authority.issue()) as port:
        said = refusal(ControllerAddress.parse(f"tls://127.0.0.1:{port}", ca_file=other))
    assert isinstance(said, AuthenticationFailed)
    assert f"the controller at 127.0.0.1:{port} shows a certificate that is not trusted" in str(said)
    assert "PRAVEGA_CA_FILE" in str(said)


def test_a_certificate_that_ended(authority: Authority) -> None:
    with serving(authority.issue(days=-1)) as port:
        said = refusal(ControllerAddress.parse(f"tls://127.0.0.1:{port}", ca_file=authority.file))
    assert isinstance(said, AuthenticationFailed) and "expired: renew it" in str(said)


def test_a_certificate_of_another_host(authority: Authority) -> None:
    with serving(authority.issue(hosts=("elsewhere.example",))) as port:
        said = refusal(ControllerAddress.parse(f"tls://127.0.0.1:{port}", ca_file=authority.file))
        assert isinstance(said, AuthenticationFailed) and "connect by a name that it has" in str(said)
        any_name = ControllerAddress.parse(f"tls://127.0.0.1:{port}", ca_file=authority.file, verify_host=False)
        assert create_scope(any_name) == pb.CreateScopeStatus.SUCCESS


def test_a_certificate_whose_name_is_in_its_subject_alone(authority: Authority) -> None:
    """As older authorities make them: it names no host, but gRPC takes the common name for one."""
    with serving(authority.issue("elsewhere.example", hosts=())) as port:
        any_name = ControllerAddress.parse(f"tls://127.0.0.1:{port}", ca_file=authority.file, verify_host=False)
        assert create_scope(any_name) == pb.CreateScopeStatus.SUCCESS


def test_a_certificate_without_a_name(authority: Authority) -> None:
    with serving(authority.issue("", hosts=())) as port:
        said = refusal(ControllerAddress.parse(f"tls://127.0.0.1:{port}", ca_file=authority.file, verify_host=False))
    assert isinstance(said, ConfigurationError)
    assert f"the certificate of the controller at 127.0.0.1:{port} has no name" in str(said)


def test_a_controller_of_any_name_may_be_away_and_come_back_with_another_name(authority: Authority) -> None:
    """gRPC compares names always: the client reads it out of the certificate, and again once it may be another one."""
    port = free_port()
    address = ControllerAddress.parse(f"tls://127.0.0.1:{port}", ca_file=authority.file, verify_host=False)
    transport = ControllerTransport(address, attempts=3)
    for _ in range(2):
        with pytest.raises(Unavailable, match=rf"no controller answers at 127\.0\.0\.1:{port} \(.*Connection refused"):
            transport.controller("createScope", pb.ScopeInfo(scope="new"))
    for host in ("elsewhere.example", "moved.example"):
        with serving(authority.issue(host, hosts=(host,)), port):
            for _ in range(2):
                answer = transport.controller("createScope", pb.ScopeInfo(scope="new"))
                assert answer.status == pb.CreateScopeStatus.SUCCESS
    transport.close()


def test_a_controller_without_tls() -> None:
    with serving(None) as port:
        said = refusal(ControllerAddress.parse(f"tls://127.0.0.1:{port}"))
    assert isinstance(said, ConfigurationError) and "does not speak TLS: use tcp://host:port" in str(said)


def test_a_controller_with_tls_and_a_client_without(authority: Authority) -> None:
    with serving(authority.issue()) as port:
        said = refusal(ControllerAddress.parse(f"tcp://127.0.0.1:{port}"))
    assert isinstance(said, ConfigurationError) and "speaks TLS: use tls://host:port" in str(said)


def test_another_controller_with_a_good_certificate_serves_the_call(authority: Authority) -> None:
    with serving(authority.issue("ended", days=-1)) as ended, serving(authority.issue("good")) as good:
        address = ControllerAddress.parse(f"tls://127.0.0.1:{ended},127.0.0.1:{good}", ca_file=authority.file)
        pauses_s: list[float] = []
        transport = ControllerTransport(address, sleep=pauses_s.append)
        for _ in range(4):
            transport.controller("createScope", pb.ScopeInfo(scope="new"))
        transport.close()
        assert len(pauses_s) == 1


def test_a_controller_that_is_away_may_come_back(authority: Authority) -> None:
    """One that has the wrong certificate is no reason to give up while nobody knows about the other one."""
    with serving(authority.issue(days=-1)) as ended:
        address = ControllerAddress.parse(f"tls://127.0.0.1:{ended},127.0.0.1:{free_port()}", ca_file=authority.file)
        pauses_s: list[float] = []
        transport = ControllerTransport(address, attempts=4, sleep=pauses_s.append)
        with pytest.raises(PravegaError, match="no controller answers"):
            transport.controller("createScope", pb.ScopeInfo(scope="new"))
        transport.close()
        assert len(pauses_s) == 3
