"""Provides keys and tokens of a cluster for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pravega_common.runtime.clock import Clock, SystemClock
from pravega_common.services.security.cluster_keys import ClusterKeys
from pravega_common.services.security.delegation_tokens import DelegationTokens
from pravega_spark.standalone.process import StandaloneProcess

KEYS: Final = ClusterKeys({"test": bytes(range(64))})


def tokens_of(clock: Clock | None = None, keys: ClusterKeys = KEYS) -> DelegationTokens:
    return DelegationTokens(keys, clock or SystemClock(), "test")


def tokens_of_standalone(cluster: StandaloneProcess) -> DelegationTokens:
    """The tokens of a running standalone, by the key in its data folder."""
    return tokens_of(keys=ClusterKeys.read(Path(cluster.ready()["data_dir"]) / "cluster.keys"))
