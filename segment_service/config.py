"""Defines the settings of a segment store. ``conf/segment-store.toml`` documents every key."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import SettingsConfigDict

from pravega_common.services.cache_size import cache_bytes_default
from pravega_common.services.cluster.cpo import PersistenceGroup
from pravega_common.services.logs import LogSection
from pravega_common.services.redis_access import RedisSection
from pravega_common.services.security.settings import Profile, SecuritySection
from pravega_common.services.settings import (
    Address,
    Bytes,
    ClusterSection,
    Milliseconds,
    OptionalAddress,
    RedisAddress,
    RedisSafetySection,
    Section,
    ServiceSettings,
    host_and_port,
    lease_ms_max,
)
from pravega_common.services.tls import TlsSection
from segment_service.contracts.segment_storage import write_bytes_max
from segment_service.host.refusals import refusals_per_peer_per_s_default
from segment_service.plog.cluster_registration import group_problems
from segment_service.storage.s3_access import S3Access
from segment_service.tables.table_extension import table_key_bytes_default
from segment_service.traffic.busiest_streams import busiest_streams_default
from segment_service.traffic.settings import TrafficSettings

default_group: Final = "group-0"
"""The name of the persistence group that ``tier1.servers`` makes up."""

redis_tier1: Final = "redis:"
"""The Tier 1 of a cluster: the Redis servers that the settings name."""


class StoreSection(Section):
    id: str = ""
    listen: Address = "127.0.0.1:12345"
    published: OptionalAddress = ""
    containers: Annotated[int, Field(ge=1, le=65_536)] = 4
    connections_max: Annotated[int, Field(ge=1)] = 16_384
    connections_per_peer_max: Annotated[int, Field(ge=0)] = 0
    refusals_per_peer_per_s: Annotated[int, Field(ge=1)] = refusals_per_peer_per_s_default
    local_socket: bool = True
    unflushed_bytes_max: Bytes = 256 * 1024 * 1024
    table_key_bytes_max: Annotated[int, Field(ge=16 * 1024 * 1024)] = table_key_bytes_default
    metrics: OptionalAddress = ""
    metrics_streams_max: Annotated[int, Field(ge=0, le=1_000)] = busiest_streams_default


class StoreClusterSection(ClusterSection):
    lease_ms: Annotated[int, Field(ge=1_000, le=lease_ms_max)] = 10_000
    stale_read_max_ms: Milliseconds = 60_000


def _tier1_url(url: str) -> str:
    """``redis:``, or ``file:`` with an absolute folder; ``ValueError`` for anything else."""
    if url != redis_tier1 and file_folder(url) is None:
        raise ValueError(f"{url!r} is no place for Tier 1: use redis: or file:///folder")
    return url


def file_folder(url: str) -> Path | None:
    """The folder of ``file:/folder`` or ``file:///folder``; ``None`` for another form."""
    parts = urlsplit(url)
    is_folder = parts.scheme == "file" and not parts.netloc and parts.path.startswith("/")
    return Path(unquote(parts.path)) if is_folder else None


class Tier1Section(RedisSafetySection):
    url: Annotated[str, AfterValidator(_tier1_url)] = redis_tier1
    servers: Annotated[tuple[RedisAddress, ...], Field(min_length=1)] = ("127.0.0.1:6379",)
    groups: dict[str, tuple[RedisAddress, ...]] = Field(default_factory=dict)
    plog_bytes: Annotated[int, Field(ge=4 * 1024 * 1024, le=2**31)] = 64 * 1024 * 1024
    heal_time_max_ms: Milliseconds = 60_000
    checkpoint_operations: Annotated[int, Field(ge=1)] = 100_000
    checkpoint_bytes: Bytes = 64 * 1024 * 1024

    @property
    def folder(self) -> Path | None:
        """The folder of a log in local files; ``None`` for Redis."""
        return file_folder(self.url)

    @property
    def persistence_groups(self) -> tuple[PersistenceGroup, ...]:
        """The groups that get this store's new plogs: ``groups``, or one named ``group-0`` of ``servers``."""
        named = self.groups or {default_group: self.servers}
        return tuple(PersistenceGroup(name, servers) for name, servers in sorted(named.items()))


class Tier2Section(Section):
    url: str = "file:///var/lib/pravega-spark/tier2"
    access_key: str = ""
    secret_key: SecretStr = SecretStr("")
    session_token: SecretStr = SecretStr("")
    ca_file: str = ""
    make_bucket: bool = False
    allow_plaintext: bool = False
    flush_bytes: Annotated[int, Field(ge=1, le=write_bytes_max)] = write_bytes_max
    flush_age_ms: Milliseconds = 1_000
    share_small_objects: bool = True
    call_time_max_ms: Milliseconds = 30_000

    @property
    def s3_access(self) -> S3Access:
        return S3Access(
            self.access_key,
            self.secret_key.get_secret_value(),
            self.session_token.get_secret_value(),
            self.ca_file,
            self.make_bucket,
        )

    def problems(self) -> list[str]:
        """One sentence, with the remedy, for each setting that does not go with the others."""
        found = []
        if bool(self.access_key) != bool(self.secret_key.get_secret_value()):
            found.append("tier2.access_key and tier2.secret_key: set both, or none for the usual places of credentials")
        if self.session_token.get_secret_value() and not self.access_key:
            found.append("tier2.session_token goes with tier2.access_key and tier2.secret_key")
        parts = urlsplit(self.url)
        if parts.scheme == "http" and not _is_loopback(parts.hostname or "") and not self.allow_plaintext:
            found.append(
                f"tier2.url = http://{parts.hostname}…: all that is stored would cross the network for all to read; "
                "use https, or set tier2.allow_plaintext = true"
            )
        return found


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class CacheSection(Section):
    bytes_max: Annotated[int, Field(ge=0)] = 0
    disk_folder: str = ""
    disk_bytes_max: Bytes = 8 * 1024 * 1024 * 1024

    @property
    def memory_bytes_max(self) -> int:
        """The size of the cache in memory, as it is set or by the memory of the machine."""
        return self.bytes_max or cache_bytes_default()


class TrafficSection(Section):
    enabled: bool = True
    tick_ms: Milliseconds = 5_000
    window_ms: Milliseconds = 120_000
    cooldown_ms: Annotated[int, Field(ge=0)] = 600_000
    mute_ms: Annotated[int, Field(ge=0)] = 600_000
    idle_ms: Milliseconds = 1_200_000

    @property
    def settings(self) -> TrafficSettings:
        return TrafficSettings(
            is_enabled=self.enabled,
            tick_s=self.tick_ms / 1000,
            window_s=self.window_ms / 1000,
            cooldown_s=self.cooldown_ms / 1000,
            mute_s=self.mute_ms / 1000,
            idle_s=self.idle_ms / 1000,
        )


class SegmentStoreConfig(ServiceSettings):
    """All sections of ``segment-store.toml``."""

    model_config = SettingsConfigDict(env_prefix="PRAVEGA_SEGMENT_STORE_")

    store: StoreSection = StoreSection()
    cluster: StoreClusterSection = StoreClusterSection()
    tier1: Tier1Section = Tier1Section()
    tier2: Tier2Section = Tier2Section()
    cache: CacheSection = CacheSection()
    auto_scale: TrafficSection = TrafficSection()
    tls: TlsSection = TlsSection()
    redis: RedisSection = RedisSection()
    security: SecuritySection = SecuritySection()
    log: LogSection = LogSection()

    @property
    def disk_folders(self) -> dict[str, Path]:
        """The folders that the store itself writes to, by their use."""
        cache = Path(self.cache.disk_folder) if self.cache.disk_folder else None
        folders = {"tier1": self.tier1.folder, "tier2": file_folder(self.tier2.url), "cache": cache}
        return {use: folder for use, folder in folders.items() if folder is not None}

    def contradictions(self) -> list[str]:
        found = [*self.tls.problems(), *self.redis.problems(), *self.tier2.problems()]
        if self.tier2.url.startswith("memory:") and not self.tier1.allow_unsafe_redis:
            found.append(
                "tier2.url = memory: ends with the process, and what is there is cut off Tier 1: use another; for a "
                "test set tier1.allow_unsafe_redis = true"
            )
        store, cache = self.store, self.cache
        if store.unflushed_bytes_max * 3 // 2 > cache.memory_bytes_max:
            found.append(
                f"store.unflushed_bytes_max = {store.unflushed_bytes_max} must be at most two thirds of "
                f"cache.bytes_max = {cache.memory_bytes_max}: what is not in Tier 2 stays in the cache"
            )
        if self.auto_scale.tick_ms > self.auto_scale.window_ms:
            found.append(
                f"auto_scale.tick_ms = {self.auto_scale.tick_ms} must be at most "
                f"auto_scale.window_ms = {self.auto_scale.window_ms}: a rate over a window needs a look in it"
            )
        if self.tier1.groups and "servers" in self.tier1.model_fields_set:
            found.append("tier1.servers and tier1.groups: set one of them; servers is one group without a name")
        found += group_problems(self.cluster.name, self.tier1.persistence_groups)
        found += self.security.contradictions() + self.security.missing_for_production(self.tls, self._redis_servers())
        if self.security.profile is Profile.PROD:
            found += self._unsafe_tiers()
        host, port = host_and_port(store.listen)
        if not store.published and host in ("0.0.0.0", "::"):
            found.append(f"store.listen = {store.listen} is no address for clients: set store.published")
        if store.published and host_and_port(store.published)[1] == 0 and port != 0:
            found.append(f"store.published = {store.published} needs a port")
        return found

    def _redis_servers(self) -> list[str]:
        """The addresses of the control plane's Redis and of those of Tier 1, if that is not in files."""
        groups = self.tier1.persistence_groups if self.tier1.folder is None else ()
        return [self.cluster.cpo, *(server for group in groups for server in group.servers)]

    def _unsafe_tiers(self) -> list[str]:
        """Places of data that the profile ``prod`` does not take."""
        found = []
        if self.tier1.allow_unsafe_redis:
            found.append("security.profile = prod needs tier1.allow_unsafe_redis = false: a crash would lose events")
        if self.tier2.url.startswith(("memory:", "http:")):
            found.append(
                f"security.profile = prod needs another tier2.url than {self.tier2.url.partition(':')[0]}: "
                "memory loses what Tier 1 gives up, and http shows keys and events; use https, file or hdfs"
            )
        return found
