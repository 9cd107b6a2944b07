"""Gives the contract suites real servers."""

from __future__ import annotations

from tests.support.server_fixtures import minio_server, own_redis, redis_group, redis_server

__all__ = ["minio_server", "own_redis", "redis_group", "redis_server"]
