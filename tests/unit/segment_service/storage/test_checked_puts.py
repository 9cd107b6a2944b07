"""Puts to object storage carry one checksum, which servers that know it look at; others get the client's own hashes."""

from __future__ import annotations

import hashlib
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from pravega_common.errors import SegmentNotFound, Unavailable, UnknownOutcome
from segment_service.storage import checked_minio
from segment_service.storage.checked_minio import checksum_header, header_of
from segment_service.storage.minio import MinioChunkStorage, MinioSettings
from segment_service.storage.s3_access import S3Access
from tests.contract.test_chunk_storage import settings_for
from tests.support.certificates import Authority
from tests.support.server_fixtures import minio_server as minio_server
from tests.support.servers import MinioServer


class Taking(BaseHTTPRequestHandler):
    """Takes what is put; says its checksum if the server knows that header, refuses or ignores it otherwise."""

    server: TakingServer

    def do_HEAD(self) -> None:
        self._answer(200, {})

    def do_DELETE(self) -> None:
        self._answer(204, {})

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.puts.append({name.lower(): value for name, value in self.headers.items()})
        checksum = self.headers[checksum_header]
        if checksum and self.server.manner == "refuses":
            error = b"<Error><Code>NotImplemented</Code><Message>a header is not known</Message></Error>"
            self._answer(501, {"Content-Type": "application/xml"}, error)
        elif checksum and self.server.manner == "knows":
            self._answer(200, {checksum_header: checksum})
        else:
            self._answer(200, {})

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the tests look at the requests."""

    def _answer(self, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class TakingServer(ThreadingHTTPServer):
    def __init__(self, manner: str) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.manner = manner
        self.puts: list[Mapping[str, str]] = []
        """Headers of each."""


@contextmanager
def serving(manner: str, tls: Path | None = None) -> Iterator[tuple[TakingServer, MinioChunkStorage]]:
    """``tls``: a folder for certificates."""
    ca_file = ""
    with TakingServer(manner) as server:
        if tls is not None:
            files = Authority(tls).issue()
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(files.certificate, files.key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            ca_file = str(files.ca)
        threading.Thread(target=server.serve_forever).start()
        try:
            access = S3Access("key", "secret-secret", ca_file=ca_file)
            address = f"127.0.0.1:{server.server_port}"
            settings = MinioSettings(address, "", "", "bucket", secure=tls is not None, access=access)
            yield server, MinioChunkStorage(settings)
        finally:
            server.shutdown()


@pytest.fixture(params=["http", "https"])
def tls(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "tls" if request.param == "https" else None


async def test_a_server_that_knows_checksums_gets_no_other_hash(tls: Path | None) -> None:
    with serving("knows", tls) as (server, storage):
        await storage.start()
        await storage.put("chunk", [b"some ", b"bytes"])
        await storage.close()
    (_, put) = server.puts
    assert put[checksum_header] == header_of(b"some bytes")
    assert put["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
    assert "content-md5" not in put
    assert f"{checksum_header};" in put["authorization"], "a header that is not signed is refused by some"


@pytest.mark.parametrize("manner", ["ignores", "refuses"])
async def test_a_server_that_does_not_know_them_gets_the_clients_hash(manner: str, tls: Path | None) -> None:
    with serving(manner, tls) as (server, storage):
        await storage.start()
        await storage.put("chunk", [b"bytes"])
        await storage.close()
    put = server.puts[-1]
    assert checksum_header not in put
    if tls is None:
        assert put["x-amz-content-sha256"] == hashlib.sha256(b"bytes").hexdigest()
    else:
        assert "content-md5" in put


async def test_a_put_that_was_not_looked_at_is_unknown() -> None:
    """Servers behind one address may differ, and be replaced."""
    with serving("knows") as (server, storage):
        await storage.start()
        server.manner = "ignores"
        with pytest.raises(UnknownOutcome, match="without looking at its checksum"):
            await storage.put("chunk", [b"bytes"])
        await storage.put("chunk-again", [b"bytes"])
        await storage.close()
    assert checksum_header not in server.puts[-1]


async def test_minio_refuses_what_was_changed_on_its_way(
    minio_server: MinioServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = MinioChunkStorage(settings_for(minio_server))
    await storage.start()
    monkeypatch.setattr(checked_minio, "header_of", lambda body: header_of(body[:-1]))
    with pytest.raises(Unavailable, match=r"ChecksumMismatch|BadDigest"):
        await storage.put("chunk", [b"bytes"])
    with pytest.raises(SegmentNotFound):
        await storage.info("chunk")
    await storage.close()
