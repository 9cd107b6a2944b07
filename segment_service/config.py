"""Settings of a segment store process: typed, frozen, checked at once. Documented in ``conf/segment-store.toml``."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from pravega_common.errors import ConfigurationError

environment_prefix: Final = "PRAVEGA_SEGMENT_STORE_"
"""``PRAVEGA_SEGMENT_STORE_TIER2__SECRET_KEY`` overrides ``secret_key`` of ``[tier2]``, and so on for every key."""


def redis_address(url: str) -> str:
    """``host:port`` or ``unix:/path`` of ``redis://host:port[/0]``, ``host:port`` or ``unix:/path``.

    ``ValueError`` if it is none of these.
    """
    if url.startswith("unix:/"):
        return url
    parts = urlsplit(url if "://" in url else f"redis://{url}")
    if parts.scheme != "redis" or not parts.hostname or parts.path not in ("", "/", "/0") or parts.query:
        raise ValueError(f"{url!r} is no Redis address: use redis://host:port or unix:/path (database 0 only)")
    return f"{parts.hostname}:{parts.port or 6379}"


def host_and_port(address: str) -> tuple[str, int]:
    """Of ``host:port``; ``ValueError`` if it is not."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{address!r} is no address: use host:port with a port of 0 to 65535")
    return host.strip("[]"), int(port)


def _checked_address(address: str) -> str:
    host_and_port(address)
    return address


def _checked_optional_address(address: str) -> str:
    return _checked_address(address) if address else ""


RedisAddress = Annotated[str, AfterValidator(redis_address)]
Address = Annotated[str, AfterValidator(_checked_address)]
OptionalAddress = Annotated[str, AfterValidator(_checked_optional_address)]
Bytes = Annotated[int, Field(ge=1)]
Milliseconds = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class StoreSection(_Section):
    id: str = ""
    listen: Address = "127.0.0.1:12345"
    published: OptionalAddress = ""
    containers: Annotated[int, Field(ge=1, le=65_536)] = 4
    connections_max: Annotated[int, Field(ge=1)] = 4096
    unflushed_bytes_max: Bytes = 256 * 1024 * 1024
    metrics: OptionalAddress = ""


class ClusterSection(_Section):
    name: Annotated[str, Field(min_length=1)] = "pravega-spark"
    cpo: RedisAddress = "127.0.0.1:6379"
    lease_ms: Annotated[int, Field(ge=1_000)] = 10_000
    stale_read_max_ms: Milliseconds = 60_000


class Tier1Section(_Section):
    servers: Annotated[tuple[RedisAddress, ...], Field(min_length=1)] = ("127.0.0.1:6379",)
    plog_bytes: Annotated[int, Field(ge=4 * 1024 * 1024)] = 64 * 1024 * 1024
    heal_time_max_ms: Milliseconds = 60_000
    allow_unsafe_redis: bool = False
    checkpoint_operations: Annotated[int, Field(ge=1)] = 100_000
    checkpoint_bytes: Bytes = 64 * 1024 * 1024


class Tier2Section(_Section):
    url: str = "file:///var/lib/pravega-spark/tier2"
    access_key: str = ""
    secret_key: SecretStr = SecretStr("")
    flush_bytes: Annotated[int, Field(ge=1, le=16 * 1024 * 1024)] = 8 * 1024 * 1024
    flush_age_ms: Milliseconds = 1_000
    call_time_max_ms: Milliseconds = 30_000


class CacheSection(_Section):
    bytes_max: Bytes = 512 * 1024 * 1024
    disk_folder: str = ""
    disk_bytes_max: Bytes = 8 * 1024 * 1024 * 1024


class SegmentStoreConfig(BaseSettings):
    """All sections. Environment variables override the file; an unknown key in the file is an error."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=environment_prefix,
        env_nested_delimiter="__",
        hide_input_in_errors=True,
    )

    store: StoreSection = StoreSection()
    cluster: ClusterSection = ClusterSection()
    tier1: Tier1Section = Tier1Section()
    tier2: Tier2Section = Tier2Section()
    cache: CacheSection = CacheSection()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings


def load_config(path: Path) -> SegmentStoreConfig:
    """The settings of a file. ``ConfigurationError`` with every problem, one per line."""
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: is not TOML: {error}") from error
    return make_config(values, str(path))


def make_config(values: dict[str, Any], origin: str = "settings") -> SegmentStoreConfig:
    """The settings given as nested dictionaries; errors as ``load_config``."""
    try:
        config = SegmentStoreConfig(**values)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors(include_input=False)]
        raise ConfigurationError("\n".join(f"{origin}: {problem}" for problem in problems)) from None
    problems = _contradictions(config)
    if problems:
        raise ConfigurationError("\n".join(f"{origin}: {problem}" for problem in problems))
    return config


def _contradictions(config: SegmentStoreConfig) -> list[str]:
    """Settings that are fine alone and cannot work together."""
    problems = []
    if config.store.unflushed_bytes_max * 3 // 2 > config.cache.bytes_max:
        problems.append(
            f"store.unflushed_bytes_max = {config.store.unflushed_bytes_max} must be at most two thirds of "
            f"cache.bytes_max = {config.cache.bytes_max}: what is not in Tier 2 stays in the cache"
        )
    host, port = host_and_port(config.store.listen)
    if not config.store.published and host in ("0.0.0.0", "::"):
        problems.append(f"store.listen = {config.store.listen} is no address for clients: set store.published")
    if config.store.published and host_and_port(config.store.published)[1] == 0 and port != 0:
        problems.append(f"store.published = {config.store.published} needs a port")
    return problems
