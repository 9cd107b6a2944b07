"""Ends a call at once when TLS is what keeps it from every controller, instead of trying again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import grpc

from pravega_common.errors import RejectedError
from pravega_common.runtime.client_tls import tls_problem
from pravega_streams.connection.endpoints import Endpoint

_NOBODY_THERE: Final = "Connection refused"


class TlsRefusals:
    """The controllers that one call found it cannot speak with; a certificate may be wrong on one of several."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints
        self._found: dict[int, RejectedError | None] = {}

    def check(self, index: int, failure: grpc.RpcError) -> None:
        """Look why a controller cannot be reached, once a call. Raises when none of them ever will."""
        if index in self._found or _NOBODY_THERE in str(failure.details()):
            return
        endpoint = self._endpoints[index]
        refusal = tls_problem(endpoint.host, endpoint.port, endpoint.tls, f"the controller at {endpoint}")
        self._found[index] = refusal
        if refusal is not None and all(self._found.get(other) for other in range(len(self._endpoints))):
            raise refusal from failure
