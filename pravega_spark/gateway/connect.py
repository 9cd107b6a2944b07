"""Opens the gateway to a controller, once per process."""

from __future__ import annotations

import os
from collections.abc import Callable

from pravega_common.runtime.failpoints import ENVIRONMENT_VARIABLE, arm_from_environment
from pravega_spark.gateway.contract import StreamGateway
from pravega_spark.gateway.service import ServiceGateway
from pravega_spark.gateway.worker_process import spare_collections

_opened: dict[tuple[int, str], StreamGateway] = {}
_other_schemes: dict[str, Callable[[str], StreamGateway]] = {}


def gateway_for(controller: str) -> StreamGateway:
    """The gateway to a controller, made once per process: connections do not survive a fork.

    Called by whatever Spark starts, and only there: tasks, planning, commits. Nothing connects before the first call;
    ``ConfigurationError`` for an address that is none.
    """
    key = (os.getpid(), controller)
    gateway = _opened.get(key)
    if gateway is None:
        if os.environ.get(ENVIRONMENT_VARIABLE):  # Spark's workers have no main function of ours.
            arm_from_environment()
        scheme = controller.partition("://")[0]
        gateway = _other_schemes.get(scheme, ServiceGateway)(controller)
        spare_collections()
        _opened[key] = gateway
    return gateway


def register_scheme(scheme: str, open_gateway: Callable[[str], StreamGateway]) -> None:
    """Open addresses of this scheme, in this process, with ``open_gateway``, which is given the whole address."""
    _other_schemes[scheme] = open_gateway
