"""Defines the settings of a controller. ``conf/controller.toml`` documents every key."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from controller_service.api.grpc.access_guard import AccessControl
from controller_service.api.grpc.call_limits import calls_max_default, calls_per_peer_max_default
from controller_service.api.grpc.connection_watch import connections_max_default, connections_per_peer_max_default
from controller_service.api.refused_calls import refusals_per_peer_per_s_default
from controller_service.api.rest import server as rest_server
from controller_service.policies.auto_scale import AutoScaleLimits
from pravega_common.errors import ConfigurationError
from pravega_common.runtime.clock import Clock
from pravega_common.services.audit_log import AuditLog
from pravega_common.services.logs import AuditedLogSection
from pravega_common.services.redis_access import RedisSection
from pravega_common.services.security.authentication import PasswordAuthentication
from pravega_common.services.security.bearer_tokens import (
    ACCESS_CLAIM_DEFAULT,
    BearerAuthentication,
    SchemeAuthentication,
    TokenRules,
)
from pravega_common.services.security.json_web_keys import open_keys
from pravega_common.services.security.settings import Profile, SecuritySection
from pravega_common.services.settings import (
    Address,
    ClusterSection,
    Milliseconds,
    OptionalAddress,
    RedisSafetySection,
    Section,
    ServiceSettings,
)
from pravega_common.services.tls import TlsSection

containers_max: Final = 10_000


class StoreKind(StrEnum):
    TABLES = "tables"
    MEMORY = "memory"


class ControllerSection(Section):
    id: str = Field(default="", pattern=r"^[A-Za-z0-9._\-]*$", max_length=100)
    listen: Address = "127.0.0.1:9090"
    published: OptionalAddress = ""
    connections_max: int = Field(default=connections_max_default, ge=1)
    connections_per_peer_max: int = Field(default=connections_per_peer_max_default, ge=1)
    calls_max: int = Field(default=calls_max_default, ge=1)
    calls_per_peer_max: int = Field(default=calls_per_peer_max_default, ge=1)
    refusals_per_peer_per_s: int = Field(default=refusals_per_peer_per_s_default, ge=1)
    rest: OptionalAddress = "127.0.0.1:10080"
    rest_hosts: tuple[str, ...] = ()
    rest_connections_max: int = Field(default=rest_server.connections_max_default, ge=1)
    rest_connections_per_peer_max: int = Field(default=rest_server.connections_per_peer_max_default, ge=1)
    containers: int = Field(default=4, ge=1, le=containers_max)
    store: StoreKind = StoreKind.TABLES
    extensions: bool = True


class ControllerClusterSection(ClusterSection, RedisSafetySection):
    """A controller reaches no Redis but the control plane oracle's."""


class TransactionsSection(Section):
    sink_keep_ms: Milliseconds = 7_776_000_000


class RetentionSection(Section):
    period_ms: Milliseconds = 1_800_000
    history_ms: Milliseconds = 86_400_000


class WatermarksSection(Section):
    period_ms: Milliseconds = 10_000


class AutoScaleSection(Section):
    report_valid_ms: Milliseconds = 600_000
    cooldown_ms: int = Field(default=600_000, ge=0)

    @property
    def limits(self) -> AutoScaleLimits:
        return AutoScaleLimits(self.report_valid_ms, self.cooldown_ms)


class ControllerSecuritySection(SecuritySection):
    password_file: str = ""
    metrics_open: bool = False
    jwt_keys: str = ""
    jwt_issuer: str = ""
    jwt_audience: str = ""
    jwt_access_claim: str = Field(default=ACCESS_CLAIM_DEFAULT, min_length=1)
    jwt_ca_file: str = ""

    def contradictions(self) -> list[str]:
        found = super().contradictions()
        if (self.authentication or self.profile is Profile.PROD) and not (self.password_file or self.jwt_keys):
            found.append(
                "security.authentication needs security.password_file or security.jwt_keys: nobody is known without"
            )
        if self.jwt_keys and not (self.jwt_issuer and self.jwt_audience):
            found.append("security.jwt_keys needs security.jwt_issuer and security.jwt_audience")
        if "://" in self.jwt_keys and not self.jwt_keys.startswith("https://"):
            found.append("security.jwt_keys is neither a file nor an https:// address: others could give out keys")
        return found

    def access(self, clock: Clock, subject: str, audit: AuditLog | None = None) -> AccessControl | None:
        """The authentication of callers and the tokens that they get; ``None`` without authentication.

        ``ConfigurationError`` for files that cannot be used.
        """
        tokens = self.tokens(clock, subject)
        if not self.authentication or tokens is None:
            return None
        file = Path(self.password_file)
        passwords = PasswordAuthentication(file, clock, audit=audit) if self.password_file else None
        if self.jwt_keys:
            keys = open_keys(self.jwt_keys, self.jwt_ca_file, clock)
            rules = TokenRules(self.jwt_issuer, self.jwt_audience, self.jwt_access_claim)
            return AccessControl(SchemeAuthentication(BearerAuthentication(keys, rules, clock), passwords), tokens)
        if passwords is None:
            raise ConfigurationError("; ".join(self.contradictions()))
        return AccessControl(passwords, tokens)


class ControllerConfig(ServiceSettings):
    """All sections of ``controller.toml``."""

    model_config = SettingsConfigDict(env_prefix="PRAVEGA_CONTROLLER_")

    controller: ControllerSection = ControllerSection()
    cluster: ControllerClusterSection = ControllerClusterSection()
    transactions: TransactionsSection = TransactionsSection()
    retention: RetentionSection = RetentionSection()
    watermarks: WatermarksSection = WatermarksSection()
    auto_scale: AutoScaleSection = AutoScaleSection()
    security: ControllerSecuritySection = ControllerSecuritySection()
    tls: TlsSection = TlsSection()
    redis: RedisSection = RedisSection()
    log: AuditedLogSection = AuditedLogSection()

    def contradictions(self) -> list[str]:
        found = (
            self.tls.problems()
            + self.redis.problems()
            + self.security.contradictions()
            + self.security.missing_for_production(self.tls, (self.cluster.cpo,))
        )
        if self.security.profile is Profile.PROD and self.cluster.allow_unsafe_redis:
            found.append(
                "security.profile = prod needs cluster.allow_unsafe_redis = false: a crash would lose the cluster"
            )
        return found
