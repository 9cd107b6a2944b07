"""``backfill load|export``: files into a stream and back, on Spark."""

from __future__ import annotations

import typer


def add_to(application: typer.Typer) -> None:
    application.command(
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
    )(backfill)


def backfill(context: typer.Context) -> None:
    """Files into a stream, and a stream into files: exactly once by job id."""
    # Its arguments are those of scripts/backfill.py, which runs where Typer is not installed.
    from pravega_spark.backfill.main import main

    raise typer.Exit(main(context.args))
