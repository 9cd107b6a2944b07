"""Settings of a controller: one frozen object, read once, from a TOML file (``conf/controller.toml`` lists every key).

An environment variable ``PRAVEGA_CONTROLLER_<SECTION>__<KEY>`` goes before the file.
"""

from __future__ import annotations

import re
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from pravega_common.errors import ConfigurationError

containers_max: Final = 10_000
lease_ms_min: Final = 100

Address = Annotated[str, StringConstraints(pattern=r"^(\[[0-9a-fA-F:]+\]|[^:\s]+):\d{1,5}$")]
"""``host:port``."""
OptionalAddress = Annotated[str, StringConstraints(pattern=r"^((\[[0-9a-fA-F:]+\]|[^:\s]+):\d{1,5})?$")]
Milliseconds = Annotated[int, Field(gt=0)]


class StoreKind(StrEnum):
    TABLES = "tables"
    MEMORY = "memory"


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ControllerSection(_Section):
    id: str = Field(default="", pattern=r"^[A-Za-z0-9._\-]*$", max_length=100)
    listen: Address = "127.0.0.1:9090"
    published: OptionalAddress = ""
    rest: OptionalAddress = "127.0.0.1:10080"
    containers: int = Field(default=4, ge=1, le=containers_max)
    store: StoreKind = StoreKind.TABLES
    extensions: bool = True


class ClusterSection(_Section):
    name: str = Field(default="pravega-spark", min_length=1, max_length=100)
    cpo: str = Field(default="redis://127.0.0.1:6379/0", min_length=1)
    lease_ms: int = Field(default=10_000, ge=lease_ms_min)
    allow_unsafe_redis: bool = False


class TransactionsSection(_Section):
    sink_keep_ms: Milliseconds = 7_776_000_000


class RetentionSection(_Section):
    period_ms: Milliseconds = 1_800_000


class ControllerConfig(BaseSettings):
    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix="PRAVEGA_CONTROLLER_", env_nested_delimiter="__"
    )

    controller: ControllerSection = ControllerSection()
    cluster: ClusterSection = ClusterSection()
    transactions: TransactionsSection = TransactionsSection()
    retention: RetentionSection = RetentionSection()

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


def load_config(path: Path) -> ControllerConfig:
    """``ConfigurationError`` names every setting that is wrong, not only the first."""
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read ({error.strerror})") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: is not TOML ({error})") from error
    return config_of(values, str(path))


def config_of(values: dict[str, Any], origin: str = "configuration") -> ControllerConfig:
    try:
        return ControllerConfig(**values)
    except ValidationError as error:
        problems = "; ".join(_problem(item) for item in error.errors())
        raise ConfigurationError(f"{origin}: {problems}") from error


def _problem(item: Any) -> str:
    name = ".".join(str(part) for part in item["loc"])
    if item["type"] == "extra_forbidden":
        return f"{name}: no such setting"
    return f"{name} = {item['input']!r}: {item['msg']}"


def redis_address(url: str) -> str:
    """``host:port`` or ``unix:/path`` of ``redis://host:port[/0]``, ``unix:/path`` or ``host:port``."""
    address = url.removeprefix("redis://").removesuffix("/0").rstrip("/")
    if address.startswith("unix:/") or re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[^:/@\s]+):\d{1,5}", address):
        return address
    raise ConfigurationError(f"cluster.cpo = {url!r}: must be redis://host:port/0 or unix:/path")


def split_address(address: str) -> tuple[str, int]:
    """Host (without brackets) and port of an ``Address``."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
