"""Loads the settings of a service from a TOML file and from environment variables.

A service declares its sections as frozen classes and one ``ServiceSettings`` that holds them. The environment variable
``<PREFIX><SECTION>__<KEY>`` takes precedence over the file. All mistakes are named at once, unknown keys among them.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Self
from urllib.parse import unquote, urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from pravega_common.errors import ConfigurationError
from pravega_common.logins import without_login

TLS_REDIS_SCHEME: Final = "rediss://"
lease_ms_max: Final = 1_200_000
"""Longest lease or lock. One that ends later than that from now was taken before a clock went back."""


def redis_address(url: str) -> str:
    """``host:port`` or ``unix:/path`` of ``redis://host[:port][/0]``, ``host:port`` or ``unix:/path``;
    ``rediss://host:port`` for a server that speaks TLS.

    ``ValueError`` if it has another form, names another database, or has a user or password.
    """
    if url.startswith("unix:/"):
        return url
    if "@" in url:
        raise ValueError(
            f"{without_login(url)!r} has a user or password, which belong into redis.username and redis.password_file"
        )
    parts = urlsplit(url if "://" in url else f"redis://{url}")
    has_port = "://" in url or parts.port is not None
    is_known = parts.scheme in ("redis", "rediss")
    if not is_known or not parts.hostname or not has_port or parts.path not in ("", "/", "/0"):
        raise ValueError(
            f"{url!r} is no Redis address: use redis://host:port, rediss://host:port or unix:/path (database 0 only)"
        )
    if parts.query:
        raise ValueError(f"{url!r} is no Redis address: use redis://host:port without options")
    address = f"{parts.hostname}:{parts.port or 6379}"
    return f"{TLS_REDIS_SCHEME}{address}" if parts.scheme == "rediss" else address


def cpo_address(url: str) -> str:
    """``file:/path`` of ``file:///path`` or ``file:/path``; otherwise as ``redis_address``."""
    if not url.startswith("file:"):
        return redis_address(url)
    parts = urlsplit(url)
    if parts.netloc or not parts.path.startswith("/") or parts.query:
        raise ValueError(f"{url!r} is no file: use file:///path")
    return f"file:{unquote(parts.path)}"


def host_and_port(address: str) -> tuple[str, int]:
    """The host (without brackets) and the port of ``host:port``; ``ValueError`` for another form."""
    host, _, port = address.rpartition(":")
    if not host or any(map(str.isspace, host)) or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{address!r} is no address: use host:port with a port of 0 to 65535")
    return host.strip("[]"), int(port)


def _checked_address(address: str) -> str:
    host_and_port(address)
    return address


def _checked_optional_address(address: str) -> str:
    return _checked_address(address) if address else ""


RedisAddress = Annotated[str, AfterValidator(redis_address)]
CpoAddress = Annotated[str, AfterValidator(cpo_address)]
Address = Annotated[str, AfterValidator(_checked_address)]
OptionalAddress = Annotated[str, AfterValidator(_checked_optional_address)]
Bytes = Annotated[int, Field(ge=1)]
Milliseconds = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A table of the settings file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse ``true`` for a number, which Pydantic would take for 1; a text is how variables give one."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is int:
            raise ValueError(f"{str(value).lower()} is no whole number")
        return value


class ClusterSection(Section):
    """The cluster that a service belongs to, its control plane oracle, and the service's lease there."""

    name: Annotated[str, Field(min_length=1)] = "pravega-spark"
    cpo: CpoAddress = "127.0.0.1:6379"
    lease_ms: Annotated[int, Field(ge=100, le=lease_ms_max)] = 10_000


class RedisSafetySection(Section):
    """The permission to use a Redis that may lose acknowledged data in a crash."""

    allow_unsafe_redis: bool = False


class ServiceSettings(BaseSettings):
    """All sections of a service. Subclasses set ``env_prefix`` in their ``model_config``."""

    model_config = SettingsConfigDict(frozen=True, extra="forbid", env_nested_delimiter="__", hide_input_in_errors=True)

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

    @classmethod
    def load(cls, path: Path) -> Self:
        """The settings of a file. ``ConfigurationError`` with every mistake, one per line."""
        try:
            values = tomllib.loads(path.read_text())
        except OSError as error:
            raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path}: is not TOML: {error}") from error
        return cls.from_values(values, str(path))

    @classmethod
    def from_values(cls, values: dict[str, Any], origin: str = "settings") -> Self:
        """The settings given as nested dictionaries; errors as ``load``."""
        unknown = _unknown_variables(cls)
        if unknown:
            raise _refusal("environment", unknown)
        try:
            settings = cls(**values)
        except SettingsError as error:
            raise _refusal("environment", [_no_json(cls, error)]) from None
        except ValidationError as error:
            # Not chained: the original error may show a secret.
            mistakes = [f"{_origin(cls, item['loc'], origin)}: {_mistake(cls, item)}" for item in error.errors()]
            raise ConfigurationError("\n".join(mistakes)) from None
        contradictions = settings.contradictions()
        if contradictions:
            raise _refusal(origin, contradictions)
        return settings

    def contradictions(self) -> list[str]:
        """Settings that are valid alone and cannot work together; none unless a subclass finds some."""
        return []


def _unknown_variables(settings: type[BaseSettings]) -> list[str]:
    """One mistake for each environment variable that is meant for these settings and sets none of them.

    Others with the prefix are let be: Kubernetes sets ``PRAVEGA_CONTROLLER_PORT`` for a service of that name.
    """
    prefix, delimiter = str(settings.model_config["env_prefix"]), str(settings.model_config["env_nested_delimiter"])
    fields = settings.model_fields
    misspelt = {
        f"{section}_{key}": f"{section}{delimiter}{key}".upper()
        for section, field in fields.items()
        for key in getattr(field.annotation, "model_fields", {})
    }
    mistakes = []
    for variable in sorted(os.environ):
        name = variable.lower().removeprefix(prefix.lower())
        section, is_nested, _ = name.partition(delimiter)
        if len(name) == len(variable) or (is_nested and section in fields):
            continue
        if is_nested:
            mistakes.append(f"{variable}: no such section; there are {', '.join(fields)}")
        elif name in misspelt:
            mistakes.append(f"{variable}: no such setting; {prefix}{misspelt[name]} is one")
    return mistakes


def _no_json(settings: type[BaseSettings], error: SettingsError) -> str:
    """Names the variable of a list or a table that is no JSON; without its value, which may have a secret."""
    prefix, value = str(settings.model_config["env_prefix"]).lower(), getattr(error.__cause__, "doc", None)
    names = [name for name, text in os.environ.items() if name.lower().startswith(prefix) and text == value]
    if not names:
        return str(error)
    return f'{min(names)}: is no JSON ({error.__cause__}); write a list as ["a", "b"] and a table as {{"a": "b"}}'


def _refusal(origin: str, mistakes: Sequence[str]) -> ConfigurationError:
    return ConfigurationError("\n".join(f"{origin}: {mistake}" for mistake in mistakes))


def _origin(settings: type[BaseSettings], location: Sequence[str | int], file: str) -> str:
    """The variable of a setting, or of its section, where the environment has it; else the file."""
    prefix, delimiter = str(settings.model_config["env_prefix"]), str(settings.model_config["env_nested_delimiter"])
    names = [f"{prefix}{delimiter.join(map(str, location[:count]))}".upper() for count in (2, 1)]
    given = {name.upper() for name in os.environ}
    return next((f"environment: {name}" for name in names if name in given), file)


def _mistake(settings: type[BaseSettings], item: Any) -> str:
    location: tuple[str | int, ...] = item["loc"]
    name = ".".join(map(str, location))
    if item["type"] == "extra_forbidden":
        return f"{name}: no such setting"
    if len(location) == 1 or _is_secret(settings, location):
        return f"{name}: {item['msg']}"
    return f"{name} = {without_login(repr(item['input']))}: {item['msg']}"


def _is_secret(settings: type[BaseSettings], location: Sequence[str | int]) -> bool:
    section = settings.model_fields.get(str(location[0]))
    keys = getattr(section.annotation, "model_fields", {}) if section is not None else {}
    key = keys.get(str(location[1]))
    return key is not None and key.annotation is SecretStr
