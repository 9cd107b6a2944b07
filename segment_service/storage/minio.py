"""Keeps chunks as objects of one bucket on MinIO or any other S3 server."""

from __future__ import annotations

import io
import itertools
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from xml.etree.ElementTree import ParseError

import certifi
import structlog
import urllib3
from minio.deleteobjects import DeleteError, DeleteObject
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError
from tenacity import AsyncRetrying, retry_if_exception_type, wait_fixed
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from pravega_common.errors import (
    ConfigurationError,
    DataCorruption,
    PravegaError,
    SegmentNotFound,
    Unavailable,
    UnknownOutcome,
)
from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.runtime.deadline import Deadline
from segment_service.contracts.buffer import Buffer
from segment_service.contracts.chunk_storage import ChunkInfo
from segment_service.storage.blocking import BlockingCalls, call_time_max_s_default, each, threads_max_default
from segment_service.storage.checked_minio import CheckedMinio
from segment_service.storage.s3_access import S3Access
from segment_service.storage.s3_credentials import CredentialsMissing, credentials_provider

T = TypeVar("T")

part_bytes_min = 5 << 20
"""S3's own limit: every part of a multipart object but the last has at least this size."""

page_names_max = 1000
"""Names that ``list`` takes per visit of a thread; also S3's page."""

start_retry_delay_s = 0.2
"""Rest between attempts to start."""

full_code = "XMinioStorageFull"
"""The code of the error with which MinIO refuses what it has no room for."""

_GARBLED: Final = (ParseError, UnicodeDecodeError)
"""The client's errors for answers that are no XML or no text: those of a proxy, say. An element that is missing is a
``ValueError``, as are settings that are wrong."""

too_many_status = 429
"""The status with which some servers ask for fewer requests; S3 itself says 503."""

connect_time_max_s = 5.0
"""Seconds until a connection must stand."""


@dataclass(frozen=True, slots=True)
class MinioSettings:
    """The place of the bucket. ``endpoint`` is ``host:port`` without a scheme."""

    endpoint: str
    access_key: str
    secret_key: str = field(repr=False)
    bucket: str
    secure: bool = False
    region: str = "us-east-1"
    threads_max: int = threads_max_default
    call_time_max_s: float = call_time_max_s_default
    start_time_max_s: float = 30.0
    """How long a server may take that is only just starting: it takes connections before it takes requests."""
    access: S3Access | None = None
    """In place of the two keys."""


class MinioChunkStorage:
    """A ``ChunkStorage`` over the ``minio`` client. No request is repeated here: an answer that did not come is
    ``UnknownOutcome`` for a put and ``Unavailable`` for everything else."""

    def __init__(self, settings: MinioSettings, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._start_time_max_s = settings.start_time_max_s
        self._bucket = settings.bucket
        self._endpoint = settings.endpoint
        access = settings.access or S3Access(settings.access_key, settings.secret_key, may_make_bucket=True)
        self._may_make_bucket = access.may_make_bucket
        self._calls = BlockingCalls("object storage", settings.threads_max, settings.call_time_max_s)
        self._http = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=connect_time_max_s, read=settings.call_time_max_s),
            maxsize=settings.threads_max,
            retries=False,
            cert_reqs="CERT_REQUIRED",
            ca_certs=access.ca_file or certifi.where(),
        )
        self._client = CheckedMinio(
            settings.endpoint,
            credentials=credentials_provider(access, self._clock),
            secure=settings.secure,
            region=settings.region,
            http_client=self._http,
        )
        self._knows_checksums = False
        """Whether the server holds a put against its CRC32C; else the client's own hash is sent with it."""
        self._log = structlog.get_logger(service="object-storage")

    async def start(self) -> None:
        deadline = Deadline.after(self._clock, self._start_time_max_s)
        attempts = AsyncRetrying(
            sleep=self._clock.sleep,
            wait=wait_fixed(start_retry_delay_s),
            stop=lambda _: deadline.expired,
            retry=retry_if_exception_type(Unavailable),
            reraise=True,
        )
        await attempts(self._calls.run, self._start)

    async def put(self, name: str, data: Sequence[Buffer]) -> None:
        await self._write(name, lambda: self._put(name, b"".join(data)))

    async def get(self, name: str, offset: int, length: int) -> bytes:
        return await self.get_with(name, offset, length, _unchanged)

    async def get_with(self, name: str, offset: int, length: int, function: Callable[[bytes], T]) -> T:
        if length == 0:
            await self.info(name)
            return function(b"")
        return await self._calls.run(lambda: function(self._whole(name, offset, length)))

    async def info(self, name: str) -> ChunkInfo:
        return ChunkInfo(name, await self._read(name, lambda: self._length(name)))

    async def list(self, prefix: str) -> AsyncIterator[ChunkInfo]:
        found = self._client.list_objects(self._bucket, prefix=prefix, recursive=True)

        def page() -> list[ChunkInfo]:
            return [
                ChunkInfo(str(one.object_name), int(one.size or 0)) for one in itertools.islice(found, page_names_max)
            ]

        while infos := await self._read(prefix, page):
            for info in infos:
                yield info

    async def delete_all(self, names: Sequence[str]) -> Mapping[str, PravegaError]:
        return await self._calls.delete_all(names, self._delete_all)

    async def close(self) -> None:
        self._calls.close()
        self._http.clear()

    async def _write(self, name: str, function: Callable[[], T]) -> T:
        return await self._calls.run(lambda: _mapped(name, function, UnknownOutcome), overdue=UnknownOutcome)

    async def _read(self, name: str, function: Callable[[], T]) -> T:
        return await self._calls.run(lambda: _mapped(name, function, Unavailable))

    # -- on the threads of the pool

    def _start(self) -> None:
        probe = f".probe-{uuid.uuid4().hex}"
        try:
            if not self._client.bucket_exists(self._bucket):
                self._make_bucket()
            self._knows_checksums = self._probe(probe, b"probe")
            self._client.remove_object(self._bucket, probe)
        except _GARBLED as error:
            raise Unavailable(f"object storage at {self._endpoint} gives an answer that S3 does not give") from error
        except ValueError as error:
            raise ConfigurationError(f"Tier-2 bucket {self._bucket!r} cannot be used: {error}") from error
        except S3Error as error:
            if error.code == full_code:  # it can be read, and gets room again
                self._log.warning("nothing can be put: the object storage is full", endpoint=self._endpoint)
                return
            if _status_of(error) >= 500 or _is_throttled(error):
                raise Unavailable(f"object storage at {self._endpoint} fails: {error.code}") from error
            raise ConfigurationError(
                f"Tier-2 bucket {self._bucket!r} at {self._endpoint} cannot be written ({error.code}): check the keys "
                "and their rights, or make the bucket"
            ) from error
        except CredentialsMissing as error:
            raise ConfigurationError(f"Tier-2 bucket {self._bucket!r} at {self._endpoint}: {error}") from error
        except (MinioException, HTTPError) as error:
            raise Unavailable(f"object storage at {self._endpoint} does not answer: {error}") from error

    def _make_bucket(self) -> None:
        if not self._may_make_bucket:
            raise ConfigurationError(
                f"Tier-2 bucket {self._bucket!r} does not exist at {self._endpoint}: make it, or set tier2.make_bucket"
            )
        try:
            self._client.make_bucket(self._bucket)
        except S3Error as error:
            if error.code not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                raise

    def _probe(self, name: str, body: bytes) -> bool:
        """Put an object as puts do; whether the server knows checksums."""
        try:
            return self._put_checked(name, body)
        except S3Error as error:
            if not _is_refused(error) or _is_throttled(error):
                raise
        self._put_hashed(name, body)
        return False

    def _put(self, name: str, body: bytes) -> None:
        if not self._knows_checksums:
            self._put_hashed(name, body)
        elif not self._put_checked(name, body):
            self._knows_checksums = False
            raise UnknownOutcome(f"chunk {name}: the object storage stored it without looking at its checksum")

    def _put_checked(self, name: str, body: bytes) -> bool:
        return self._client.put_checked(self._bucket, name, body, _part_bytes(body))

    def _put_hashed(self, name: str, body: bytes) -> None:
        self._client.put_object(self._bucket, name, io.BytesIO(body), len(body), part_size=_part_bytes(body))

    def _delete_all(self, names: Sequence[str]) -> Mapping[str, PravegaError]:
        """Delete all in one request; a store that refuses such requests is asked for each."""

        def delete() -> list[DeleteError] | None:
            try:
                return list(self._client.remove_objects(self._bucket, map(DeleteObject, names)))
            except S3Error as error:
                if _is_refused(error) and not _is_throttled(error):
                    return None
                raise

        failures = _mapped(f"{names[0]} and others", delete, UnknownOutcome)
        if failures is None:
            return each(names, self._delete)
        failed: dict[str, PravegaError] = {}
        for failure in failures:
            error = Unavailable(f"chunk {failure.name}: {failure.code}")
            failed |= dict.fromkeys([failure.name] if failure.name and failure.name in names else names, error)
        return failed

    def _delete(self, name: str) -> None:
        _mapped(name, lambda: self._client.remove_object(self._bucket, name), UnknownOutcome)

    def _whole(self, name: str, offset: int, length: int) -> bytes:
        data = _mapped(name, lambda: self._get(name, offset, length), Unavailable)
        if len(data) != length:
            raise DataCorruption(f"chunk {name}: bytes {offset}+{length} wanted, {len(data)} came")
        return data

    def _get(self, name: str, offset: int, length: int) -> bytes:
        response: Any = self._client.get_object(self._bucket, name, offset=offset, length=length)
        try:
            return bytes(response.read())
        finally:
            response.close()
            response.release_conn()

    def _length(self, name: str) -> int:
        return int(self._client.stat_object(self._bucket, name).size or 0)


def _part_bytes(body: bytes) -> int:
    """One part, however long: without a size the client makes several of what has more than 5 MiB."""
    return max(len(body), part_bytes_min)


def _unchanged(data: bytes) -> bytes:
    return data


def _status_of(error: S3Error) -> int:
    return int(getattr(error.response, "status", 500))


def _is_refused(error: S3Error) -> bool:
    """Whether the request did nothing: it is wrong, not allowed, or not known (501)."""
    return 400 <= _status_of(error) < 500 or _status_of(error) == 501


def _is_throttled(error: S3Error) -> bool:
    """Whether the request did nothing, and would have been right later: nothing is to be asked in another way."""
    return _status_of(error) == too_many_status


def _mapped(name: str, function: Callable[[], T], unclear: type[PravegaError]) -> T:
    """Run it with the client's errors as ours. A refusal did nothing; after anything else that reached the
    server the outcome is ``unclear``."""
    try:
        return function()
    except S3Error as error:
        if error.code in ("NoSuchKey", "NoSuchObject"):
            raise SegmentNotFound(name) from error
        if error.code == "InvalidRange":
            raise DataCorruption(f"chunk {name} is shorter than it must be") from error
        raise (Unavailable if _is_refused(error) else unclear)(f"chunk {name}: {error.code}") from error
    except (NewConnectionError, ConnectTimeoutError) as error:
        raise Unavailable(f"chunk {name}: object storage cannot be reached: {error}") from error
    except (HTTPError, ServerError, InvalidResponseError, MinioException, OSError, ValueError, *_GARBLED) as error:
        raise unclear(f"chunk {name}: {type(error).__name__}: {error}") from error
