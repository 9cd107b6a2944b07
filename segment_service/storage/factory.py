"""Makes the chunk storage that a setting names."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from pravega_common.errors import ConfigurationError
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.storage.blocking import call_time_max_s_default
from segment_service.storage.filesystem import FilesystemChunkStorage
from segment_service.storage.in_memory import InMemoryChunkStorage
from segment_service.storage.s3_access import S3Access

FORMS = "file:///folder, http(s)://host:port/bucket, hdfs://host:port/folder, arrow:URI or memory:"


def make_chunk_storage(
    url: str, *, s3: S3Access | None = None, call_time_max_s: float = call_time_max_s_default
) -> ChunkStorage:
    """The adapter that a Tier-2 URL names; ``s3`` is for S3 only. ``ConfigurationError`` if it names none."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.scheme in ("arrow", "hdfs", "viewfs"):
        from segment_service.storage.arrow_files import ArrowChunkStorage  # a store without it does not load Arrow

        uri = url.removeprefix("arrow:")
        if not urlsplit(uri).scheme:
            raise ConfigurationError(f"Tier-2 URL {url!r} needs a URI of a file system: arrow:hdfs://host:port/folder")
        return ArrowChunkStorage(uri, call_time_max_s=call_time_max_s)
    if parts.scheme == "memory":
        return InMemoryChunkStorage()
    if parts.scheme == "file":
        if not path.startswith("/") or parts.netloc:
            raise ConfigurationError(f"Tier-2 URL {url!r} needs an absolute folder: file:///folder")
        return FilesystemChunkStorage(path, call_time_max_s=call_time_max_s)
    if parts.scheme in ("http", "https"):
        bucket = path.strip("/")
        if not bucket or "/" in bucket or not parts.hostname:
            raise ConfigurationError(
                f"Tier-2 URL {url!r} needs a host and one bucket: {parts.scheme}://host:port/bucket"
            )
        from segment_service.storage.minio import MinioChunkStorage, MinioSettings  # 0.2 s that others do not wait

        access = s3 or S3Access()
        return MinioChunkStorage(
            MinioSettings(
                endpoint=parts.netloc,
                access_key=access.access_key,
                secret_key=access.secret_key,
                bucket=bucket,
                access=access,
                secure=parts.scheme == "https",
                call_time_max_s=call_time_max_s,
            )
        )
    raise ConfigurationError(f"Tier-2 URL {url!r} has an unknown form: use {FORMS}")
