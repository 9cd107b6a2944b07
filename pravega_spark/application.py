"""Builds the application with its sub-commands.

A command that asks one thing should answer at once, and importing all commands takes longer than most questions. So a
run imports only the module of the command that its arguments name.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Final

import typer

from pravega_common.version import __version__

MODULES: Final = {
    "standalone": "pravega_spark.commands.services",
    "segment-store": "pravega_spark.commands.services",
    "controller": "pravega_spark.commands.services",
    "scope": "pravega_spark.commands.scope",
    "stream": "pravega_spark.commands.stream",
    "event": "pravega_spark.commands.event",
    "sink": "pravega_spark.commands.sink",
    "subscriber": "pravega_spark.commands.subscriber",
    "cluster": "pravega_spark.commands.cluster",
    "user": "pravega_spark.commands.user",
    "store": "pravega_spark.commands.store",
    "backfill": "pravega_spark.backfill.command",
    "doctor": "pravega_spark.commands.doctor",
    "files": "pravega_spark.commands.files",
}
"""The module that has each command; its ``add_to`` adds it."""


def make_application(arguments: Sequence[str] = ()) -> typer.Typer:
    """Returns the application with the command that the arguments name, and with all commands where they name none."""
    made = typer.Typer(
        name="pravega-spark",
        help="A tiered event-stream store, and the Spark source and sink that make it useful.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_options)
    named = next((argument for argument in arguments if not argument.startswith("-")), "")
    modules = [MODULES[named]] if named in MODULES else list(dict.fromkeys(MODULES.values()))
    for module in modules:
        import_module(module).add_to(made)
    return made


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"pravega-spark {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and end.")
    ] = False,
) -> None:
    """A tiered event-stream store, and the Spark source and sink that make it useful."""
