"""An S3 server that is not the expected one, keys that are missing or temporary, and a bucket that nobody made."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from minio.credentials.providers import AssumeRoleProvider

from pravega_common.errors import ConfigurationError
from segment_service.contracts.chunk_storage import ChunkStorage
from segment_service.storage.factory import make_chunk_storage
from segment_service.storage.s3_access import S3Access
from tests.support.server_fixtures import minio_server as minio_server
from tests.support.servers import MinioServer

CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "MINIO_ACCESS_KEY", "AWS_ACCESS_KEY")


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's user; the role of a machine in a cloud is looked for where nobody answers."""
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/")


@asynccontextmanager
async def opened(server: MinioServer, access: S3Access, bucket: str) -> AsyncIterator[ChunkStorage]:
    storage = make_chunk_storage(f"http://{server.address}/{bucket}", s3=access)
    try:
        await storage.start()
        yield storage
    finally:
        await storage.close()


def a_name() -> str:
    return f"hostile-{uuid.uuid4().hex[:12]}"


def keys(server: MinioServer, *, may_make_bucket: bool = True) -> S3Access:
    return S3Access(server.access_key, server.secret_key, may_make_bucket=may_make_bucket)


async def works(storage: ChunkStorage) -> bool:
    await storage.put("chunk", [b"bytes"])
    return await storage.get("chunk", 0, 5) == b"bytes"


async def test_a_bucket_is_not_made_unasked(minio_server: MinioServer) -> None:
    bucket = a_name()
    with pytest.raises(ConfigurationError, match=r"does not exist at .*: make it, or set tier2\.make_bucket"):
        async with opened(minio_server, keys(minio_server, may_make_bucket=False), bucket):
            pass
    async with opened(minio_server, keys(minio_server), bucket) as storage:
        assert await works(storage)
    async with opened(minio_server, keys(minio_server, may_make_bucket=False), bucket) as storage:
        assert await works(storage)


async def test_credentials_of_the_environment(minio_server: MinioServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", minio_server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", minio_server.secret_key)
    async with opened(minio_server, S3Access(may_make_bucket=True), a_name()) as storage:
        assert await works(storage)


async def test_credentials_of_a_file(minio_server: MinioServer, tmp_path: Path) -> None:
    file = tmp_path / ".aws" / "credentials"
    file.parent.mkdir()
    lines = [f"aws_access_key_id = {minio_server.access_key}", f"aws_secret_access_key = {minio_server.secret_key}"]
    file.write_text("\n".join(["[default]", *lines, ""]))
    async with opened(minio_server, S3Access(may_make_bucket=True), a_name()) as storage:
        assert await works(storage)


async def test_no_credentials_anywhere_is_an_error_that_says_where_they_may_be(minio_server: MinioServer) -> None:
    with pytest.raises(ConfigurationError, match=r"no credentials: set tier2\.access_key"):
        async with opened(minio_server, S3Access(), a_name()):
            pass


async def test_temporary_credentials(minio_server: MinioServer) -> None:
    bucket, server = a_name(), minio_server
    async with opened(server, keys(server), bucket):
        pass
    given = AssumeRoleProvider(
        sts_endpoint=f"http://{server.address}", access_key=server.access_key, secret_key=server.secret_key
    ).retrieve()
    assert given.session_token
    access = S3Access(given.access_key, given.secret_key, given.session_token)
    async with opened(server, access, bucket) as storage:
        assert await works(storage)
    with pytest.raises(ConfigurationError, match="cannot be written"):
        async with opened(server, S3Access(given.access_key, given.secret_key), bucket):
            pass


def test_secrets_are_not_shown(minio_server: MinioServer) -> None:
    shown = repr(S3Access("access", "planted-secret", "planted-token"))
    assert "planted" not in shown
