"""Makes the unmodified PyPI client ``pravega``, which is the Rust client, for the clusters of a suite."""

from __future__ import annotations

import os

import pravega_client


def rust_stream_manager(controller_uri: str) -> pravega_client.StreamManager:
    """Who it is and whom it trusts it takes from the environment; that it shows who it is must be said."""
    is_asked = "pravega_client_auth_method" in os.environ
    return pravega_client.StreamManager(controller_uri, is_asked, controller_uri.startswith("tls://"))
