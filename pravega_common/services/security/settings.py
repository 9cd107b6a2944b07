"""Defines the settings of the section ``security``, which both services have."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from pravega_common.runtime.clock import Clock
from pravega_common.services.security.cluster_keys import ClusterKeys
from pravega_common.services.security.delegation_tokens import DelegationTokens, token_life_ms_default
from pravega_common.services.settings import Section


class SecuritySection(Section):
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

    def tokens(self, clock: Clock, subject: str) -> DelegationTokens | None:
        """The tokens of the cluster, for the service of this name; ``None`` without a key.

        ``ConfigurationError`` for a key file that cannot be used.
        """
        if not self.cluster_key_file:
            return None
        keys = ClusterKeys.read(Path(self.cluster_key_file))
        return DelegationTokens(keys, clock, subject, life_ms=self.token_life_ms)
