"""Whether anybody listens at an address; imports nothing that an executor does not have."""

from __future__ import annotations

import socket
from typing import Final

from pravega_common.errors import Unavailable
from pravega_streams.controller.transport import parse_controller_uri

connect_time_max_s: Final = 3.0
"""How long a command looks for a controller before it says that none is there."""


def check_listens(controller: str) -> None:
    """A command must not retry for half a minute before it says that an address is wrong: ``Unavailable``."""
    failure: OSError | None = None
    for endpoint in parse_controller_uri(controller):
        try:
            socket.create_connection((endpoint.host, endpoint.port), timeout=connect_time_max_s).close()
            return
        except OSError as error:
            failure = error
    raise Unavailable(
        f"no controller answers at {controller} ({failure}); start one with: pravega-spark standalone, or name the "
        "right address with --controller or PRAVEGA_CONTROLLER"
    ) from failure
