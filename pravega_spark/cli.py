"""Runs the command line ``pravega-spark``."""

from __future__ import annotations

import os
import sys

from pravega_common.version import __version__
from pravega_spark.commands.requirements import exit_lacking, exit_without


def main() -> None:
    """Runs the sub-command that the arguments name; an error is one sentence and exit status 1."""
    if sys.argv[1:] == ["--version"]:
        print(f"pravega-spark {__version__}")
        return
    # A failed handshake is said by this program, in one sentence; gRPC would print its own lines beside it.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    exit_without("pravega-spark", "typer", "rich")
    from typer.main import get_command

    from pravega_common.errors import PravegaError
    from pravega_spark.application import make_application
    from pravega_spark.plain_values import take_plain_values

    try:
        command = get_command(make_application(sys.argv[1:]))
        take_plain_values(command)
        command()
    except PravegaError as error:
        sys.exit(f"pravega-spark: {error}")
    except ModuleNotFoundError as error:
        exit_lacking("pravega-spark", error)
