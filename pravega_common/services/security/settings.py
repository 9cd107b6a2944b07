"""Defines the settings of the section ``security``, which both services have."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Final

from pydantic import Field

from pravega_common.runtime.clock import Clock
from pravega_common.services.security.cluster_keys import ClusterKeys
from pravega_common.services.security.delegation_tokens import DelegationTokens, token_life_ms_default
from pravega_common.services.settings import TLS_REDIS_SCHEME, Section
from pravega_common.services.tls import TlsSection

_PROTECTED: Final = (TLS_REDIS_SCHEME, "unix:", "file:")
"""Beginnings of the addresses of Redis servers, and of files in their place, of which nothing crosses a network
readable."""


class Profile(StrEnum):
    DEV = "dev"
    PROD = "prod"


class SecuritySection(Section):
    profile: Profile = Profile.DEV
    cluster_key_file: str = ""
    authentication: bool = False
    token_life_ms: int = Field(default=token_life_ms_default, ge=60_000, le=86_400_000)

    def contradictions(self) -> list[str]:
        """Settings that are valid alone and cannot work together."""
        if self.authentication and not self.cluster_key_file:
            return [
                "security.authentication needs security.cluster_key_file: stores know clients by tokens signed with it"
            ]
        return []

    def missing_for_production(self, tls: TlsSection, redis: Iterable[str]) -> list[str]:
        """Lists the settings that a service of the profile ``prod`` lacks, one line each; none in another profile.

        ``redis``: the addresses of all servers that it uses."""
        if self.profile is not Profile.PROD:
            return []
        needs = {
            "tls.certificate_file and tls.key_file: others on the way read passwords and events": tls.is_served,
            "security.cluster_key_file: everybody could do what controllers do": bool(self.cluster_key_file),
            "security.authentication = true: everybody could do everything": self.authentication,
        }
        found = [f"security.profile = prod needs {what}" for what, is_there in needs.items() if not is_there]
        plain = (address for address in dict.fromkeys(redis) if not address.startswith(_PROTECTED))
        return found + [
            f"security.profile = prod needs TLS to Redis {address}: everything acknowledged and the login cross the "
            "network as they are; use rediss://host:port, or unix:/path on one machine"
            for address in plain
        ]

    def tokens(self, clock: Clock, subject: str) -> DelegationTokens | None:
        """The tokens of the cluster, for the service of this name; ``None`` without a key.

        ``ConfigurationError`` for a key file that cannot be used.
        """
        if not self.cluster_key_file:
            return None
        keys = ClusterKeys.read(Path(self.cluster_key_file))
        return DelegationTokens(keys, clock, subject, life_ms=self.token_life_ms)
