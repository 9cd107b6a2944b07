"""Defines the options of a standalone, and checks them as a whole before anything starts."""

from __future__ import annotations

import enum
import errno
import math
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pravega_common.errors import ConfigurationError
from pravega_common.runtime.machine_memory import memory_bytes
from pravega_common.services.log_choices import LogFormat as LogFormat
from pravega_common.services.log_choices import LogLevel as LogLevel

containers_max: Final = 1_024
segment_stores_max: Final = 16
controllers_max: Final = 8
redis_servers_allowed: Final = (1, 3)
CPO_SERVER: Final = "redis-cpo"
"""The Redis of the control plane beside three plog servers, so that the loss of one of them takes nothing else."""
redis_memory_share_default: Final = 0.5
"""Part of the machine's memory that Redis may take."""
redis_memory_mib_min: Final = 64
"""Memory of the Redis of the control plane beside three plog servers."""
hung_after_s_default: Final = 30.0
"""How long a process may leave all questions unanswered. Above the 15 s after which a loop counts as stuck, and the
10 s of a lease: with several stores, others have its containers by then."""
hung_after_s_min: Final = 15.0
"""A loop that was stuck for as long says so itself; a shorter one is a pause."""
redis_bytes_per_store: Final = 1024 * 1024 * 1024
redis_bytes_per_container: Final = 96 * 1024 * 1024
"""More than a store with default settings asks for: what it may hold while Tier 2 is away, and one plog a container."""
STORE_SETTINGS: Final = {
    "STORE__UNFLUSHED_BYTES_MAX": 256 * 1024 * 1024,
    "TIER1__CHECKPOINT_BYTES": 64 * 1024 * 1024,
    "TIER1__PLOG_BYTES": 64 * 1024 * 1024,
}
"""The settings of a store that say how much of Tier 1 it may need, and their defaults; the environment changes them."""
unflushed_ratio: Final = 1.5
redis_overhead_ratio: Final = 1.3
redis_reserve_bytes: Final = 64 * 1024 * 1024
"""As of the store's own check, which looks once Redis runs."""
S3_KEY_VARIABLES: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")


TLS_FOLDER: Final = "tls"
"""The folder of certificates in a data folder."""


_LOOPBACK_OF: Final = {"0.0.0.0": "127.0.0.1"}
"""Where this machine reaches what listens on all of its addresses."""


class Tier1(enum.StrEnum):
    REDIS = "redis"
    FILE = "file"


class Tier2(enum.StrEnum):
    DIR = "dir"
    MINIO = "minio"
    S3 = "s3"
    ARROW = "arrow"


def redis_names(servers: int) -> list[str]:
    """Returns the names, also of the folders, of the Redis processes: plog servers, then that of the control plane."""
    return ["redis"] if servers == 1 else [*(f"redis-{number}" for number in range(servers)), CPO_SERVER]


def default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "pravega-spark"


def authority_file(data_dir: Path) -> Path:
    """The certificate of the authority of a standalone with TLS, which its clients trust."""
    return data_dir.resolve() / TLS_FOLDER / "ca.pem"


@dataclass(frozen=True)
class StandaloneOptions:
    """The options. ``tier2_url``: the bucket of ``--tier2 s3`` (``https://host:port/bucket``), whose keys are in the
    environment, or the folder of ``--tier2 arrow``.
    """

    data_dir: Path = field(default_factory=default_data_dir)
    host: str = "127.0.0.1"
    controller_port: int = 9090
    rest_port: int = 10080
    segment_store_port: int = 12345
    segment_stores: int = 1
    containers: int = 4
    tier2: Tier2 = Tier2.DIR
    tier2_url: str = ""
    ready_file: Path | None = None
    redis_memory_mib: int = 0
    """``maxmemory`` of each plog server; 0 for its part of ``redis_memory_share_default`` of the machine's memory."""
    tier1: Tier1 = Tier1.REDIS
    """``FILE``: the log and the control plane oracle in files of the data folder, without any Redis."""
    cache_folder: Path | None = None
    """Where each store keeps evicted blocks, in a folder of its own; ``None`` for nowhere."""
    cache_mib: int = 0
    """Size of that cache for each store; 0 for the default of ``cache.disk_bytes_max``."""
    redis_servers: int = 1
    controllers: int = 1
    tls: bool = False
    """Whether all ports speak TLS, with certificates that are made in the data folder."""
    metrics_port: int = 12445
    """First port of the stores' health and metrics."""
    published: str = ""
    """The name or address that clients are given; empty: ``host``."""
    log_level: LogLevel = LogLevel.INFO
    log_format: LogFormat = LogFormat.TEXT
    hung_after_s: float = hung_after_s_default
    """Seconds without an answer after which a service is killed and started again; 0 for never."""

    @property
    def redis_memory_bytes(self) -> int:
        """Returns ``maxmemory`` of a plog server; by default never less than what the stores ask for."""
        if self.redis_memory_mib:
            return self.redis_memory_mib << 20
        least = self.segment_stores * redis_bytes_per_store + self.containers * redis_bytes_per_container
        return max(int(memory_bytes() * redis_memory_share_default) // self.redis_servers, least)

    @property
    def redis_memory_mib_needed(self) -> int:
        """Returns what a store, which may have all containers, asks of each plog server before it starts."""
        unflushed, checkpoint, plog = (_store_setting(name) for name in STORE_SETTINGS)
        logged = int(unflushed * unflushed_ratio) + checkpoint + self.containers * plog
        return math.ceil((logged * redis_overhead_ratio + redis_reserve_bytes) / (1024 * 1024))

    @property
    def s3_keys(self) -> tuple[str, str]:
        """Returns access and secret key of ``--tier2 s3``; empty if not set."""
        access, secret = (os.environ.get(name, "") for name in S3_KEY_VARIABLES)
        return access, secret

    @property
    def public_host(self) -> str:
        """The host that clients are given."""
        return self.published or self.host

    @property
    def local_host(self) -> str:
        """The host at which this machine itself reaches the services."""
        return _LOOPBACK_OF.get(self.host, self.host)

    @property
    def store_ports(self) -> list[int]:
        return [self.segment_store_port + index for index in range(self.segment_stores)]

    @property
    def controller_ports(self) -> list[int]:
        return [self.controller_port + index for index in range(self.controllers)]

    @property
    def rest_ports(self) -> list[int]:
        return [self.rest_port + index for index in range(self.controllers)]

    @property
    def metrics_ports(self) -> list[int]:
        return [self.metrics_port + index for index in range(self.segment_stores)]

    @property
    def ports(self) -> list[int]:
        """Lists all ports that the options name."""
        return [*self.controller_ports, *self.rest_ports, *self.store_ports, *self.metrics_ports]

    def validate(self) -> None:
        """Raises ``ConfigurationError`` for the first option that cannot work, with the remedy."""
        _in_range("--segment-stores", self.segment_stores, 1, segment_stores_max)
        _in_range("--controllers", self.controllers, 1, controllers_max)
        _in_range("--containers", self.containers, 1, containers_max)
        if self.redis_servers not in redis_servers_allowed:
            raise ConfigurationError(
                f"--redis-servers {self.redis_servers}: 1, or 3 of which any one may be lost, are possible"
            )
        if self.tier1 is Tier1.FILE and self.redis_servers != 1:
            raise ConfigurationError("--redis-servers goes with --tier1 redis: --tier1 file has no Redis")
        if self.tier1 is Tier1.FILE and self.segment_stores != 1:
            raise ConfigurationError("--tier1 file goes with --segment-stores 1: its log belongs to one process")
        if self.tier1 is Tier1.FILE and self.redis_memory_mib:
            raise ConfigurationError("--redis-memory-mib goes with --tier1 redis: --tier1 file has no Redis")
        if self.redis_memory_mib and self.redis_memory_mib < self.redis_memory_mib_needed:
            raise ConfigurationError(
                f"--redis-memory-mib {self.redis_memory_mib} is below {self.redis_memory_mib_needed}, which a store of"
                f" {self.containers} containers may need while Tier 2 is away: give more, or fewer --containers"
            )
        if self.cache_mib < 0 or (self.cache_mib and self.cache_folder is None):
            raise ConfigurationError(f"--cache-mib {self.cache_mib} must be above 0, and needs --cache-folder")
        if self.tier2 is Tier2.S3 and not self.tier2_url:
            raise ConfigurationError("--tier2 s3 needs --tier2-url https://host:port/bucket")
        if self.tier2 is Tier2.S3 and not all(self.s3_keys):
            raise ConfigurationError(f"--tier2 s3 needs {' and '.join(S3_KEY_VARIABLES)} in the environment")
        if self.tier2 is Tier2.ARROW and not self.tier2_url.startswith(("arrow:", "hdfs:", "viewfs:")):
            raise ConfigurationError("--tier2 arrow needs --tier2-url hdfs://host:port/folder or arrow:URI")
        if self.tier2 not in (Tier2.S3, Tier2.ARROW) and self.tier2_url:
            raise ConfigurationError(f"--tier2-url goes with --tier2 s3 or arrow, not with --tier2 {self.tier2}")
        if self.hung_after_s and not self.hung_after_s >= hung_after_s_min:  # nan is neither
            raise ConfigurationError(
                f"--hung-after-s {self.hung_after_s:g} is not at least {hung_after_s_min:g}: a busy service may be"
                " silent for some seconds; 0 for never"
            )
        if ":" in self.host:
            raise ConfigurationError(f"--host {self.host}: give a host name or an IPv4 address, without port")
        if self.host in _LOOPBACK_OF and not self.published:
            raise ConfigurationError(
                f"--host {self.host} listens on all addresses: name one that clients reach with --published"
            )
        _check_resolves("--host", self.host, socket.AF_INET)  # the services listen on IPv4 addresses alone
        if not all(char.isalnum() or char in ".-" for char in self.published):
            raise ConfigurationError(f"--published {self.published}: give a host name or an IPv4 address, without port")
        if self.published:
            _check_resolves("--published", self.published, socket.AF_UNSPEC)
        self._check_ports()

    def _check_ports(self) -> None:
        ports = {
            "--controller-port": self.controller_ports,
            "--rest-port": self.rest_ports,
            "--segment-store-port": self.store_ports,
            "--metrics-port": self.metrics_ports,
        }
        taken: dict[int, str] = {}
        for option, numbers in ports.items():
            for port in numbers:
                _in_range(option, port, 1, 65_535)
                if port in taken:
                    raise ConfigurationError(f"{option} {port} is already given by {taken[port]}; choose another port")
                taken[port] = option
                _check_free(self.host, option, port)


def _in_range(option: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ConfigurationError(f"{option} {value} is not in {low}..{high}")


def _check_resolves(option: str, host: str, family: socket.AddressFamily) -> None:
    """``ConfigurationError`` for a name at which the services, which use it too, would look for each other in vain."""
    try:
        socket.getaddrinfo(host, None, family)
    except (OSError, UnicodeError) as error:  # UnicodeError: an empty or overlong label
        why = error.strerror if isinstance(error, OSError) else "it is no host name"
        raise ConfigurationError(
            f"{option} {host} does not resolve on this machine ({why}): correct it, enter it in /etc/hosts, or "
            "give the machine's address"
        ) from error


def _check_free(host: str, option: str, port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise ConfigurationError(
                    f"--host {host} is not an address of this machine: give one that it has, or 0.0.0.0 to listen on "
                    "all of them, with --published for the name that clients are given"
                ) from error
            raise ConfigurationError(
                f"port {port} on {host} cannot be used ({error.strerror}): stop what listens there, or choose another"
                f" with {option}"
            ) from error


def _store_setting(name: str) -> int:
    """The value that the stores will have; one that is no number they refuse themselves."""
    text = os.environ.get(f"PRAVEGA_SEGMENT_STORE_{name}", "")
    return int(text) if text.isdecimal() else STORE_SETTINGS[name]
