"""Object storage that answers and takes nothing, as a full or an overloaded one does: starts on it, puts, deletions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pravega_common.errors import ConfigurationError, PravegaError, Unavailable, UnknownOutcome
from segment_service.storage.checked_minio import checksum_header
from segment_service.storage.minio import MinioChunkStorage, MinioSettings, full_code


class Refusing(BaseHTTPRequestHandler):
    """Knows the bucket, and answers each put with the server's status and code."""

    server: RefusingServer

    def do_HEAD(self) -> None:
        self._answer(200, b"")

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.checksums.append(self.headers[checksum_header])
        code = f"<Error><Code>{self.server.code}</Code><Message>as it is</Message></Error>"
        self._answer(self.server.status, self.server.raw or code.encode())

    def do_GET(self) -> None:  # a list
        self._answer(200, self.server.listed)

    def do_POST(self) -> None:  # a deletion of several objects
        self.do_PUT()

    def do_DELETE(self) -> None:
        self.server.deleted.append(self.path)
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the tests look at the client."""

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", self.server.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class RefusingServer(ThreadingHTTPServer):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(("127.0.0.1", 0), Refusing)
        self.status = status
        self.code = code
        self.deleted: list[str] = []
        self.checksums: list[str | None] = []
        """Those that came with puts."""
        self.listed = b""
        self.content_type = "application/xml"
        self.raw = b""
        """In place of an error with the code."""


@contextmanager
def storage_on(status: int, code: str) -> Iterator[MinioChunkStorage]:
    with storage_and_server(status, code) as (storage, _):
        yield storage


@contextmanager
def storage_and_server(status: int, code: str) -> Iterator[tuple[MinioChunkStorage, RefusingServer]]:
    with RefusingServer(status, code) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            address = f"127.0.0.1:{server.server_port}"
            settings = MinioSettings(address, "key", "secret-secret", "bucket", start_time_max_s=0.3)
            yield MinioChunkStorage(settings), server
        finally:
            server.shutdown()


async def test_a_full_one_is_started() -> None:
    """Its containers tell what they wait for; a store that ends tells it to nobody."""
    with storage_on(507, full_code) as storage:
        await storage.start()
        with pytest.raises(PravegaError, match=full_code):
            await storage.put("new", [b"later"])
        await storage.close()


async def test_one_that_fails_is_unavailable() -> None:
    with storage_on(503, "SlowDown") as storage:
        with pytest.raises(Unavailable, match="SlowDown"):
            await storage.start()
        await storage.close()


async def test_one_that_refuses_is_an_error_of_the_configuration() -> None:
    with storage_on(403, "AccessDenied") as storage:
        with pytest.raises(ConfigurationError, match="AccessDenied"):
            await storage.start()
        await storage.close()


class Parts(tuple[bytes, ...]):
    """The bytes of an object; notes the thread that joins them."""

    joined_in: threading.Thread | None = None

    def __iter__(self) -> Iterator[bytes]:
        self.joined_in = threading.current_thread()
        return super().__iter__()


async def test_a_put_is_joined_in_the_thread_that_sends_it() -> None:
    """The loop goes on, and those that wait for a thread hold no copy of their bytes."""
    with storage_on(503, "SlowDown") as storage:
        parts = Parts((b"one", b"two"))
        with pytest.raises(PravegaError, match="SlowDown"):
            await storage.put("new", parts)
        assert parts.joined_in not in (None, threading.main_thread())
        await storage.close()


@pytest.mark.parametrize(("status", "code"), [(405, "MethodNotAllowed"), (501, "NotImplemented")])
async def test_one_that_takes_no_deletion_of_several_objects_is_asked_for_each(status: int, code: str) -> None:
    with storage_and_server(status, code) as (storage, server):
        assert await storage.delete_all(["one", "two/three"]) == {}
        assert server.deleted == ["/bucket/one", "/bucket/two/three"]
        await storage.close()


async def test_deletions_by_one_that_fails_are_not_repeated_one_by_one() -> None:
    with storage_and_server(503, "SlowDown") as (storage, server):
        failed = await storage.delete_all(["one", "two"])
        assert list(failed) == ["one", "two"]
        assert all("SlowDown" in str(error) for error in failed.values())
        assert not server.deleted
        await storage.close()


async def test_deletions_by_one_that_asks_for_fewer_requests_are_not_repeated_one_by_one() -> None:
    """Each of a thousand names would be a request more."""
    with storage_and_server(429, "TooManyRequests") as (storage, server):
        failed = await storage.delete_all(["one", "two"])
        assert all("TooManyRequests" in str(error) for error in failed.values())
        assert list(failed) == ["one", "two"]
        assert not server.deleted
        await storage.close()


async def test_one_that_asks_for_fewer_requests_is_unavailable() -> None:
    """Neither its keys nor their rights are wrong."""
    with storage_on(429, "TooManyRequests") as storage:
        with pytest.raises(Unavailable, match="TooManyRequests"):
            await storage.start()
        await storage.close()


async def test_one_that_asks_for_fewer_requests_once_is_still_asked_for_checksums() -> None:
    """A probe that is repeated with the client's hash would leave it with that, at ten times the CPU, for good."""
    with storage_and_server(429, "TooManyRequests") as (storage, server):
        with pytest.raises(Unavailable):
            await storage.start()
        assert server.checksums
        assert all(server.checksums)
        await storage.close()


@pytest.mark.parametrize("answer", [b"<html><p>busy</html>", b"", b"<Nothing/>"])
async def test_a_list_that_is_no_answer_of_s3_is_unavailable(answer: bytes) -> None:
    """What stands before a server answers for it. Any other error would stop the container that asked."""
    with storage_and_server(503, "SlowDown") as (storage, server):
        server.listed = answer
        with pytest.raises(Unavailable):
            await anext(storage.list("c1/"))
        await storage.close()


async def test_an_error_that_is_no_text_is_unavailable() -> None:
    with storage_and_server(503, "SlowDown") as (storage, server):
        server.content_type, server.raw = "text/html", b"\xff\xfe"
        with pytest.raises(UnknownOutcome):
            await storage.put("new", [b"bytes"])
        with pytest.raises(Unavailable):
            await storage.start()
        await storage.close()
