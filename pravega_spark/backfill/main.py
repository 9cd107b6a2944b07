"""Runs ``backfill`` as a program of its own, for ``spark-submit scripts/backfill.py``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pravega_common.runtime.grpc_forks import keep_grpc_out_of_forks
from pravega_spark.commands.requirements import exit_without

PROGRAM: Final = "backfill.py"


def main(given: Sequence[str] | None = None) -> None:
    """Parses the arguments (those of the process by default), runs the job and exits with its status."""
    keep_grpc_out_of_forks()
    exit_without(PROGRAM, "typer", "rich")
    from pravega_spark.backfill.command import application

    application(PROGRAM)(given, prog_name=PROGRAM)
