"""Runs the command line ``pravega-spark``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from pravega_common.runtime.grpc_forks import keep_grpc_out_of_forks
from pravega_common.runtime.lasting_imports import lasting_imports
from pravega_common.version import __version__
from pravega_spark.commands.requirements import exit_lacking, exit_without


def main() -> None:
    """Runs the sub-command that the arguments name; an error is one sentence and exit status 1."""
    if sys.argv[1:] == ["--version"]:
        print(f"pravega-spark {__version__}")
        return
    _open_closed_streams()
    # A failed handshake is said by this program, in one sentence; gRPC would print its own lines beside it.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    keep_grpc_out_of_forks()
    exit_without("pravega-spark", "typer", "rich")
    from pravega_common.errors import PravegaError

    try:
        try:
            _command()()
        finally:
            sys.stdout.flush()
    except PravegaError as error:
        sys.exit(f"pravega-spark: {error}")
    except ModuleNotFoundError as error:
        exit_lacking("pravega-spark", error)
    except KeyboardInterrupt:  # While modules are imported: a command gives this status itself.
        sys.exit(130)
    except OSError as error:
        # A full disk behind standard output, say. Python would complain once more when it closes that.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1 if isinstance(error, BrokenPipeError) else f"pravega-spark: {error}")


def _open_closed_streams() -> None:
    """Has the standard streams lead nowhere that were closed before the start.

    Their numbers would go to the next files and connections, and Python has None in their place.
    """
    names = ("stdin", "stdout", "stderr")
    while (opened := os.open(os.devnull, os.O_RDWR)) < len(names):
        name = names[opened]
        setattr(sys, name, os.fdopen(opened, "r" if name == "stdin" else "w"))
    os.close(opened)


def _command() -> Callable[[], None]:
    """Makes the command that the arguments name."""
    with lasting_imports():
        from typer.main import get_command

        from pravega_spark.application import make_application
        from pravega_spark.plain_values import take_plain_values

        command = get_command(make_application(sys.argv[1:]))
        take_plain_values(command)
        return command


if __name__ == "__main__":
    main()
